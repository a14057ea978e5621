//! One attempt, and the attempts that are running at one destination.
//!
//! No send starts after its lease has expired, by a clock that counts suspension. A running send stops when it expires.
//! A sink that hangs or panics costs its own row one attempt, and other rows nothing.
//!
//! **If we die here** the event may have arrived. Its lease expires, and it is sent again.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use pillarbox::{Clock, Outcome, Sink, failpoint};

use crate::send::batch::Batch;
use crate::send::key_queues::{Row, Ticket};
use crate::send::streak::Part;

/// How often a long attempt checks its lease.
pub(crate) const LEASE_CHECK: Duration = Duration::from_secs(1);
/// How many ended attempts are taken together.
pub(crate) const MOST_ENDED: usize = 1024;

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The sink answered, panicked or timed out.
    Answered(Outcome),
    /// The lease had expired before the send began.
    Unsent,
    /// The lease expired during the send: the row is not ours to settle.
    Lost,
}

/// An attempt that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ticket: Ticket,
    pub(crate) end: End,
    /// Which part of the destination it was sent to, where that depends on the event and is of interest.
    pub(crate) part: Option<Part>,
    /// Was no other attempt running here, from its beginning to its end?
    pub(crate) alone: bool,
}

/// What all attempts at one destination share.
pub(crate) struct Context {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Attempts that ended since the sender last looked, by number.
    ended: Mutex<Vec<(u64, End, Option<Part>)>>,
}

impl Context {
    /// An attempt has ended. The part of a delivered row is reported only if it is `wanted`.
    pub(crate) fn end(&self, number: u64, row: &Row, end: End, wanted: bool) {
        let is_delivered = end == End::Answered(Outcome::Delivered);
        if is_delivered {
            failpoint::hit("after_send");
        }
        let is_wanted = wanted || !is_delivered;
        let part = is_wanted.then(|| part(row, self.sink.as_ref())).flatten();
        self.ended().push((number, end, part));
    }

    fn ended(&self) -> MutexGuard<'_, Vec<(u64, End, Option<Part>)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attempts that are running at one destination.
pub(crate) struct Attempts {
    context: Arc<Context>,
    /// Calls of the sink, each for one row or for several.
    calls: FuturesUnordered<BoxFuture<'static, ()>>,
    tickets: HashMap<u64, (Ticket, bool)>,
    /// How many were started: the number of the last.
    started: u64,
}

impl Attempts {
    pub(crate) fn new(sink: Arc<dyn Sink>, clock: Arc<dyn Clock>) -> Self {
        let context = Context {
            sink,
            clock,
            ended: Mutex::default(),
        };
        Self {
            context: Arc::new(context),
            calls: FuturesUnordered::new(),
            tickets: HashMap::new(),
            started: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Starts the attempts of some rows, in one call of the sink. The parts of delivered rows are reported only if they are
    /// `wanted`.
    pub(crate) fn start(&mut self, mut rows: Vec<Row>, wanted: bool) {
        let context = Arc::clone(&self.context);
        if rows.len() > 1 {
            let rows = rows.into_iter().map(|row| (self.add(&row, false), row));
            let batch = Batch::new(rows.collect(), context, wanted);
            self.calls.push(Box::pin(batch.run()));
        } else if let Some(row) = rows.pop() {
            let number = self.add(&row, self.is_empty());
            self.calls.push(Box::pin(async move {
                let end = attempt(&row, &context).await;
                context.end(number, &row, end, wanted);
            }));
        }
    }

    fn add(&mut self, row: &Row, began_alone: bool) -> u64 {
        self.started += 1;
        self.tickets
            .insert(self.started, (row.ticket.clone(), began_alone));
        self.started
    }

    /// Attempts that ended, as soon as there is one; `None` if none is running.
    ///
    /// Safe to cancel: ended attempts are returned by the poll that takes them.
    pub(crate) async fn ended(&mut self) -> Option<Vec<Ended>> {
        let ended = std::future::poll_fn(|cx| {
            let mut polled = self.calls.poll_next_unpin(cx);
            for _ in 1..MOST_ENDED {
                if !matches!(polled, Poll::Ready(Some(()))) {
                    break;
                }
                polled = self.calls.poll_next_unpin(cx);
            }
            // A call of several rows reports the first end long before it returns.
            let ended = std::mem::take(&mut *self.context.ended());
            match polled {
                _ if !ended.is_empty() => Poll::Ready(Some(ended)),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Ready(Some(())) | Poll::Pending => Poll::Pending,
            }
        });
        let ended = ended.await?.into_iter().filter_map(|(number, end, part)| {
            let (ticket, began_alone) = self.tickets.remove(&number)?;
            let alone = began_alone && number == self.started;
            Some(Ended {
                ticket,
                end,
                part,
                alone,
            })
        });
        Some(ended.collect())
    }

    /// Drops all attempts.
    pub(crate) fn drop_all(&mut self) -> Vec<Ticket> {
        self.calls.clear();
        let tickets = std::mem::take(&mut self.tickets).into_values();
        tickets.map(|(ticket, _)| ticket).collect()
    }
}

/// Makes one attempt. Safe to cancel if the sink is.
pub(crate) async fn attempt(row: &Row, context: &Context) -> End {
    let timeout = row.ticket.policy.timeout;
    if row.ticket.left(context.clock.boot()).is_zero() {
        return End::Unsent;
    }
    failpoint::hit("before_send");
    failpoint::about_to_send(row.delivery.event.event_type.as_deref());
    let deliver = AssertUnwindSafe(context.sink.deliver(&row.delivery)).catch_unwind();
    tokio::pin!(deliver);
    let mut time = timeout;
    loop {
        let left = row.ticket.left(context.clock.boot());
        if left.is_zero() {
            return End::Lost;
        }
        if time.is_zero() {
            return End::Answered(timed_out(timeout));
        }
        let wait = time.min(left).min(LEASE_CHECK);
        match tokio::time::timeout(wait, &mut deliver).await {
            Ok(Ok(outcome)) => return End::Answered(outcome),
            Ok(Err(panic)) => return End::Answered(Outcome::retry(describe(panic.as_ref()))),
            Err(_) => time = time.saturating_sub(wait),
        }
    }
}

/// The outcome of an attempt that took too long.
pub(crate) fn timed_out(timeout: Duration) -> Outcome {
    Outcome::retry(format!("timeout: no answer within {timeout:?}"))
}

/// May the row be sent with others?
pub(crate) fn can_batch(row: &Row, sink: &dyn Sink) -> bool {
    catch_unwind(AssertUnwindSafe(|| sink.can_batch(&row.delivery))).unwrap_or(false)
}

/// The part of the destination that a row is sent to, where that depends on the event.
pub(crate) fn part(row: &Row, sink: &dyn Sink) -> Option<Part> {
    let name = catch_unwind(AssertUnwindSafe(|| sink.part(&row.delivery)));
    Some(Part::named(&name.ok()??))
}

/// Makes one health check. A check that hangs or panics has failed.
pub(crate) async fn check(sink: Arc<dyn Sink>, timeout: Duration) -> Result<(), String> {
    let check = AssertUnwindSafe(sink.check()).catch_unwind();
    match tokio::time::timeout(timeout, check).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(describe(panic.as_ref())),
        Err(_) => Err(format!("timeout: health check not answered within {timeout:?}")),
    }
}

fn describe(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the sink panicked: {}", text.unwrap_or("(without a message)"))
}
