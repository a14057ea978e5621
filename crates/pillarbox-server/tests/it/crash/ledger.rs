//! Holds what a consumer got, in the order in which it got it, against what was committed. Pure.
//!
//! An event may come again, and then the consumer is taken back in time; but whenever one comes, first or again,
//! every earlier one of its key has been there. That is all there is to order: no event is skipped and none
//! overtaken.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

/// What should arrive at one place: each event with its key and its place in the order of the key.
#[derive(Debug, Default)]
pub(super) struct Committed {
    events: HashMap<Uuid, (Option<String>, i64)>,
}

/// What is wrong with a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It was never committed, or not for this place.
    Ghost(Uuid),
    /// It came before an earlier one of its key.
    Early { key: String, number: i64, before: i64 },
    /// It never came.
    Lost(Uuid),
}

/// What is left of a key: the numbers that have not come yet.
type Open = BTreeMap<String, BTreeSet<i64>>;

impl Committed {
    pub(super) fn add(&mut self, id: Uuid, key: Option<&str>, number: i64) {
        self.events.insert(id, (key.map(str::to_owned), number));
    }

    /// How many events came more than once, counted each time.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub(super) fn check(&self, ledger: &[Uuid]) -> Result<usize, Vec<Finding>> {
        let mut open = self.open();
        let mut missing: BTreeSet<Uuid> = self.events.keys().copied().collect();
        let mut findings = Vec::new();
        let mut duplicates = 0;
        for id in ledger {
            let Some((key, number)) = self.events.get(id) else {
                findings.push(Finding::Ghost(*id));
                continue;
            };
            duplicates += usize::from(!missing.remove(id));
            if let Some(key) = key {
                findings.extend(come(&mut open, key, *number));
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

/// One event of a key comes.
fn come(open: &mut Open, key: &str, number: i64) -> Option<Finding> {
    let numbers = open.get_mut(key)?;
    numbers.remove(&number);
    let before = *numbers.first()?;
    (before < number).then(|| Finding::Early {
        key: key.to_owned(),
        number,
        before,
    })
}

mod tests {
    use uuid::Uuid;

    use super::{Committed, Finding};

    fn id(number: i64) -> Uuid {
        Uuid::from_u128(u128::try_from(number).expect("a small number"))
    }

    /// 1, 2, 3 of one key, 11, 12 of another and 21 of none, in this order of arrival.
    fn check(arrivals: &[i64]) -> Result<usize, Vec<Finding>> {
        let mut committed = Committed::default();
        for number in 1..=3 {
            committed.add(id(number), Some("a"), number);
        }
        for number in 11..=12 {
            committed.add(id(number), Some("b"), number);
        }
        committed.add(id(21), None, 21);
        committed.check(&arrivals.iter().copied().map(id).collect::<Vec<_>>())
    }

    fn early(number: i64, before: i64) -> Finding {
        Finding::Early {
            key: "a".to_owned(),
            number,
            before,
        }
    }

    #[test]
    fn each_key_in_its_order_is_well_whatever_the_others_do() {
        assert_eq!(check(&[11, 1, 2, 12, 3, 21]), Ok(0));
        assert_eq!(check(&[21, 1, 2, 3, 11, 12]), Ok(0));
    }

    #[test]
    fn going_back_and_over_it_again_is_well_and_counted() {
        assert_eq!(check(&[1, 2, 1, 2, 3, 11, 12, 21, 21]), Ok(3));
        assert_eq!(
            check(&[1, 2, 3, 2, 11, 12, 21]),
            Ok(1),
            "a sleeper may send what it had begun"
        );
    }

    #[test]
    fn a_skip_is_found() {
        assert_eq!(
            check(&[1, 3, 11, 12, 21]),
            Err(vec![early(3, 2), Finding::Lost(id(2))])
        );
    }

    #[test]
    fn an_overtaking_is_found() {
        assert_eq!(check(&[1, 3, 2, 11, 12, 21]), Err(vec![early(3, 2)]));
        assert_eq!(
            check(&[2, 1, 3, 11, 12, 21]),
            Err(vec![early(2, 1)]),
            "also at the beginning"
        );
    }

    #[test]
    fn a_skip_is_found_behind_an_event_that_came_again() {
        assert_eq!(check(&[1, 1, 3, 2, 3, 11, 12, 21]), Err(vec![early(3, 2)]));
    }

    #[test]
    fn a_loss_is_found_at_the_end_of_a_key_and_without_one() {
        assert_eq!(check(&[1, 2, 11, 12, 21]), Err(vec![Finding::Lost(id(3))]));
        assert_eq!(check(&[1, 2, 3, 11, 12]), Err(vec![Finding::Lost(id(21))]));
    }

    #[test]
    fn a_ghost_is_found() {
        assert_eq!(
            check(&[1, 2, 3, 11, 12, 21, 99]),
            Err(vec![Finding::Ghost(id(99))])
        );
    }
}
