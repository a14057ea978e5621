//! Sends the rows of one destination: each in its turn, no more at once than the destination bears,
//! and none while its gate is closed.
//!
//! One task per destination, which owns its queues, its gate and its attempts: nothing here is locked,
//! and a destination that hangs holds up nobody else. What came of an attempt is decided here and
//! handed to the settler in bulk.
//!
//! On shutdown it gives back what was never sent, waits for what is under target until the grace time is
//! over, and then drops it; those attempts count, because nobody knows what became of them.
//!
//! **If we die here** leases end. What was under target may be sent again; what waited was never sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use pillarbox::{Outcome, failpoint};
use pillarbox_store::Verdict;
use pillarbox_store::store::Settlement;
use pillarbox_store::verdict::decide;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::dispatcher::Destination;
use crate::policy::OnDead;
use crate::send::attempt::{End, attempt, check};
use crate::send::backpressure::Crowd;
use crate::send::breaker::{Gate, LONGEST_THROTTLE, SHORTEST_THROTTLE, Sign};
use crate::send::handle::Queue;
use crate::send::key_queues::{Key, KeyQueues, Row, Ticket};
use crate::send::lost_connections::{LostConnection, LostConnections};
use crate::send::rate_limit::TokenBucket;
use crate::settle::settler::{Settled, hand_over, release};
use crate::worker::Worker;
use crate::worker::task::{LONG, Next, Task};

/// The longest that a check may take; a destination's own timeout may be shorter.
const CHECK: Duration = Duration::from_secs(5);
/// How often to look whether rows have waited too long.
const LOOK: Duration = Duration::from_secs(1);
/// How many finished attempts are looked at together.
const AT_ONCE: usize = 1024;

/// One destination at work. See the module.
pub(crate) struct Lanes {
    worker: Arc<Worker>,
    destination: Destination,
    shutdown: CancellationToken,
    /// When attempts under target are dropped; set when the shutdown is noticed.
    give_up: Option<Duration>,

    inbox: UnboundedReceiver<Vec<Row>>,
    /// Is the claimer still there?
    is_fed: bool,
    queues: KeyQueues,
    gate: Gate,
    sign: Sign,
    crowd: Crowd,
    queue: Queue,
    bucket: Option<TokenBucket>,

    running: FuturesUnordered<BoxFuture<'static, (u64, End)>>,
    under_way: HashMap<u64, UnderWay>,
    started: u64,

    checking: Option<BoxFuture<'static, Result<(), String>>>,
    lost: LostConnections,
    heard: Heard,

    settler: UnboundedSender<Vec<Settled>>,
    settled: Vec<Settled>,
}

/// What came in while the task waited.
#[derive(Default)]
struct Heard {
    rows: Vec<Row>,
    ends: Vec<(u64, End)>,
    checked: Option<Result<(), String>>,
}

/// What belongs to one destination beside its sink.
pub(crate) struct Station {
    pub(crate) gate: Gate,
    pub(crate) crowd: Crowd,
    pub(crate) queue: Queue,
    pub(crate) inbox: UnboundedReceiver<Vec<Row>>,
}

struct UnderWay {
    ticket: Ticket,
    /// Was nothing else under target when it began?
    began_alone: bool,
}

impl Lanes {
    pub(crate) fn new(
        worker: Arc<Worker>,
        destination: Destination,
        station: Station,
        settler: UnboundedSender<Vec<Settled>>,
        shutdown: CancellationToken,
    ) -> Self {
        let Station {
            gate,
            crowd,
            queue,
            inbox,
        } = station;
        let bucket = destination.rate.map(|rate| TokenBucket::new(rate, worker.now()));
        let sign = gate.sign();
        Self {
            worker,
            destination,
            shutdown,
            give_up: None,
            inbox,
            is_fed: true,
            queues: KeyQueues::default(),
            gate,
            sign,
            crowd,
            queue,
            bucket,
            running: FuturesUnordered::new(),
            under_way: HashMap::new(),
            started: 0,
            checking: None,
            lost: LostConnections::default(),
            heard: Heard::default(),
            settler,
            settled: Vec::new(),
        }
    }

