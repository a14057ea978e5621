//! What is done about one message, from its first attempt to its end.
//!
//! ```text
//! its turn ─▶ attempt ─▶ handled, known, ignored ──────────────▶ acknowledge
//!    ▲           ├─────▶ failed: wait, as the policy says ─┐
//!    ├───────────┼─────────────────────────────────────────┘
//!    │           ├─────▶ the database is away: wait, uncounted
//!    └───────────┘
//!                └─────▶ rejected, or attempts used up ─▶ dead letter ─▶ acknowledge
//! ```
//!
//! Whoever waits holds up its own key and nobody else: it takes no part of the concurrency meanwhile.
//!
//! A message is acknowledged after the commit, or after its copy among the dead letters is confirmed, and never else. If
//! the copy cannot be written, the message waits until it can.
//!
//! **If we die here** the message was not acknowledged, and comes again. The inbox knows whether it was handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pillarbox::{Clock, Outcome, StoreError, failpoint};
use pillarbox_store::Verdict;
use pillarbox_store::verdict::decide;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::attempt::{Attempts, Ended};
use crate::counters::Counters;
use crate::database::Database;
use crate::dead::DeadLetter;
use crate::received::Received;
use crate::settings::outage;
use crate::source::{AtWork, Message};

/// What all messages of a consumer share.
pub(crate) struct Work<D: Database> {
    pub(crate) attempts: Attempts<D>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How many handlers may be at work.
    pub(crate) turns: Semaphore,
    /// No attempt begins after this.
    pub(crate) stop: CancellationToken,
    /// Does the database not answer, as far as we know? Said once, and not by every event that waits for it.
    pub(crate) is_away: AtomicBool,
}

/// What follows from an attempt.
enum Next {
    Done,
    /// Wait, and try again; the attempt counts, or it does not.
    Wait(Duration, Counted),
    Bury(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
}

impl<D: Database> Work<D> {
    /// Sees a message through. Ends early, and leaves the message unacknowledged, when the consumer stops or the message
    /// is no longer ours.
    pub(crate) async fn see_through(&self, message: Message) {
        let event = match &message.event {
            Ok(event) => event,
            Err(reason) => return self.bury(&message, 0, reason.clone()).await,
        };
        let span = tracing::debug_span!(
            "consume",
            consumer = self.attempts.consumer,
            event_id = %event.id,
            event_type = event.event_type,
        );
        self.try_until_done(&message, event).instrument(span).await;
    }

    async fn try_until_done(&self, message: &Message, event: &Received<Bytes>) {
        let (mut attempts, mut in_vain) = (0, 0);
        loop {
            let Some(next) = self.try_once(message, event, attempts + 1, in_vain).await else {
                return self.counters.released();
            };
            match next {
                Next::Done => return,
                Next::Bury(reason) => return self.bury(message, attempts + 1, reason).await,
                Next::Wait(delay, counted) => {
                    match counted {
                        Counted::Yes => attempts += 1,
                        Counted::No => in_vain += 1,
                    }
                    if !self.wait(delay).await {
                        return self.counters.released();
                    }
                }
            }
        }
    }

