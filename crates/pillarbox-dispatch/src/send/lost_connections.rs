//! Rows under which a connection was closed, until it is known whose fault it was. Pure.
//!
//! A broker that goes away cuts everything in flight; an event that the broker cannot bear cuts
//! everything in flight too. The destination's own `check()` right after tells the two apart: if it
//! fails, the place went away and nobody is to blame; if it passes, one of those in flight is, and all
//! of them come back in small groups and then alone. A row that was alone is to blame either target.
//!
//! Rows cut at about the same time share one check.

use std::time::Duration;

use crate::send::key_queues::Ticket;

/// How long to collect: connections are torn down row by row, and what is under target may follow.
const COLLECT: Duration = Duration::from_millis(50);

/// A row whose connection was closed.
#[derive(Debug)]
pub(crate) struct LostConnection {
    pub(crate) ticket: Ticket,
    pub(crate) reason: String,
    /// Was nothing else under target to this destination, from its beginning to its end?
    pub(crate) alone: bool,
}

/// The cuts that wait for one check.
#[derive(Debug, Default)]
pub(crate) struct LostConnections {
    rows: Vec<LostConnection>,
    first: Duration,
}

impl LostConnections {
    pub(crate) fn push(&mut self, row: LostConnection, now: Duration) {
        if self.rows.is_empty() {
            self.first = now;
        }
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// When the check should be made at the latest; at once if nothing is under target any more.
    pub(crate) fn check_at(&self, under_way: usize) -> Option<Duration> {
        match (self.rows.is_empty(), under_way) {
            (true, _) => None,
            (false, 0) => Some(self.first),
            (false, _) => Some(self.first + COLLECT),
        }
    }

    /// The rows, now that the check is answered.
    pub(crate) fn take(&mut self) -> Vec<LostConnection> {
        std::mem::take(&mut self.rows)
    }
}