    /// Takes in what was heard: new rows, finished attempts, an answered check.
    fn take_in(&mut self, now: Duration) {
        let Heard { rows, ends, checked } = std::mem::take(&mut self.heard);
        for row in rows {
            self.queues.push(row);
        }
        for (number, end) in ends {
            if let Some(row) = self.under_way.remove(&number) {
                let alone = row.began_alone && number == self.started;
                self.end(row.ticket, end, alone, now);
            }
        }
        if let Some(answer) = checked {
            self.checked(answer, now);
        }
    }

    fn end(&mut self, ticket: Ticket, end: End, alone: bool, now: Duration) {
        match end {
            End::Answered(Outcome::ConnectionLost { reason }) => {
                let cut = LostConnection {
                    ticket,
                    reason,
                    alone,
                };
                self.lost.push(cut, now);
            }
            End::Answered(outcome) => self.conclude(ticket, outcome, now),
            End::Unsent => self.settle(ticket, release()),
            End::Lost => self.lose(&ticket),
        }
    }

    /// Decides what follows from an outcome, for the gate and for the row.
    fn conclude(&mut self, ticket: Ticket, outcome: Outcome, now: Duration) {
        let random = fastrand::f64();
        let outcome = match outcome {
            Outcome::Throttled { reason, after } => {
                let after = after.map(|after| after.clamp(SHORTEST_THROTTLE, LONGEST_THROTTLE));
                self.gate.throttled(&reason, after, now, random);
                Outcome::Throttled { reason, after }
            }
            Outcome::Unavailable { reason } => {
                self.gate.unavailable(&reason, now, random);
                Outcome::Unavailable { reason }
            }
            Outcome::Disable { reason } => {
                if self.gate.gone(&reason) {
                    self.worker.is_gone(&self.destination.name, &reason);
                }
                Outcome::Disable { reason }
            }
            Outcome::Delivered => {
                self.gate.delivered();
                Outcome::Delivered
            }
            other @ (Outcome::Retry { .. } | Outcome::Reject { .. } | Outcome::ConnectionLost { .. }) => {
                other
            }
        };
        let closed = self.closed_for(now);
        let verdict = decide(outcome, ticket.attempts, &ticket.policy.retry, closed, random);
        self.settle(ticket, verdict);
    }

    /// It is known now whether the place is there.
    fn checked(&mut self, answer: Result<(), String>, now: Duration) {
        self.gate.checked(answer.clone(), now, fastrand::f64());
        for LostConnection {
            ticket,
            reason,
            alone,
        } in self.lost.take()
        {
            let outcome = match &answer {
                Err(why) if !alone => Outcome::unavailable(format!("{reason}; the check says: {why}")),
                Err(_) | Ok(()) => Outcome::connection_lost(reason),
            };
            self.conclude(ticket, outcome, now);
        }
        // A row that was alone is to blame; that nobody is there is true all the same.
        if let Err(reason) = answer {
            self.gate.unavailable(&reason, now, fastrand::f64());
        }
    }

    /// Asks for a check when the gate or a cut wants one.
    fn ask(&mut self, now: Duration) {
        let wanted = self.check_at().is_some_and(|at| at <= now);
        if wanted && self.checking.is_none() {
            let timeout = self.destination.policy.timeout.min(CHECK);
            self.checking = Some(Box::pin(check(Arc::clone(&self.destination.sink), timeout)));
        }
    }

    fn check_at(&self) -> Option<Duration> {
        let cut = self.lost.check_at(self.running.len());
        cut.into_iter().chain(self.gate.check_at()).min()
    }

    /// Gives back what waits if it cannot be sent: the gate is closed, or we are leaving. Nobody claims it while
    /// the gate is closed, so that it need not wait for a time.
    fn give_back(&mut self) {
        if self.give_up.is_none() && self.gate.is_open() {
            return;
        }
        let rows = self.queues.drain();
        if self.give_up.is_some() && !rows.is_empty() {
            failpoint::hit("on_release");
        }
        self.queue.went(rows.len());
        for row in rows {
            self.push(row.ticket, release());
        }
    }

