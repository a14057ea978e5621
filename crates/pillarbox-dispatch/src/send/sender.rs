//! Sends the rows of one destination: in the order of their keys, within its concurrency and rate, while its breaker is
//! closed.
//!
//! One task per destination owns its queues, its breaker and its attempts. Nothing here is locked, and a destination that
//! hangs delays no other. The sender decides what follows from an outcome and passes it to the settler in bulk.
//!
//! On shutdown it releases rows whose attempt has not begun, and waits for running attempts until the grace time is over.
//! Then it drops them. Dropped attempts count, because their result is unknown.
//!
//! **If we die here** leases expire. Rows that were being sent may be sent again; waiting rows were never sent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pillarbox::{Outcome, StoreError, failpoint};
use pillarbox_store::Verdict;
use pillarbox_store::store::{BreakerState, OpenBreaker, Settlement};
use pillarbox_store::verdict::decide;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::destination::Destination;
use crate::metrics::{Attempted, DestinationMetrics, Measure};
use crate::policy::OnDead;
use crate::send::attempt::{Attempts, End, Ended, MOST_ENDED, can_batch, check, part};
use crate::send::backpressure::Backpressure;
use crate::send::breaker::{Breaker, LONGEST_THROTTLE, SHORTEST_THROTTLE};
use crate::send::delivery_log::DeliveryLog;
use crate::send::handle::{DestinationHandle, Shared};
use crate::send::key_queues::{Key, KeyQueues, Row, Ticket};
use crate::send::lost_connections::{Blame, LostConnection, LostConnections};
use crate::send::rate_limit::TokenBucket;
use crate::send::streak::{Part, Subject};
use crate::send::throttled_parts::ThrottledParts;
use crate::settle::settler::{Decided, hand_over, release};
use crate::worker::Worker;
use crate::worker::task::{LONG, Next, Task};

/// The longest that a health check may take; a destination's own timeout may be shorter.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to see whether rows have waited too long.
const BACKPRESSURE_CHECK: Duration = Duration::from_secs(1);
/// How long a part of a destination is left alone that asks us to wait and names no time.
const PART_THROTTLE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Sender {
    worker: Arc<Worker>,
    destination: Destination,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
    /// When running attempts are dropped; set when the shutdown is noticed.
    drop_at: Option<Duration>,

    incoming: UnboundedReceiver<Vec<Row>>,
    /// Is the row channel still open?
    is_open: bool,
    queues: KeyQueues,
    breaker: Breaker,
    /// The breaker's state that the heartbeat reports.
    reported: Option<(BreakerState, Duration)>,
    backpressure: Backpressure,
    rate_limit: Option<TokenBucket>,
    attempts: Attempts,
    checking: Option<BoxFuture<'static, Result<(), String>>>,
    lost: LostConnections,
    throttled_parts: ThrottledParts,
    log: DeliveryLog,
    heard: Heard,

    metrics: Arc<DestinationMetrics>,
    settler: UnboundedSender<Vec<Decided>>,
    decided: Vec<Decided>,
}

/// What arrived while the task waited.
#[derive(Default)]
struct Heard {
    rows: Vec<Row>,
    ended: Vec<Ended>,
    checked: Option<Result<(), String>>,
}

impl Sender {
    /// The sender of one of `destinations` that share the room of a worker, and the handle to it.
    pub(crate) fn new(
        worker: Arc<Worker>,
        destination: Destination,
        destinations: usize,
        settler: UnboundedSender<Vec<Decided>>,
        shutdown: CancellationToken,
    ) -> (DestinationHandle, Self) {
        let (rows, incoming) = unbounded_channel();
        let backpressure = Backpressure::new(&destination, destinations, &worker.settings);
        let handle = DestinationHandle::new(&destination, backpressure.window(), rows);
        let sender = Self {
            shared: handle.shared(),
            shutdown,
            drop_at: None,
            incoming,
            is_open: true,
            queues: KeyQueues::default(),
            breaker: Breaker::new(destination.name.clone()),
            reported: None,
            backpressure,
            rate_limit: destination.rate.map(|rate| TokenBucket::new(rate, worker.now())),
            attempts: Attempts::new(Arc::clone(&destination.sink), Arc::clone(&worker.clock)),
            checking: None,
            lost: LostConnections::default(),
            throttled_parts: ThrottledParts::default(),
            log: DeliveryLog::new(destination.name.clone()),
            heard: Heard::default(),
            metrics: worker.metrics.destination(&destination.name),
            settler,
            decided: Vec::new(),
            worker,
            destination,
        };
        (handle, sender)
    }

