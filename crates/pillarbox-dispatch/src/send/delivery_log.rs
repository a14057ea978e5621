//! What the log says about the events of one destination.
//!
//! Every failed attempt is a warning, and a dead event and a blocked key are errors: an event must not end silently. Each
//! message is limited, because a destination that fails may fail thousands of times a second.

use std::time::Duration;

use pillarbox::internal::LineLimit;
use pillarbox::text::error_text;
use pillarbox_store::Verdict;

use crate::policy::OnDead;
use crate::send::key_queues::Ticket;

const FAILED: &str = "delivery failed, will retry";
const DEAD: &str = "event is dead";
const BLOCKED: &str = "ordering key blocked";

/// See the module.
#[derive(Debug)]
pub(crate) struct DeliveryLog {
    destination: String,
    failed: LineLimit,
    dead: LineLimit,
    blocked: LineLimit,
}

impl DeliveryLog {
    pub(crate) fn new(destination: String) -> Self {
        Self {
            destination,
            failed: LineLimit::default(),
            dead: LineLimit::default(),
            blocked: LineLimit::default(),
        }
    }

    /// An attempt ended with this verdict.
    pub(crate) fn settled(&mut self, ticket: &Ticket, verdict: &Verdict, now: Duration) {
        match verdict {
            Verdict::Delivered => tracing::debug!(
                event_id = %ticket.event_id,
                destination = self.destination,
                attempt = ticket.attempts,
                "event delivered"
            ),
            Verdict::Retry { after, reason } | Verdict::Suspect { after, reason } => {
                self.failed(ticket, reason, *after, now);
            }
            Verdict::Dead { reason } => self.dead(ticket, reason, now),
            // Not the event's fault: the breaker logs it.
            Verdict::Release { .. } | Verdict::Delete => {}
        }
    }

    fn failed(&mut self, ticket: &Ticket, reason: &str, after: Duration, now: Duration) {
        let Some(suppressed) = self.failed.allow(now) else {
            return;
        };
        tracing::warn!(
            event_id = %ticket.event_id,
            destination = self.destination,
            attempt = ticket.attempts,
            max_attempts = ticket.policy.retry.limit(),
            error = error_text(reason),
            retry_in = ?after,
            suppressed = some(suppressed),
            "{FAILED}"
        );
    }

    fn dead(&mut self, ticket: &Ticket, reason: &str, now: Duration) {
        if let Some(suppressed) = self.dead.allow(now) {
            tracing::error!(
                event_id = %ticket.event_id,
                destination = self.destination,
                attempt = ticket.attempts,
                max_attempts = ticket.policy.retry.limit(),
                error = error_text(reason),
                suppressed = some(suppressed),
                "{DEAD}"
            );
        }
        let Some(key) = ticket
            .key
            .as_ref()
            .filter(|_| ticket.policy.on_dead == OnDead::Block)
        else {
            return;
        };
        if let Some(suppressed) = self.blocked.allow(now) {
            tracing::error!(
                namespace = key.0,
                ordering_key = key.1,
                destination = self.destination,
                event_id = %ticket.event_id,
                suppressed = some(suppressed),
                "{BLOCKED}"
            );
        }
    }

    /// When [`flush`](Self::flush) is due, if lines were suppressed.
    pub(crate) fn flush_at(&self) -> Option<Duration> {
        let limits = [&self.failed, &self.dead, &self.blocked];
        limits.into_iter().filter_map(LineLimit::flush_at).min()
    }

    /// Reports how many lines were suppressed, if no later line has.
    pub(crate) fn flush(&mut self, now: Duration) {
        let limits = [
            (&mut self.failed, FAILED),
            (&mut self.dead, DEAD),
            (&mut self.blocked, BLOCKED),
        ];
        for (limit, line) in limits {
            if let Some(suppressed) = limit.flush(now) {
                tracing::warn!(
                    destination = self.destination,
                    line,
                    suppressed,
                    "log lines suppressed"
                );
            }
        }
    }
}

/// A field only if there is something to count.
fn some(suppressed: u64) -> Option<u64> {
    (suppressed > 0).then_some(suppressed)
}