    /// Gives back what would take the room of other destinations for long.
    fn make_room(&mut self, now: Duration) {
        let rows = self.queues.len() + self.running.len();
        if !self.crowd.is_crowded(rows, self.queues.oldest(), now) {
            return;
        }
        let surplus = self.queues.surplus(self.destination.concurrency);
        self.queue.went(surplus.len());
        for row in surplus {
            self.push(row.ticket, release());
        }
    }

    /// How long a row has to wait that was sent for nothing, with a little jitter so that not everything comes
    /// back in the same moment.
    fn closed_for(&self, now: Duration) -> Duration {
        match self.gate.sign().closed(now) {
            Some(wait) => wait + (wait / 10).min(Duration::from_secs(5)).mul_f64(fastrand::f64()),
            None => Duration::ZERO,
        }
    }

    /// Starts what may be started.
    fn start(&mut self, now: Duration) {
        // After a cut nothing is sent until it is known whether anybody is there.
        if !self.gate.is_open() || !self.lost.is_empty() || self.give_up.is_some() {
            return;
        }
        while self.running.len() < self.destination.concurrency && self.queues.has_ready() {
            if self.bucket.as_mut().is_some_and(|bucket| !bucket.take(now)) {
                return;
            }
            let Some(row) = self.queues.next() else { return };
            self.queue.went(1);
            self.started += 1;
            let number = self.started;
            let under_way = UnderWay {
                ticket: row.ticket.clone(),
                began_alone: self.running.is_empty(),
            };
            self.under_way.insert(number, under_way);
            let attempt = attempt(
                row,
                Arc::clone(&self.destination.sink),
                Arc::clone(&self.worker.clock),
            );
            self.running
                .push(Box::pin(async move { (number, attempt.await) }));
        }
    }

    /// Drops what is still under target when the grace time is over.
    fn drop_late(&mut self, now: Duration) {
        if self.give_up.is_none_or(|at| now < at) {
            return;
        }
        self.running.clear();
        self.checking = None;
        for row in std::mem::take(&mut self.under_way).into_values() {
            let outcome = Outcome::retry("shut down before the destination answered");
            self.conclude(row.ticket, outcome, now);
        }
        for cut in self.lost.take() {
            self.conclude(cut.ticket, Outcome::connection_lost(cut.reason), now);
        }
    }

    /// Writes a verdict, and gives back what waits behind the row if it comes again.
    fn settle(&mut self, ticket: Ticket, verdict: Verdict) {
        let key = ticket.key.clone();
        let blocks = match &verdict {
            Verdict::Delivered | Verdict::Delete => false,
            // Also where the others go on without it: not before it is written, or a crash could bring it back
            // after them.
            Verdict::Dead { .. } => true,
            Verdict::Retry { .. } | Verdict::Release { .. } | Verdict::Suspect { .. } => true,
        };
        self.push(ticket, verdict);
        match key {
            None => {}
            Some(key) if blocks => self.give_back_behind(&key),
            Some(key) => self.queues.done(&key),
        }
    }

    /// The row is somebody else's now: nothing is settled.
    fn lose(&mut self, ticket: &Ticket) {
        tracing::debug!(row = %ticket.id, "the lease ended while the row was being sent");
        self.worker.counters.lost(1);
        self.worker
            .in_flight
            .answered(std::iter::once((ticket.lease.claim, ticket.id)));
        self.worker.in_flight.free(ticket.room);
        if let Some(key) = &ticket.key {
            self.give_back_behind(key);
        }
    }

    /// What waits behind a row that comes again, or blocks its key. The store sees to it that none overtakes it.
    fn give_back_behind(&mut self, key: &Key) {
        let behind = self.queues.blocked(key);
        self.queue.went(behind.len());
        for row in behind {
            self.push(row.ticket, release());
        }
    }

