//! Up to which `seq` no transaction can insert a row any more. Pure.
//!
//! A transaction takes its numbers while it holds a lock on the table, and keeps the lock to its end. So the numbers that were
//! given when the sequence was read are certain as soon as every transaction has ended that held a lock after that. Rows
//! of those that committed are visible then; the others will never be.
//!
//! Several claims may look at the same time. Only the one that ends first counts: the others may have seen less.

use std::collections::HashSet;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watermark {
    /// Every row up to this `seq` is visible, or will never be.
    certain: i64,
    asked: Option<Asked>,
    /// How many looks have ended.
    looks: u64,
    /// The server and its last number, as they were at the last look.
    seen: Option<(String, i64)>,
}

/// A number that will be certain.
#[derive(Debug)]
struct Asked {
    last: i64,
    /// Who held a lock after it was read, and still did at every later look.
    waiting: HashSet<Holder>,
    /// Prepared transactions of that time.
    prepared: HashSet<Holder>,
}

/// A transaction that holds a lock on the table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) name: String,
    /// Does it wait for `COMMIT PREPARED`? It had another name before.
    pub(super) is_prepared: bool,
}

/// What a look has seen: the sequence first, then the holders.
#[derive(Debug)]
pub(super) struct Seen {
    /// When the server was started. Another server may not have the last commits of this one.
    pub(super) server: String,
    pub(super) last: i64,
    pub(super) holders: HashSet<Holder>,
}

/// Numbers are given for the second time: nothing is certain, and no bottom is valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Restarted;

impl Watermark {
    /// A look begins. Its number is for [`look`](Self::look).
    pub(super) fn begin(&self) -> u64 {
        self.looks
    }

    /// A look has ended. Returns up to where all is certain.
    pub(super) fn look(&mut self, began: u64, seen: Seen) -> Result<i64, Restarted> {
        if began != self.looks {
            return Ok(self.certain);
        }
        self.looks += 1;
        let restarted = self
            .seen
            .as_ref()
            .is_some_and(|(server, last)| *server != seen.server || *last > seen.last);
        self.seen = Some((seen.server, seen.last));
        if restarted {
            self.forget();
        }
        if let Some(asked) = &mut self.asked {
            asked.look(&seen.holders);
            if !asked.waiting.is_empty() {
                return Ok(self.certain);
            }
            self.certain = self.certain.max(asked.last);
        }
        if seen.holders.is_empty() {
            self.certain = self.certain.max(seen.last);
            self.asked = None;
        } else {
            let prepared = seen.holders.iter().filter(|holder| holder.is_prepared);
            self.asked = Some(Asked {
                last: seen.last,
                prepared: prepared.cloned().collect(),
                waiting: seen.holders,
            });
        }
        if restarted {
            Err(Restarted)
        } else {
            Ok(self.certain)
        }
    }

    /// The connection was lost: the next server may be another one.
    pub(super) fn forget(&mut self) {
        self.certain = 0;
        self.asked = None;
        self.looks += 1;
    }
}

impl Asked {
    /// Some of those that it waits for may have ended, or may have been prepared. Then each new prepared one may be one of them.
    fn look(&mut self, holders: &HashSet<Holder>) {
        let has_left = |holder: &Holder| !holder.is_prepared && !holders.contains(holder);
        if self.waiting.iter().any(has_left) {
            let new = holders
                .iter()
                .filter(|holder| holder.is_prepared && !self.prepared.contains(*holder));
            self.waiting.extend(new.cloned());
        }
        self.waiting.retain(|holder| holders.contains(holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transactions by name; a prepared one begins with `-`.
    fn seen(last: i64, names: &[&str]) -> Seen {
        let holder = |name: &&str| Holder {
            name: (*name).to_owned(),
            is_prepared: name.starts_with('-'),
        };
        Seen {
            server: "first".to_owned(),
            last,
            holders: names.iter().map(holder).collect(),
        }
    }

    fn look(watermark: &mut Watermark, last: i64, names: &[&str]) -> i64 {
        let began = watermark.begin();
        watermark.look(began, seen(last, names)).expect("the same server")
    }

    #[test]
    fn without_transactions_every_number_is_certain() {
        let mut watermark = Watermark::default();
        assert_eq!(look(&mut watermark, 7, &[]), 7);
    }

    #[test]
    fn a_number_is_certain_when_all_that_might_insert_it_have_ended() {
        let mut watermark = Watermark::default();
        assert_eq!(look(&mut watermark, 7, &["a", "b"]), 0);
        assert_eq!(look(&mut watermark, 9, &["b", "c"]), 0);
        assert_eq!(look(&mut watermark, 12, &["c"]), 7, "c began later");
        assert_eq!(look(&mut watermark, 15, &["d"]), 12);
    }

    #[test]
    fn a_transaction_that_never_ends_holds_the_watermark() {
        let mut watermark = Watermark::default();
        look(&mut watermark, 7, &["a"]);
        for last in 8..20 {
            assert_eq!(look(&mut watermark, last, &["a"]), 0);
        }
    }

    #[test]
    fn a_prepared_transaction_is_waited_for_under_its_new_name() {
        let mut watermark = Watermark::default();
        look(&mut watermark, 7, &["a", "-old"]);
        assert_eq!(look(&mut watermark, 8, &["-a"]), 0, "this may have been `a`");
        assert_eq!(look(&mut watermark, 9, &["-a", "-later"]), 0);
        assert_eq!(
            look(&mut watermark, 10, &["-later"]),
            7,
            "no other has left since"
        );
    }

    #[test]
    fn a_look_that_ends_after_another_one_is_ignored() {
        let mut watermark = Watermark::default();
        let early = watermark.begin();
        look(&mut watermark, 7, &["a"]);
        assert_eq!(watermark.look(early, seen(6, &[])), Ok(0), "it has not seen `a`");
        assert_eq!(look(&mut watermark, 8, &["a"]), 0);
        assert_eq!(look(&mut watermark, 9, &[]), 9);
    }

    #[test]
    fn nothing_is_certain_after_numbers_went_back_or_on_another_server() {
        let mut watermark = Watermark::default();
        look(&mut watermark, 7, &[]);
        let began = watermark.begin();
        assert_eq!(watermark.look(began, seen(3, &["a"])), Err(Restarted));
        assert_eq!(look(&mut watermark, 4, &["a"]), 0);
        assert_eq!(look(&mut watermark, 5, &[]), 5);
        let began = watermark.begin();
        let other = Seen {
            server: "second".to_owned(),
            ..seen(9, &[])
        };
        assert_eq!(watermark.look(began, other), Err(Restarted));
    }

    #[test]
    fn a_look_that_began_before_a_lost_connection_is_ignored() {
        let mut watermark = Watermark::default();
        let began = watermark.begin();
        watermark.forget();
        assert_eq!(watermark.look(began, seen(7, &[])), Ok(0));
    }
}
