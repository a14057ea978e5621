//! Compares what a consumer received, in the order of receipt, with what was committed. Pure.
//!
//! An event may be received again. Whenever an event is received, first or again, every earlier event of its key has
//! been received. So no event of a key is skipped and none overtakes another.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

/// What one destination should receive: each event with its key and its number in the order of the key.
#[derive(Debug, Default)]
pub struct Committed {
    events: HashMap<Uuid, (Option<String>, i64)>,
}

/// A mistake in a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The event was never committed, or not for this destination.
    Unexpected(Uuid),
    /// The event was received before an earlier one of its key.
    OutOfOrder {
        /// The key.
        key: String,
        /// The number of the event.
        number: i64,
        /// The earliest number that had not been received.
        missing: i64,
    },
    /// The event was never received.
    Lost(Uuid),
}

/// The numbers of each key that have not been received yet.
type Open = BTreeMap<String, BTreeSet<i64>>;

impl Committed {
    /// Adds an event. `number` is its place in the order of the key.
    pub fn add(&mut self, id: Uuid, key: Option<&str>, number: i64) {
        self.events.insert(id, (key.map(str::to_owned), number));
    }

    /// Checks the ids in the order of receipt, and returns the number of duplicates.
    ///
    /// # Errors
    /// Every mistake.
    pub fn check(&self, ledger: &[Uuid]) -> Result<usize, Vec<Finding>> {
        let mut open = self.open();
        let mut missing: BTreeSet<Uuid> = self.events.keys().copied().collect();
        let mut findings = Vec::new();
        let mut duplicates = 0;
        for id in ledger {
            let Some((key, number)) = self.events.get(id) else {
                findings.push(Finding::Unexpected(*id));
                continue;
            };
            duplicates += usize::from(!missing.remove(id));
            if let Some(key) = key {
                findings.extend(receive(&mut open, key, *number));
            }
        }
        findings.extend(missing.into_iter().map(Finding::Lost));
        if findings.is_empty() {
            Ok(duplicates)
        } else {
            Err(findings)
        }
    }

    fn open(&self) -> Open {
        let mut open = Open::new();
        for (key, number) in self.events.values() {
            if let Some(key) = key {
                open.entry(key.clone()).or_default().insert(*number);
            }
        }
        open
    }
}

/// One event of a key is received.
fn receive(open: &mut Open, key: &str, number: i64) -> Option<Finding> {
    let numbers = open.get_mut(key)?;
    numbers.remove(&number);
    let missing = *numbers.first()?;
    (missing < number).then(|| Finding::OutOfOrder {
        key: key.to_owned(),
        number,
        missing,
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Committed, Finding};

    fn id(number: i64) -> Uuid {
        Uuid::from_u128(u128::try_from(number).expect("a small number"))
    }

    /// Commits 1, 2, 3 of one key, 11, 12 of another and 21 of none, and receives them in this order.
    fn check(received: &[i64]) -> Result<usize, Vec<Finding>> {
        let mut committed = Committed::default();
        for number in 1..=3 {
            committed.add(id(number), Some("a"), number);
        }
        for number in 11..=12 {
            committed.add(id(number), Some("b"), number);
        }
        committed.add(id(21), None, 21);
        committed.check(&received.iter().copied().map(id).collect::<Vec<_>>())
    }

    fn out_of_order(number: i64, missing: i64) -> Finding {
        Finding::OutOfOrder {
            key: "a".to_owned(),
            number,
            missing,
        }
    }

    #[test]
    fn keys_in_order_are_accepted_however_they_interleave() {
        assert_eq!(check(&[11, 1, 2, 12, 3, 21]), Ok(0));
        assert_eq!(check(&[21, 1, 2, 3, 11, 12]), Ok(0));
    }

    #[test]
    fn repeated_events_are_accepted_and_counted() {
        assert_eq!(check(&[1, 2, 1, 2, 3, 11, 12, 21, 21]), Ok(3));
        assert_eq!(
            check(&[1, 2, 3, 2, 11, 12, 21]),
            Ok(1),
            "a worker that was frozen may finish its send"
        );
    }

    #[test]
    fn a_skip_is_found() {
        assert_eq!(
            check(&[1, 3, 11, 12, 21]),
            Err(vec![out_of_order(3, 2), Finding::Lost(id(2))])
        );
    }

    #[test]
    fn an_event_that_overtakes_is_found() {
        assert_eq!(check(&[1, 3, 2, 11, 12, 21]), Err(vec![out_of_order(3, 2)]));
        assert_eq!(
            check(&[2, 1, 3, 11, 12, 21]),
            Err(vec![out_of_order(2, 1)]),
            "also the first of a key"
        );
    }

    #[test]
    fn a_skip_is_found_behind_a_duplicate() {
        assert_eq!(check(&[1, 1, 3, 2, 3, 11, 12, 21]), Err(vec![out_of_order(3, 2)]));
    }

    #[test]
    fn a_loss_is_found_at_the_end_of_a_key_and_without_one() {
        assert_eq!(check(&[1, 2, 11, 12, 21]), Err(vec![Finding::Lost(id(3))]));
        assert_eq!(check(&[1, 2, 3, 11, 12]), Err(vec![Finding::Lost(id(21))]));
    }

    #[test]
    fn an_event_that_was_never_committed_is_found() {
        assert_eq!(
            check(&[1, 2, 3, 11, 12, 21, 99]),
            Err(vec![Finding::Unexpected(id(99))])
        );
    }
}