    fn update_pause(&mut self) {
        let resumed = self.shared.take_resumed();
        self.breaker.set_paused(self.shared.is_paused());
        if resumed {
            self.breaker.resumed();
        }
    }

    /// Takes new rows, ended attempts and an answered health check.
    fn take_heard(&mut self, now: Duration) {
        let Heard { rows, ended, checked } = std::mem::take(&mut self.heard);
        for mut row in rows {
            let namespace = &row.delivery.event.namespace;
            row.ticket.keep = self.worker.settings.retention.keeps(namespace);
            self.queues.push(row);
        }
        for attempt in ended {
            self.end(attempt, now);
        }
        if let Some(answer) = checked {
            self.checked(answer, now);
        }
    }

    fn end(&mut self, ended: Ended, now: Duration) {
        let Ended {
            ticket,
            end,
            part,
            alone,
        } = ended;
        let mut lose = |ticket, reason, blame| {
            let lost = LostConnection {
                ticket,
                reason,
                part,
                blame,
            };
            self.lost.push(lost, now);
        };
        match end {
            End::Answered(Outcome::ConnectionLost { reason }) if alone => lose(ticket, reason, Blame::Alone),
            End::Answered(Outcome::ConnectionLost { reason }) => lose(ticket, reason, Blame::Shared),
            End::Answered(Outcome::ConnectFailed { reason }) => lose(ticket, reason, Blame::Innocent),
            End::Answered(outcome) => self.conclude(ticket, part, outcome, now),
            End::Unsent => self.settle(ticket, release(), now),
            End::Lost => self.lose(&ticket),
        }
    }

    /// Decides what follows from an outcome, for the breaker and for the row.
    fn conclude(&mut self, ticket: Ticket, part: Option<Part>, mut outcome: Outcome, now: Duration) {
        self.metrics.attempted(Attempted::from(&outcome));
        let random = fastrand::f64();
        let subject = || Subject::of(&ticket, part);
        match &mut outcome {
            Outcome::Throttled { reason, after } => {
                *after = after.map(|after| after.clamp(SHORTEST_THROTTLE, LONGEST_THROTTLE));
                self.breaker.throttled(reason, *after, now, random);
            }
            Outcome::ThrottledPart { after, .. } => {
                let wait = after.unwrap_or(PART_THROTTLE);
                let wait = wait.clamp(SHORTEST_THROTTLE, LONGEST_THROTTLE);
                *after = Some(wait);
                if let Some(part) = part {
                    self.throttled_parts.throttle(part, now + wait, now);
                }
            }
            Outcome::Unavailable { reason } => self.breaker.unavailable(reason, now, random),
            Outcome::Disable { reason } => {
                if self.breaker.disable(reason) {
                    self.worker.disable(&self.destination.name, reason);
                }
            }
            Outcome::Delivered => {
                self.breaker.delivered();
                if self.breaker.remembers() {
                    self.breaker.arrived(subject());
                }
            }
            Outcome::Reject { .. } => self.breaker.arrived(subject()),
            Outcome::Retry { reason, .. }
            | Outcome::ConnectionLost { reason }
            | Outcome::ConnectFailed { reason } => {
                self.breaker.failed(subject(), reason, now, random);
                // The same part failed twice. The other parts are tried before it, and its other rows use no attempt.
                if let Some(part) = part.filter(|_| self.breaker.is_half_open()) {
                    self.throttled_parts.throttle(part, now + PART_THROTTLE, now);
                }
            }
        }
        let wait = self.wait(now);
        let verdict = decide(outcome, ticket.attempts, &ticket.policy.retry, wait, random);
        self.settle(ticket, verdict, now);
    }

    /// How long a row waits that its destination did not take. Jitter keeps all of them from coming back at the same moment.
    fn wait(&self, now: Duration) -> Duration {
        match self.breaker.wait(now) {
            Some(wait) => wait + (wait / 10).min(Duration::from_secs(5)).mul_f64(fastrand::f64()),
            None => Duration::ZERO,
        }
    }