    /// One attempt in its turn, acknowledged if it was the last. None if it may not begin.
    async fn try_once(
        &self,
        message: &Message,
        event: &Received<Bytes>,
        attempt: u32,
        in_vain: u32,
    ) -> Option<Next> {
        let _turn = self.turn().await?;
        let _at_work = AtWork::begin(&*message.receipt)?;
        let mut event = event.clone();
        event.attempt = attempt;
        let next = self.follow(self.attempts.make(event).await, attempt, in_vain);
        if let Next::Done = next {
            self.acknowledge(message).await;
        }
        Some(next)
    }

    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            turn = self.turns.acquire() => turn.ok(),
        }
    }

    /// What follows from how an attempt ended.
    fn follow(&self, ended: Ended, attempt: u32, in_vain: u32) -> Next {
        let outcome = match ended {
            Ended::Handled => {
                self.answers();
                self.counters.handled();
                return Next::Done;
            }
            Ended::Already => {
                self.answers();
                self.counters.already();
                tracing::debug!("the event was handled before");
                return Next::Done;
            }
            Ended::Ignored => {
                self.counters.ignored();
                return Next::Done;
            }
            Ended::Not(outcome) => outcome,
            Ended::Store(error) => {
                self.counters.store_error();
                self.failed(&error);
                outcome_of(error)
            }
        };
        let random = fastrand::f64();
        let closed = outage().delay(in_vain + 1, random).unwrap_or_default();
        let policy = &self.attempts.settings.retry;
        match decide(outcome, attempt, policy, closed, random) {
            Verdict::Delivered | Verdict::Delete => Next::Done,
            Verdict::Dead { reason } => Next::Bury(reason),
            Verdict::Retry { after, reason } | Verdict::Suspect { after, reason } => {
                self.counters.retried();
                tracing::warn!(
                    attempt,
                    reason,
                    ?after,
                    "the event was not handled; it is tried again"
                );
                Next::Wait(after, Counted::Yes)
            }
            Verdict::Release { after, reason } => {
                match in_vain {
                    0 => tracing::info!(
                        attempt,
                        reason,
                        ?after,
                        "the event cannot be handled now; it waits"
                    ),
                    _ => tracing::debug!(attempt, reason, ?after, "the event still cannot be handled"),
                }
                Next::Wait(after, Counted::No)
            }
        }
    }

    fn failed(&self, error: &StoreError) {
        if self.is_away.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "the database does not do its part");
        } else {
            tracing::warn!(%error, "the database does not do its part; trying again until it does");
        }
    }

    fn answers(&self) {
        if self.is_away.swap(false, Ordering::Relaxed) {
            tracing::info!("the database does its part again");
        }
    }

    /// False if the consumer stops meanwhile.
    #[expect(clippy::disallowed_methods, reason = "the wait between two attempts")]
    async fn wait(&self, delay: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = sleep(delay) => true,
        }
    }

    async fn acknowledge(&self, message: &Message) {
        message.receipt.acknowledge().await;
        failpoint::hit("consume_acked");
    }

    /// Puts the message among the dead letters, however long that takes.
    async fn bury(&self, message: &Message, attempts: u32, reason: String) {
        tracing::error!(
            consumer = self.attempts.consumer,
            attempts,
            reason,
            "the message goes to the dead letters"
        );
        let letter = DeadLetter {
            reason,
            consumer: self.attempts.consumer.clone(),
            attempts,
            at: self.clock.wall(),
        };
        let mut in_vain = 0;
        loop {
            if self.stop.is_cancelled() {
                return self.counters.released();
            }
            {
                let Some(_at_work) = AtWork::begin(&*message.receipt) else {
                    return self.counters.released();
                };
                match message.receipt.bury(&letter).await {
                    Ok(()) => {
                        failpoint::hit("consume_dead");
                        self.counters.dead();
                        return self.acknowledge(message).await;
                    }
                    Err(error) => tracing::warn!(error, "the dead letter was not taken; trying again"),
                }
            }
            in_vain += 1;
            let delay = outage().delay(in_vain, fastrand::f64()).unwrap_or_default();
            if !self.wait(delay).await {
                return self.counters.released();
            }
        }
    }
}

/// Whose fault it is. What may be the event's own counts, or an event that can never be committed would be tried for ever.
fn outcome_of(error: StoreError) -> Outcome {
    match error {
        StoreError::Unavailable(_)
        | StoreError::Missing(_)
        | StoreError::Outdated { .. }
        | StoreError::Newer { .. }
        | StoreError::Denied(_) => Outcome::unavailable(error.to_string()),
        StoreError::Other(_) => Outcome::retry(error.to_string()),
    }
}
