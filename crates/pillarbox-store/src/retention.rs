//! How long rows are kept after their end, and the request that deletes them.
//!
//! Only rows that have ended are deleted, and all rows of an event together. A row that is pending or in flight stays, and so
//! does a dead row that blocks its key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::actor::Actor;
use crate::archive::Archive;
use crate::audit::{Action, Line};
use crate::store::Scope;

/// How long a row stays that something needs after its delivery, where delivered rows are deleted at once: it has a dedupe
/// key, or belongs to a family of several destinations, or came from an adopted table.
pub const NEEDED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long the copy of an adopted row stays at least. Its table may be written to by others until then.
pub const COPY: Duration = Duration::from_secs(10 * 60);

/// How long rows are kept. `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// Delivered rows. With zero they are deleted with their settlement, unless something [needs](NEEDED) them.
    pub delivered: Option<Duration>,
    /// Dead rows that do not block their key.
    pub dead: Option<Duration>,
}

impl Keep {
    /// Are delivered rows deleted with their settlement?
    pub fn deletes_at_once(&self) -> bool {
        self.delivered == Some(Duration::ZERO)
    }

    /// After how long the pruner deletes a delivered row.
    pub(crate) fn delivered(&self) -> Option<Duration> {
        if self.deletes_at_once() {
            Some(NEEDED)
        } else {
            self.delivered
        }
    }
}

/// What a dispatcher deletes, and when. By default it deletes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    /// Of namespaces without their own.
    pub keep: Keep,
    /// Of namespaces with their own.
    pub namespaces: BTreeMap<String, Keep>,
    /// How long sagas are kept that have ended; `None` is for ever.
    pub sagas: Option<Duration>,
    /// How long the marks of inboxes are kept, of all consumers; `None` is for ever. A consumer prunes its own marks. This is for
    /// those of consumers that no longer run, so it must be longer than every consumer keeps its marks.
    pub inbox: Option<Duration>,
}

impl Retention {
    /// Delivered rows for 7 days, dead rows and ended sagas for 30.
    pub fn usual() -> Self {
        let days = |days: u64| Some(Duration::from_secs(days * 24 * 60 * 60));
        Self {
            keep: Keep {
                delivered: days(7),
                dead: days(30),
            },
            sagas: days(30),
            ..Self::default()
        }
    }

    /// How long rows of a namespace are kept.
    pub fn of(&self, namespace: &str) -> Keep {
        self.namespaces.get(namespace).copied().unwrap_or(self.keep)
    }

    /// Are delivered rows of a namespace kept, at least for some time?
    pub fn keeps(&self, namespace: &str) -> bool {
        !self.of(namespace).deletes_at_once()
    }

    /// Is anything of this kind deleted?
    pub fn prunes(&self, what: What) -> bool {
        let mut all = self.namespaces.values().chain([&self.keep]);
        match what {
            What::Delivered => all.any(|keep| keep.delivered.is_some()),
            What::Dead => all.any(|keep| keep.dead.is_some()),
            What::Sagas => self.sagas.is_some(),
            What::Marks => self.inbox.is_some(),
        }
    }
}

/// What a call deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// Events with a delivered row.
    Delivered,
    /// Events with a dead row.
    Dead,
    /// Sagas that have ended, with their logs.
    Sagas,
    /// Marks of inboxes.
    Marks,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Delivered, Self::Dead, Self::Sagas, Self::Marks];
}

/// A request to delete what was kept long enough: a bounded part of a pass over all of it.
#[derive(Debug, Clone)]
pub struct PruneRequest {
    /// The worker that asks.
    pub worker: Uuid,
    /// For how long it is the only one that deletes in this scope. Zero for an operator, who asks no worker.
    pub lease: Duration,
    /// What is deleted.
    pub what: What,
    /// The scope. Marks of inboxes have no namespace: they are in every scope.
    pub scope: Scope,
    /// How long rows are kept.
    pub retention: Retention,
    /// How many rows are read at most. The rows of an event are deleted together, and may be more.
    pub batch: usize,
    /// Where the pass goes on; `None` begins one.
    pub after: Option<Place>,
    /// Is nothing deleted, and only counted? Then only rows of the kind itself are counted, each once.
    pub dry_run: bool,
    /// Where rows of events go before they are deleted. Sagas and marks are not archived.
    pub archive: Option<Arc<dyn Archive>>,
}