    /// A health check ended: the cause of lost connections is known now.
    fn checked(&mut self, answer: Result<(), String>, now: Duration) {
        self.metrics.set_up(answer.is_ok());
        self.breaker.checked(answer.clone(), now, fastrand::f64());
        for lost in self.lost.take() {
            let (ticket, part, outcome) = lost.outcome(&answer);
            self.conclude(ticket, part, outcome, now);
        }
        // Also where the only row was alone and is to blame: the destination is unavailable all the same.
        if let Err(error) = answer {
            self.breaker.unavailable(&error, now, fastrand::f64());
        }
    }

    /// Starts a health check if the breaker or a lost connection needs one.
    fn start_check(&mut self, now: Duration) {
        let is_due = self.check_at().is_some_and(|at| at <= now);
        if is_due && self.checking.is_none() {
            let timeout = self.destination.policy.timeout.min(CHECK_TIMEOUT);
            self.checking = Some(Box::pin(check(Arc::clone(&self.destination.sink), timeout)));
        }
    }

    fn check_at(&self) -> Option<Duration> {
        let lost = self.lost.check_at(self.attempts.len());
        lost.into_iter().chain(self.breaker.check_at()).min()
    }

    /// Releases all waiting rows if none can be sent. They are due at once: the claimer leaves them until the
    /// destination is available.
    fn release_waiting(&mut self) {
        if self.shared.is_quiet() {
            let ordinary = self.queues.drain_ordinary();
            self.release(ordinary);
        }
        if self.drop_at.is_none() && !self.breaker.holds() {
            return;
        }
        let rows = self.queues.drain();
        if self.drop_at.is_some() && !rows.is_empty() {
            failpoint::hit("on_release");
        }
        self.release(rows);
    }

    /// Releases rows that would wait for long, and take the room of other destinations.
    fn release_surplus(&mut self, now: Duration) {
        self.backpressure.update(self.queues.ready_since(), now);
        let window = self.backpressure.window();
        self.shared.set_window(window);
        if self.queues.len() > window && self.queues.ready_since().is_some() {
            let surplus = self.queues.surplus(window);
            self.release(surplus);
        }
    }

    /// Starts the attempts that may start. Rows that follow each other and may be sent together are one batch.
    fn start(&mut self, now: Duration) {
        let wanted = self.breaker.remembers();
        let mut batch: Vec<Row> = Vec::new();
        while let Some(row) = self.next_to_send(batch.len(), now) {
            let fits = can_batch(&row, self.destination.sink.as_ref());
            let has_same_timeout = |first: &Row| first.ticket.policy.timeout == row.ticket.policy.timeout;
            // A row of a key never starts before an earlier one.
            if !fits || !batch.first().is_none_or(has_same_timeout) {
                self.attempts.start(std::mem::take(&mut batch), wanted);
            }
            if fits {
                batch.push(row);
            } else {
                self.attempts.start(vec![row], wanted);
            }
        }
        self.attempts.start(batch, wanted);
    }

    /// The next row to send beside so many that are about to start, if it may start now.
    fn next_to_send(&mut self, starting: usize, now: Duration) -> Option<Row> {
        // After a lost connection nothing is sent until a health check has shown the cause.
        if !self.lost.is_empty() || self.drop_at.is_some() {
            return None;
        }
        let most = self.breaker.concurrency(self.destination.concurrency);
        while self.attempts.len() + starting < most && self.queues.has_ready() {
            if self.breaker.is_half_open() {
                // Spreads the attempts that an outage costs over all events, so that none ends dead because of it.
                self.queues.prefer_fewest_attempts();
            }
            if self.rate_limit.as_mut().is_some_and(|limit| !limit.take(now)) {
                return None;
            }
            let ready = self.queues.ready_since().unwrap_or(now);
            let row = self.queues.next()?;
            let Some(wait) = self.throttle(&row, now) else {
                self.backpressure.sent(now.saturating_sub(ready));
                self.shared.begins(now);
                return Some(row);
            };
            if let Some(limit) = &mut self.rate_limit {
                limit.give_back();
            }
            self.shared.released(1);
            self.hold(row, wait);
        }
        None
    }

