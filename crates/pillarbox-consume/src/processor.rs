//! Processes one message, from its first attempt until it is acknowledged.
//!
//! ```text
//! permit ─▶ attempt ─▶ handled, duplicate, ignored ────────────▶ acknowledge
//!    ▲         ├─────▶ failed: wait as the policy says ──┐
//!    ├─────────┼─────────────────────────────────────────┘
//!    │         ├─────▶ database unavailable: wait, no attempt used
//!    └─────────┘
//!              └─────▶ rejected, or attempts exhausted ─▶ dead letter ─▶ acknowledge
//! ```
//!
//! A message that waits delays its own key and no other: it gives its permit back meanwhile.
//!
//! A message is acknowledged only after the commit, or after the broker has confirmed its dead letter. If the dead letter
//! cannot be published, the message waits until it can.
//!
//! **If we die here** the message is not acknowledged, and the broker delivers it again. The inbox knows whether it was handled.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pillarbox::internal::LineLimit;
use pillarbox::text::error_text;
use pillarbox::{Clock, Outcome, StoreError, failpoint};
use pillarbox_store::Verdict;
use pillarbox_store::verdict::decide;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use crate::attempt::{Attempts, Ended};
use crate::counters::Counters;
use crate::database::Database;
use crate::database_health::DatabaseHealth;
use crate::dead_letter::DeadLetter;
use crate::received::Received;
use crate::settings::reconnect_policy;
use crate::subscription::{HandlerGuard, Message, Receipt};

/// What all messages of a consumer share.
pub(crate) struct Processor<D: Database> {
    pub(crate) attempts: Attempts<D>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Bounds the handlers that run at once.
    pub(crate) permits: Semaphore,
    /// Bounds the events that wait for a consumer that understands their version.
    pub(crate) newer: Semaphore,
    /// No attempt begins after this.
    pub(crate) stop: CancellationToken,
    pub(crate) health: DatabaseHealth,
    pub(crate) limits: LogLimits,
}

/// One for each line that a fault may write for every message. All messages share them.
#[derive(Debug, Default)]
pub(crate) struct LogLimits {
    failed: Mutex<LineLimit>,
    unavailable: Mutex<LineLimit>,
    dead: Mutex<LineLimit>,
    unpublished: Mutex<LineLimit>,
}

/// What follows from an attempt.
enum Next {
    Done,
    /// Wait and try again; the attempt counts, or it does not.
    Wait(Duration, Counted),
    /// Publish a dead letter with this reason.
    GiveUp(String),
}

/// What became of a message until now.
#[derive(Default)]
struct Progress<'a> {
    /// Attempts that count, and those that do not.
    attempts: u32,
    uncounted: u32,
    /// Its place among those that wait for an upgraded consumer.
    place: Option<SemaphorePermit<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
}

impl<D: Database> Processor<D> {
    /// Processes a message until it is acknowledged. Ends early, and leaves the message unacknowledged, when the consumer stops
    /// or the message is lost to another process.
    pub(crate) async fn process(&self, message: Message) {
        let event = match &message.event {
            Ok(event) => event,
            Err(reason) => return self.give_up(&message, None, 0, reason.clone()).await,
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
        let mut progress = Progress::default();
        loop {
            let Some(next) = self.try_once(message, event, &mut progress).await else {
                return self.counters.released();
            };
            match next {
                Next::Done => return,
                Next::GiveUp(reason) => {
                    let attempts = progress.attempts + 1;
                    return self.give_up(message, Some(event.id), attempts, reason).await;
                }
                Next::Wait(delay, counted) => {
                    match counted {
                        Counted::Yes => progress.attempts += 1,
                        Counted::No => progress.uncounted += 1,
                    }
                    if !self.wait(delay).await {
                        return self.counters.released();
                    }
                }
            }
        }
    }

    /// Makes one attempt, and acknowledges the message if it was the last. None if the attempt may not begin.
    async fn try_once<'a>(
        &'a self,
        message: &Message,
        event: &Received<Bytes>,
        progress: &mut Progress<'a>,
    ) -> Option<Next> {
        let _permit = self.permit(&*message.receipt).await?;
        let _running = HandlerGuard::begin(&*message.receipt)?;
        let mut event = event.clone();
        event.attempt = progress.attempts + 1;
        let id = event.id;
        let began = Instant::now();
        let ended = self.attempts.make(event).await;
        if let Ended::Handled | Ended::Failed(_) | Ended::TimedOut(_) = ended {
            self.counters.metrics.attempted(began.elapsed());
        }
        let next = self.decide(id, ended, progress);
        if let Next::Done = next {
            self.acknowledge(message).await;
        }
        Some(next)
    }