    fn push(&mut self, ticket: Ticket, verdict: Verdict) {
        let goes_on = ticket.policy.on_dead == OnDead::Continue;
        let settlement = Settlement {
            id: ticket.id,
            claim: ticket.lease.claim,
            max_attempts: (verdict != Verdict::Delivered).then(|| ticket.policy.limit()),
            unordered: goes_on && matches!(verdict, Verdict::Dead { .. }),
            destination: (!ticket.knows_destination).then(|| self.destination.name.clone()),
            verdict,
        };
        let room = ticket.room;
        self.settled.push(Settled { settlement, room });
    }

    /// Hands everything to the settler at once.
    fn hand_over(&mut self) {
        hand_over(&self.worker, &self.settler, std::mem::take(&mut self.settled));
    }

    /// Has an attempt ended already?
    fn hears_at_once(&mut self) -> bool {
        let ended = next_ready(&mut self.running).now_or_never().flatten();
        self.heard.ends = ended.unwrap_or_default();
        !self.heard.ends.is_empty()
    }

    fn is_done(&self) -> bool {
        self.give_up.is_some() && !self.is_fed && self.running.is_empty() && self.lost.is_empty()
    }

    fn next(&self, now: Duration) -> Next {
        if self.is_done() {
            return Next::Done;
        }
        let check = self.check_at().filter(|_| self.checking.is_none());
        // Time makes a crowd, also where nothing else happens.
        let crowd = (self.queues.len() > 0).then(|| now + LOOK);
        let limited = self.gate.is_open() && self.queues.has_ready();
        let token = self.bucket.as_ref().filter(|_| limited).map(TokenBucket::next);
        let wake = check
            .into_iter()
            .chain(self.give_up)
            .chain(crowd)
            .chain(token)
            .min();
        match wake.map(|at| at.saturating_sub(now)) {
            Some(Duration::ZERO) if self.give_up.is_none() && check.is_some_and(|at| at <= now) => {
                Next::Again
            }
            Some(wait) => Next::Wait(wait.max(Duration::from_millis(1))),
            None => Next::Wait(LONG),
        }
    }
}

impl Task for Lanes {
    async fn tick(&mut self) -> Next {
        let now = self.worker.now();
        if self.give_up.is_none() && self.shutdown.is_cancelled() {
            self.give_up = Some(now + self.worker.settings.grace);
        }
        let was_open = self.gate.is_open();
        self.gate.look_at_sign();
        // An attempt may be answered as soon as it begins, and the next of its key may go: what came of them all is
        // handed over together.
        for _ in 0..AT_ONCE {
            self.take_in(now);
            self.drop_late(now);
            self.ask(now);
            self.give_back();
            self.make_room(now);
            self.start(now);
            if !self.hears_at_once() {
                break;
            }
        }
        self.hand_over();
        if !was_open && self.gate.is_open() {
            // What was left where it is may be claimed again.
            self.worker.backlogs.stir(false);
        }
        if !self.heard.ends.is_empty() {
            return Next::Again;
        }
        self.next(now)
    }

    async fn listen(&mut self) {
        let heard = &mut self.heard;
        tokio::select! {
            biased;
            () = self.shutdown.cancelled(), if self.give_up.is_none() => {}
            Some(ends) = next_ready(&mut self.running), if !self.running.is_empty() => heard.ends = ends,
            rows = self.inbox.recv(), if self.is_fed => match rows {
                Some(rows) => heard.rows = rows,
                None => self.is_fed = false,
            },
            () = self.sign.changed() => {}
            answer = answered(&mut self.checking) => {
                self.checking = None;
                heard.checked = Some(answer);
            }
        }
    }
}

/// The attempts that have finished, as soon as there is one. Safe to cancel: what is ready is handed
/// over in the same poll.
async fn next_ready(
    running: &mut FuturesUnordered<BoxFuture<'static, (u64, End)>>,
) -> Option<Vec<(u64, End)>> {
    running.ready_chunks(AT_ONCE).next().await
}

async fn answered(checking: &mut Option<BoxFuture<'static, Result<(), String>>>) -> Result<(), String> {
    match checking {
        Some(check) => check.await,
        None => std::future::pending().await,
    }
}