    /// How long the row's part of the destination asks us to wait.
    fn throttle(&self, row: &Row, now: Duration) -> Option<Duration> {
        if self.throttled_parts.is_empty() {
            return None;
        }
        let part = part(row, self.destination.sink.as_ref())?;
        self.throttled_parts.wait(part, now)
    }

    /// Releases a row that must not be sent yet, and the rows of its key behind it.
    fn hold(&mut self, row: Row, wait: Duration) {
        let behind = self.queues.unsent(&row);
        let verdict = Verdict::Release {
            after: wait,
            reason: None,
        };
        self.push(row.ticket, verdict);
        self.release(behind);
    }

    /// Drops what is still running when the grace time is over.
    fn drop_late(&mut self, now: Duration) {
        if self.drop_at.is_none_or(|at| now < at) {
            return;
        }
        self.checking = None;
        for ticket in self.attempts.drop_all() {
            let outcome = Outcome::retry("shut down before the destination answered");
            self.conclude(ticket, None, outcome, now);
        }
        for lost in self.lost.take() {
            let (ticket, part, outcome) = lost.outcome(&Ok(()));
            self.conclude(ticket, part, outcome, now);
        }
    }

    /// Settles a row. If it comes back or blocks its key, the rows behind it are released.
    fn settle(&mut self, ticket: Ticket, verdict: Verdict, now: Duration) {
        self.log.settled(&ticket, &verdict, now);
        let key = ticket.key.clone();
        let blocks = match &verdict {
            Verdict::Delivered | Verdict::Delete => false,
            // Also with `OnDead::Continue`: the next row must not go before this verdict is written, because a crash
            // would bring this row back after it.
            Verdict::Dead { .. } => {
                self.worker.dead_events.add(ticket.event_id, now);
                true
            }
            Verdict::Retry { .. } | Verdict::Release { .. } | Verdict::Suspect { .. } => true,
        };
        self.push(ticket, verdict);
        match key {
            None => {}
            Some(key) if blocks => self.release_behind(&key),
            Some(key) => self.queues.done(&key),
        }
    }

    /// Another worker may have the row: nothing is settled.
    fn lose(&mut self, ticket: &Ticket) {
        tracing::debug!(row = %ticket.id, "lease expired during the attempt");
        self.metrics.attempted(Attempted::Lost);
        self.worker.lost(1);
        self.worker
            .in_flight
            .decided(std::iter::once((ticket.lease.claim, ticket.id)));
        self.worker.in_flight.free([(ticket.lease.claim, ticket.room)]);
        if ticket.room.suspects > 0 {
            self.shared.suspect_ended();
        }
        if let Some(key) = &ticket.key {
            self.release_behind(key);
        }
    }

    /// Releases the rows behind one that blocks its key. The store lets none of them overtake it.
    fn release_behind(&mut self, key: &Key) {
        let behind = self.queues.blocked(key);
        self.release(behind);
    }

    /// Releases rows that were waiting here.
    fn release(&mut self, rows: Vec<Row>) {
        self.shared.released(rows.len());
        for row in rows {
            self.push(row.ticket, release());
        }
    }

    fn push(&mut self, ticket: Ticket, verdict: Verdict) {
        let leaves_lane = match &verdict {
            Verdict::Dead { .. } => ticket.policy.on_dead == OnDead::Continue,
            Verdict::Retry { .. } | Verdict::Suspect { .. } => ticket.policy.first_attempts_only,
            Verdict::Delivered | Verdict::Delete | Verdict::Release { .. } => false,
        };
        let settlement = Settlement {
            id: ticket.id,
            claim: ticket.lease.claim,
            max_attempts: (verdict != Verdict::Delivered).then(|| ticket.policy.max_attempts()),
            unordered: leaves_lane,
            keep: ticket.keep,
            destination: (!ticket.has_destination).then(|| self.destination.name.clone()),
            verdict,
        };
        let room = ticket.room;
        if room.suspects > 0 {
            self.shared.suspect_ended();
        }
        let metrics = Arc::clone(&self.metrics);
        let measure = Measure::new(metrics, ticket.lease.asked, ticket.created_at);
        self.decided.push(Decided {
            settlement,
            room,
            measure: Some(measure),
        });
    }

