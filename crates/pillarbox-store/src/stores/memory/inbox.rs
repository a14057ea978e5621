//! The inbox: which events consumers have handled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::enqueue::Transaction;
use crate::store::StoreError;
use pillarbox::inbox::Inbox;

/// A consumer and an event.
type Mark = (String, Uuid);

/// The marks, and those of open transactions.
#[derive(Debug, Default)]
pub(super) struct Marks {
    handled: BTreeMap<Mark, OffsetDateTime>,
    held: BTreeSet<Mark>,
}

/// The changes of one transaction. Lost if it ends without a commit.
#[derive(Debug, Default)]
pub(super) struct Marking {
    marked: Vec<Mark>,
    unmarked: Vec<Mark>,
}

impl Marks {
    /// Removes marks of all consumers that are older than this, a bounded number. Returns how many.
    pub(super) fn prune_all(&mut self, age: Option<Duration>, most: usize, now: OffsetDateTime) -> u64 {
        let Some(age) = age else { return 0 };
        let old = self.handled.iter().filter(|(_, at)| **at + age < now);
        let old: Vec<Mark> = old.map(|(mark, _)| mark.clone()).take(most).collect();
        for mark in &old {
            self.handled.remove(mark);
        }
        old.len() as u64
    }
}

impl Transaction {
    /// A database would wait for the other transaction. This store cannot wait, so it fails and the caller tries again.
    pub(super) fn mark(&mut self, consumer: &str, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let mut table = self.outbox.table();
        let mut new = Vec::new();
        for id in ids {
            let mark = (consumer.to_owned(), *id);
            let mine = self.marking.marked.contains(&mark);
            if table.marks.held.contains(&mark) && !mine {
                let why = format!("another transaction is handling {id} for {consumer:?}; try again");
                return Err(StoreError::Unavailable(why));
            }
            let known = table.marks.handled.contains_key(&mark) && !self.marking.unmarked.contains(&mark);
            if !mine && !known {
                table.marks.held.insert(mark.clone());
                self.marking.marked.push(mark);
                new.push(*id);
            }
        }
        Ok(new)
    }

    pub(super) fn unmark(&mut self, consumer: &str, ids: &[Uuid]) {
        let mut table = self.outbox.table();
        for id in ids {
            let mark = (consumer.to_owned(), *id);
            table.marks.held.remove(&mark);
            self.marking.marked.retain(|other| *other != mark);
            self.marking.unmarked.push(mark);
        }
    }

    /// At once, not at the commit, because no transaction reads old marks.
    pub(super) fn prune(&mut self, inbox: &Inbox, consumer: &str, limit: i32) -> u64 {
        let until = self.outbox.clock.wall() - inbox.kept();
        let mut table = self.outbox.table();
        let old: Vec<Mark> = table
            .marks
            .handled
            .iter()
            .filter(|((whose, _), at)| whose == consumer && **at < until)
            .map(|(mark, _)| mark.clone())
            .take(usize::try_from(limit).unwrap_or(0))
            .collect();
        for mark in &old {
            table.marks.handled.remove(mark);
        }
        old.len() as u64
    }
}

impl Marks {
    pub(super) fn commit(&mut self, marking: Marking, now: OffsetDateTime) {
        for mark in marking.unmarked {
            self.handled.remove(&mark);
        }
        for mark in marking.marked {
            self.held.remove(&mark);
            self.handled.insert(mark, now);
        }
    }

    pub(super) fn give_up(&mut self, marking: Marking) {
        for mark in marking.marked {
            self.held.remove(&mark);
        }
    }
}