    /// None if the consumer stops, or the message is lost to another process.
    async fn permit(&self, receipt: &dyn Receipt) -> Option<SemaphorePermit<'_>> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            () = receipt.lost() => None,
            permit = self.permits.acquire() => permit.ok(),
        }
    }

    /// Counts and logs how an attempt ended, and decides what follows.
    fn decide<'a>(&'a self, event_id: Uuid, ended: Ended, progress: &mut Progress<'a>) -> Next {
        let (attempt, uncounted) = (progress.attempts + 1, progress.uncounted);
        let consumer = &*self.attempts.consumer;
        let random = fastrand::f64();
        let closed = reconnect_policy()
            .delay(uncounted + 1, random)
            .unwrap_or_default();
        let outcome = match ended {
            Ended::Handled => {
                self.health.answered(consumer);
                self.counters.handled();
                return Next::Done;
            }
            Ended::Duplicate => {
                self.health.answered(consumer);
                self.counters.duplicate();
                tracing::debug!("duplicate, event was handled before");
                return Next::Done;
            }
            Ended::Ignored => {
                self.counters.ignored();
                return Next::Done;
            }
            Ended::Failed(outcome) => outcome,
            Ended::Newer(reason) => self.hold(reason, &mut progress.place),
            Ended::TimedOut(limit) => {
                self.counters.timed_out();
                Outcome::retry(format!("timeout: handler did not finish within {limit:?}"))
            }
            Ended::Store(error) => {
                self.counters.store_error();
                self.health.failed(consumer, &error);
                // An error that may be the event's own counts: an event that can never commit would be retried for ever.
                if !matches!(error, StoreError::Other(_) | StoreError::Invalid(_)) {
                    return Next::Wait(closed, Counted::No);
                }
                Outcome::retry(error.to_string())
            }
        };
        let policy = &self.attempts.settings.retry;
        match decide(outcome, attempt, policy, closed, random) {
            Verdict::Delivered | Verdict::Delete => Next::Done,
            Verdict::Dead { reason } => Next::GiveUp(reason),
            Verdict::Retry { after, reason } | Verdict::Suspect { after, reason } => {
                self.counters.retried();
                if let Some(suppressed) = self.allow(&self.limits.failed) {
                    tracing::warn!(
                        consumer,
                        %event_id,
                        attempt,
                        max_attempts = policy.limit(),
                        error = error_text(&reason),
                        retry_in = ?after,
                        suppressed = (suppressed > 0).then_some(suppressed),
                        "handler failed, will retry"
                    );
                }
                Next::Wait(after, Counted::Yes)
            }
            Verdict::Release { after, reason } => {
                // The first wait of an event is worth a line; the later ones repeat it.
                let is_first = uncounted == 0;
                let allowed = is_first.then(|| self.allow(&self.limits.unavailable));
                if let Some(suppressed) = allowed.flatten() {
                    tracing::info!(
                        consumer,
                        %event_id,
                        attempt,
                        error = reason.as_deref().map(error_text),
                        retry_in = ?after,
                        suppressed = (suppressed > 0).then_some(suppressed),
                        "handler unavailable, will retry"
                    );
                }
                Next::Wait(after, Counted::No)
            }
        }
    }

    /// The event waits if there is a place for it. Without the bound, a sender of enough of them would stop the consumer.
    fn hold<'a>(&'a self, reason: String, place: &mut Option<SemaphorePermit<'a>>) -> Outcome {
        if place.is_none() {
            *place = self.newer.try_acquire().ok();
            if place.is_some() {
                self.counters.metrics.held.increment(1);
            }
        }
        if place.is_some() {
            return Outcome::unavailable(reason);
        }
        let most = self.attempts.settings.hold_at_most;
        Outcome::reject(format!(
            "{reason}, and {most} events wait for an upgraded consumer already"
        ))
    }

    /// May a line be logged now? Returns how many were suppressed since the last one.
    fn allow(&self, limit: &Mutex<LineLimit>) -> Option<u64> {
        let mut limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.allow(self.clock.boot())
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

    /// Publishes the message as a dead letter, however long that takes, and acknowledges it.
    async fn give_up(&self, message: &Message, event_id: Option<Uuid>, attempts: u32, reason: String) {
        let consumer = &self.attempts.consumer;
        if let Some(suppressed) = self.allow(&self.limits.dead) {
            tracing::error!(
                consumer,
                event_id = event_id.map(tracing::field::display),
                attempts,
                error = error_text(&reason),
                suppressed = (suppressed > 0).then_some(suppressed),
                "message given up, publishing dead letter"
            );
        }
        let letter = DeadLetter {
            reason,
            consumer: consumer.clone(),
            attempts,
            at: self.clock.wall(),
        };
        let mut failures = 0;
        loop {
            if self.stop.is_cancelled() {
                return self.counters.released();
            }
            {
                let Some(_running) = HandlerGuard::begin(&*message.receipt) else {
                    return self.counters.released();
                };
                match message.receipt.publish_dead_letter(&letter).await {
                    Ok(()) => {
                        failpoint::hit("consume_dead");
                        self.counters.dead(event_id.is_some());
                        return self.acknowledge(message).await;
                    }
                    Err(error) => {
                        if let Some(suppressed) = self.allow(&self.limits.unpublished) {
                            tracing::warn!(
                                consumer,
                                error,
                                suppressed = (suppressed > 0).then_some(suppressed),
                                "dead letter not published, will retry"
                            );
                        }
                    }
                }
            }
            failures += 1;
            let delay = reconnect_policy().delay(failures, fastrand::f64());
            if !self.wait(delay.unwrap_or_default()).await {
                return self.counters.released();
            }
        }
    }
}