    /// Passes the breaker's state to the heartbeat, if it has changed.
    fn report_breaker(&mut self, now: Duration) {
        let state = self.breaker.state();
        if state == self.reported {
            return;
        }
        self.reported = state;
        self.metrics.set_breaker(state.map(|(state, _)| state));
        let breaker = state.map(|(state, since)| OpenBreaker {
            state,
            since: self.worker.clock.wall() - now.saturating_sub(since),
            reason: self.breaker.reason().to_owned(),
        });
        self.shared.set_breaker(breaker);
    }

    /// Has another attempt ended already?
    fn ended_meanwhile(&mut self) -> bool {
        let ended = self.attempts.ended().now_or_never().flatten();
        self.heard.ended = ended.unwrap_or_default();
        !self.heard.ended.is_empty()
    }

    fn is_done(&self) -> bool {
        self.drop_at.is_some() && !self.is_open && self.attempts.is_empty() && self.lost.is_empty()
    }

    fn next(&self, now: Duration) -> Next {
        if !self.heard.ended.is_empty() {
            return Next::Again;
        }
        if self.is_done() {
            return Next::Done;
        }
        let check = self.check_at().filter(|_| self.checking.is_none());
        // Rows become late by time alone.
        let backpressure = (self.queues.len() > 0).then(|| now + BACKPRESSURE_CHECK);
        let is_limited = !self.breaker.holds() && self.queues.has_ready();
        let rate_limit = self.rate_limit.as_ref().filter(|_| is_limited);
        let wake = check
            .into_iter()
            .chain(self.drop_at)
            .chain(backpressure)
            .chain(self.breaker.remind_at())
            .chain(self.log.flush_at())
            .chain(rate_limit.map(TokenBucket::next))
            .min();
        match wake.map(|at| at.saturating_sub(now)) {
            Some(Duration::ZERO) if self.drop_at.is_none() && check.is_some_and(|at| at <= now) => {
                Next::Again
            }
            Some(wait) => Next::Wait(wait.max(Duration::from_millis(1))),
            None => Next::Wait(LONG),
        }
    }
}

impl Task for Sender {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let now = self.worker.now();
        if self.drop_at.is_none() && self.shutdown.is_cancelled() {
            self.drop_at = Some(now + self.worker.settings.grace);
        }
        let before = self.breaker.concurrency(usize::MAX);
        self.update_pause();
        self.queues.set_now(now);
        // An attempt may end as soon as it begins, and the next of its key may start. Their settlements are handed
        // over together.
        for _ in 0..MOST_ENDED {
            self.take_heard(now);
            self.drop_late(now);
            self.start_check(now);
            self.release_waiting();
            self.release_surplus(now);
            self.start(now);
            if !self.ended_meanwhile() {
                break;
            }
        }
        self.shared.set_running(self.attempts.len());
        // Before rows are released: the claimer must not take them again.
        self.shared.set_tripped(self.breaker.is_tripped());
        self.shared.set_half_open(self.breaker.is_half_open());
        self.report_breaker(now);
        hand_over(&self.worker, &self.settler, std::mem::take(&mut self.decided));
        self.breaker.remind(now);
        self.log.flush(now);
        if self.breaker.concurrency(usize::MAX) > before {
            // Rows that were left in the store may be claimed again.
            self.worker.backlogs.recheck(false);
        }
        Ok(self.next(now))
    }

    async fn listen(&mut self) {
        let heard = &mut self.heard;
        tokio::select! {
            biased;
            () = self.shutdown.cancelled(), if self.drop_at.is_none() => {}
            Some(ended) = self.attempts.ended(), if !self.attempts.is_empty() => heard.ended = ended,
            rows = self.incoming.recv(), if self.is_open => match rows {
                Some(rows) => heard.rows = rows,
                None => self.is_open = false,
            },
            () = self.shared.changed() => {}
            answer = answered(&mut self.checking) => {
                self.checking = None;
                heard.checked = Some(answer);
            }
        }
    }
}

async fn answered(checking: &mut Option<BoxFuture<'static, Result<(), String>>>) -> Result<(), String> {
    match checking {
        Some(check) => check.await,
        None => std::future::pending().await,
    }
}