/// A request of an operator to delete events that ended long ago: a bounded part of them.
///
/// What is deleted is what retention would delete: an event with all its rows, when each has ended and is old enough, and never
/// a dead row that blocks its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteOld {
    /// Events with a delivered or with a dead row.
    pub what: What,
    /// How long ago each of its rows must have ended. Not zero.
    pub older_than: Duration,
    /// The scope.
    pub scope: Scope,
    /// How many rows are read at most.
    pub batch: usize,
    /// Where to go on.
    pub after: Option<Place>,
    /// Is nothing deleted, and only counted?
    pub dry_run: bool,
    /// How many rows the operator expects to be deleted, for the audit. Its line is written when a pass begins.
    pub expected: u64,
}

impl DeleteOld {
    /// The same as a request to a store.
    pub(crate) fn as_prune(&self) -> PruneRequest {
        let age = Some(self.older_than.max(Duration::from_millis(1)));
        PruneRequest {
            worker: Uuid::nil(),
            lease: Duration::ZERO,
            what: self.what,
            scope: self.scope.clone(),
            retention: Retention {
                keep: Keep {
                    delivered: age,
                    dead: age,
                },
                ..Retention::default()
            },
            batch: self.batch,
            after: self.after.clone(),
            dry_run: self.dry_run,
            archive: None,
        }
    }

    /// The line of the audit, if a pass begins.
    pub(crate) fn line(&self, actor: &Actor) -> Option<Line> {
        if self.dry_run || self.after.is_some() {
            return None;
        }
        let status = match self.what {
            What::Delivered => "delivered",
            What::Dead | What::Sagas | What::Marks => "dead",
        };
        let mut objects = vec![
            format!("status={status}"),
            format!("older_than={}s", self.older_than.as_secs_f64()),
        ];
        objects.extend(
            self.scope
                .names()
                .unwrap_or_default()
                .iter()
                .map(|name| format!("namespace={name}")),
        );
        let line = Line::of(actor, Action::DeleteEvents, &objects);
        let count = usize::try_from(self.expected).unwrap_or(usize::MAX);
        let before = serde_json::json!({ status: self.expected });
        Some(Line {
            count,
            before: Some(before),
            ..line
        })
    }
}

/// Where a pass goes on. Only the store that gave it can read it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The namespace or the consumer.
    pub(crate) name: String,
    /// The delivery of the last row that was read there; `None` begins after the name.
    pub(crate) at: Option<OffsetDateTime>,
    /// The `seq` of the last row, or how many rows with its time stay.
    pub(crate) number: i64,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Delivered rows.
    pub delivered: u64,
    /// Dead rows.
    pub dead: u64,
    /// Sagas.
    pub sagas: u64,
    /// Marks of inboxes.
    pub marks: u64,
    /// Where the pass goes on; `None` if it is over, or another worker deletes in this scope.
    pub after: Option<Place>,
}

impl Pruned {
    /// Counts what another call has deleted too.
    pub fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.dead += other.dead;
        self.sagas += other.sagas;
        self.marks += other.marks;
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.delivered + self.dead + self.sagas + self.marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_its_own_retention_or_that_of_all() {
        let mut retention = Retention::usual();
        let own = Keep {
            delivered: None,
            dead: Some(Duration::from_secs(60)),
        };
        retention.namespaces.insert("audit".to_owned(), own);
        assert_eq!(retention.of("audit"), own);
        assert_eq!(retention.of("shop"), Retention::usual().keep);
    }

    #[test]
    fn nothing_is_deleted_by_default() {
        let deleted = What::ALL.map(|what| Retention::default().prunes(what));
        assert_eq!(deleted, [false; 4]);
        let deleted = What::ALL.map(|what| Retention::usual().prunes(what));
        assert_eq!(deleted, [true, true, true, false]);
    }

    #[test]
    fn what_is_needed_outlives_an_immediate_delete() {
        let keep = Keep {
            delivered: Some(Duration::ZERO),
            dead: None,
        };
        assert!(keep.deletes_at_once());
        assert_eq!(keep.delivered(), Some(NEEDED));
    }
}
