//! Rows whose connection was lost while they were being sent, until the cause is known. Pure.
//!
//! A broker that stops and an event that the broker cannot handle look the same: both close the connection under
//! everything that is being sent. A health check right after tells them apart. If it fails, the destination is
//! unavailable and no row is to blame. If it passes, one of the rows is: all of them become suspects, which are tried in
//! small groups and then alone. A row that was sent alone is to blame in both cases.
//!
//! A row whose send never began is never to blame, because no connection could be made. If the check fails, the destination is
//! unavailable. If it passes, the attempt has failed.
//!
//! Rows that lose their connection at about the same time share one check.

use std::time::Duration;

use pillarbox::Outcome;

use crate::send::key_queues::Ticket;
use crate::send::streak::Part;

/// How long to collect: connections fail row by row, and other running attempts may follow.
const COLLECT: Duration = Duration::from_millis(50);

/// A row whose connection was lost.
#[derive(Debug)]
pub(crate) struct LostConnection {
    pub(crate) ticket: Ticket,
    pub(crate) reason: String,
    /// Which part of the destination the row was sent to.
    pub(crate) part: Option<Part>,
    pub(crate) blame: Blame,
}

/// Whether the row may have closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// No: the send never began.
    Innocent,
    /// This row, or another that was being sent.
    Shared,
    /// This row, because no other was being sent.
    Alone,
}

impl LostConnection {
    /// What the answer of a health check says about the row.
    pub(crate) fn outcome(self, answer: &Result<(), String>) -> (Ticket, Option<Part>, Outcome) {
        let reason = self.reason;
        let outcome = match (answer, self.blame) {
            (Err(error), Blame::Innocent | Blame::Shared) => {
                Outcome::unavailable(format!("{reason}; health check failed: {error}"))
            }
            (Err(_), Blame::Alone) | (Ok(()), Blame::Shared | Blame::Alone) => {
                Outcome::connection_lost(reason)
            }
            (Ok(()), Blame::Innocent) => Outcome::retry(reason),
        };
        (self.ticket, self.part, outcome)
    }
}

/// The rows that wait for one check.
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

    /// When the check is due: at once if no other attempt is running.
    pub(crate) fn check_at(&self, running: usize) -> Option<Duration> {
        match (self.rows.is_empty(), running) {
            (true, _) => None,
            (false, 0) => Some(self.first),
            (false, _) => Some(self.first + COLLECT),
        }
    }

    /// The rows, to be settled after the check.
    pub(crate) fn take(&mut self) -> Vec<LostConnection> {
        std::mem::take(&mut self.rows)
    }
}
