//! One attempt, and the attempts that are running at one destination.
//!
//! No send starts after its lease has expired, by a clock that counts suspension. A running send stops when it expires.
//! A sink that hangs or panics costs its own row one attempt, and other rows nothing.
//!
//! **If we die here** the event may have arrived. Its lease expires, and it is sent again.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use pillarbox::{Clock, Outcome, Sink, failpoint};

use crate::send::key_queues::{Row, Ticket};
use crate::send::streak::Part;

/// How often a long attempt checks its lease.
const LEASE_CHECK: Duration = Duration::from_secs(1);
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

/// The attempts that are running at one destination.
#[derive(Default)]
pub(crate) struct Attempts {
    running: FuturesUnordered<BoxFuture<'static, (u64, End, Option<Part>)>>,
    tickets: HashMap<u64, (Ticket, bool)>,
    /// How many were started: the number of the last.
    started: u64,
}

impl Attempts {
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts an attempt. The part of a delivered row is reported only if it is `wanted`.
    pub(crate) fn start(&mut self, row: Row, sink: Arc<dyn Sink>, clock: Arc<dyn Clock>, wanted: bool) {
        self.started += 1;
        let number = self.started;
        let began_alone = self.running.is_empty();
        self.tickets.insert(number, (row.ticket.clone(), began_alone));
        self.running.push(Box::pin(async move {
            let end = attempt(&row, sink.as_ref(), clock).await;
            let is_wanted = wanted || end != End::Answered(Outcome::Delivered);
            let part = is_wanted.then(|| part(&row, sink.as_ref())).flatten();
            (number, end, part)
        }));
    }

    /// The attempts that have ended, as soon as there is one; `None` if none is running.
    ///
    /// Safe to cancel: ended attempts are returned by the poll that takes them.
    pub(crate) async fn ended(&mut self) -> Option<Vec<Ended>> {
        let ended = (&mut self.running).ready_chunks(MOST_ENDED).next().await?;
        let ended = ended.into_iter().filter_map(|(number, end, part)| {
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
        self.running.clear();
        let tickets = std::mem::take(&mut self.tickets).into_values();
        tickets.map(|(ticket, _)| ticket).collect()
    }
}

/// Makes one attempt. Safe to cancel if the sink is.
async fn attempt(row: &Row, sink: &dyn Sink, clock: Arc<dyn Clock>) -> End {
    let timeout = row.ticket.policy.timeout;
    if row.ticket.left(clock.boot()).is_zero() {
        return End::Unsent;
    }
    failpoint::hit("before_send");
    failpoint::about_to_send(row.delivery.event.event_type.as_deref());
    let deliver = AssertUnwindSafe(sink.deliver(&row.delivery)).catch_unwind();
    tokio::pin!(deliver);
    let mut time = timeout;
    loop {
        let left = row.ticket.left(clock.boot());
        if left.is_zero() {
            return End::Lost;
        }
        if time.is_zero() {
            return End::Answered(Outcome::retry(format!("timeout: no answer within {timeout:?}")));
        }
        let wait = time.min(left).min(LEASE_CHECK);
        match tokio::time::timeout(wait, &mut deliver).await {
            Ok(Ok(outcome)) => {
                if outcome == Outcome::Delivered {
                    failpoint::hit("after_send");
                }
                return End::Answered(outcome);
            }
            Ok(Err(panic)) => return End::Answered(Outcome::retry(describe(panic.as_ref()))),
            Err(_) => time = time.saturating_sub(wait),
        }
    }
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
