//! Up to which `seq` no transaction can insert a row any more. Pure.
//!
//! A transaction takes its numbers while it holds a lock on the table, and keeps the lock to its end. So the numbers that were
//! given when the sequence was read are certain as soon as every transaction has ended that held a lock after that. Rows
//! of those that committed are visible then; the others will never be.
//!
//! A transaction of a session that is prepared continues under another name, so any of those that are prepared may be it.

use std::collections::HashSet;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watermark {
    /// Every row up to this `seq` is visible, or will never be.
    certain: i64,
    /// The last number of the sequence when it was read, and who held a lock after that and still did at every later look.
    asked: Option<(i64, HashSet<String>)>,
    /// How often the sequence was set back.
    epoch: u64,
}

impl Watermark {
    /// The sequence was read, and then the transactions that hold a lock on the table. Returns up to where all is certain.
    pub(super) fn look(&mut self, last: i64, holders: HashSet<String>) -> i64 {
        if last < self.certain {
            // As `truncate … restart identity` does. Rows will come with numbers that were certain.
            *self = Self {
                epoch: self.epoch + 1,
                ..Self::default()
            };
        }
        if let Some((asked, waiting)) = &mut self.asked {
            let sessions = waiting.iter().filter(|holder| !is_prepared(holder)).count();
            waiting.retain(|holder| holders.contains(holder));
            if waiting.iter().filter(|holder| !is_prepared(holder)).count() < sessions {
                let prepared = holders.iter().filter(|holder| is_prepared(holder));
                waiting.extend(prepared.cloned());
            }
            if !waiting.is_empty() {
                return self.certain;
            }
            self.certain = self.certain.max(*asked);
        }
        if holders.is_empty() {
            self.certain = self.certain.max(last);
            self.asked = None;
        } else {
            self.asked = Some((last, holders));
        }
        self.certain
    }

    /// How often the sequence was set back. What relied on the watermark before is worth nothing.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// See `holders.sql`.
fn is_prepared(holder: &str) -> bool {
    holder.starts_with("prepared ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(names: &[&str]) -> HashSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn without_transactions_every_number_is_certain() {
        let mut watermark = Watermark::default();
        assert_eq!(watermark.look(7, holders(&[])), 7);
    }

    #[test]
    fn a_number_is_certain_when_everyone_who_might_insert_it_has_ended() {
        let mut watermark = Watermark::default();
        assert_eq!(watermark.look(7, holders(&["a", "b"])), 0);
        assert_eq!(watermark.look(9, holders(&["b", "c"])), 0);
        assert_eq!(watermark.look(12, holders(&["c"])), 7, "c began later");
        assert_eq!(watermark.look(15, holders(&["d"])), 12);
    }

    #[test]
    fn a_transaction_that_never_ends_holds_the_watermark() {
        let mut watermark = Watermark::default();
        watermark.look(7, holders(&["a"]));
        for last in 8..20 {
            assert_eq!(watermark.look(last, holders(&["a"])), 0);
        }
    }

    #[test]
    fn a_transaction_that_is_prepared_holds_the_watermark_under_its_new_name() {
        let mut watermark = Watermark::default();
        watermark.look(7, holders(&["a"]));
        assert_eq!(watermark.look(9, holders(&["prepared 1"])), 0);
        assert_eq!(watermark.look(9, holders(&["prepared 1", "prepared 2"])), 0);
        assert_eq!(watermark.look(9, holders(&["prepared 2"])), 7, "it began later");
    }

    #[test]
    fn a_sequence_that_was_set_back_lowers_the_watermark() {
        let mut watermark = Watermark::default();
        watermark.look(7, holders(&[]));
        assert_eq!(watermark.look(3, holders(&["a"])), 0);
        assert_eq!(watermark.epoch(), 1);
        assert_eq!(watermark.look(4, holders(&[])), 4);
        assert_eq!(watermark.epoch(), 1);
    }
}
