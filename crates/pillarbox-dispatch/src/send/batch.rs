//! Attempts of several rows in one call of the sink.
//!
//! Each row keeps its own end: its outcome as soon as the sink reports it, its lease, its timeout. All rows of a batch have
//! the same timeout, so the call ends when the last of them has answered or timed out.
//!
//! A sink that panics costs only the row that is to blame: every row without an outcome is then sent alone.
//!
//! **If we die here** every event of the batch may have arrived. Leases expire, and the events are sent again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use pillarbox::{Delivery, Outcome, Outcomes, failpoint};

use crate::send::attempt::{Context, End, LEASE_CHECK, attempt, timed_out};
use crate::send::key_queues::Row;

/// Rows that are sent in one call, and their numbers.
pub(crate) struct Batch {
    rows: Vec<(u64, Row)>,
    context: Arc<Context>,
    /// Are the parts of delivered rows wanted?
    wanted: bool,
}

impl Batch {
    pub(crate) fn new(rows: Vec<(u64, Row)>, context: Arc<Context>, wanted: bool) -> Self {
        Self {
            rows,
            context,
            wanted,
        }
    }

    /// Makes the attempts. Safe to cancel if the sink is.
    pub(crate) async fn run(self) {
        let open = self.unexpired();
        let open = self.send(open).await;
        // The sink panicked.
        let mut alone: FuturesUnordered<_> = open.into_iter().map(|row| self.send_alone(row)).collect();
        while alone.next().await.is_some() {}
    }

    /// The rows whose lease is valid.
    fn unexpired(&self) -> Vec<&(u64, Row)> {
        let now = self.context.clock.boot();
        let (open, expired) = self
            .rows
            .iter()
            .partition(|(_, row)| !row.ticket.left(now).is_zero());
        let expired: Vec<_> = expired;
        for (number, row) in expired {
            self.end(*number, row, End::Unsent);
        }
        open
    }

    /// Sends rows until each of them has an end. Returns those that have none if the sink panics.
    async fn send<'a>(&'a self, rows: Vec<&'a (u64, Row)>) -> Vec<&'a (u64, Row)> {
        let Some((_, first)) = rows.first() else {
            return Vec::new();
        };
        let timeout = first.ticket.policy.timeout;
        for (_, row) in &rows {
            failpoint::hit("before_send");
            failpoint::about_to_send(row.delivery.event.event_type.as_deref());
        }
        let deliveries: Vec<&Delivery> = rows.iter().map(|(_, row)| &row.delivery).collect();
        let outcomes = Outcomes::default();
        let deliver = AssertUnwindSafe(self.context.sink.deliver_all(&deliveries, &outcomes)).catch_unwind();
        tokio::pin!(deliver);
        let mut open: Vec<Option<&(u64, Row)>> = rows.into_iter().map(Some).collect();
        let mut left = open.len();
        let mut time = timeout;
        loop {
            let wait = self.end_expired(&mut open, &mut left, time, timeout);
            if left == 0 {
                return Vec::new();
            }
            // Ends when the sink does, or when no row is open.
            let answered = std::future::poll_fn(|context| {
                let polled = deliver.as_mut().poll(context);
                for (index, outcome) in outcomes.take() {
                    if let Some((number, row)) = open.get_mut(index).and_then(Option::take) {
                        left -= 1;
                        self.end(*number, row, End::Answered(outcome));
                    }
                }
                match polled {
                    Poll::Pending if left > 0 => Poll::Pending,
                    Poll::Pending => Poll::Ready(Ok(())),
                    Poll::Ready(ended) => Poll::Ready(ended),
                }
            });
            match tokio::time::timeout(wait, answered).await {
                Ok(Ok(())) => {
                    for (number, row) in open.into_iter().flatten() {
                        let outcome = Outcome::retry("the sink reported no outcome");
                        self.end(*number, row, End::Answered(outcome));
                    }
                    return Vec::new();
                }
                Ok(Err(_panic)) => return open.into_iter().flatten().collect(),
                Err(_) => time = time.saturating_sub(wait),
            }
        }
    }

    /// Ends rows whose lease has expired, and all of them if no `time` is left. Returns when to look again.
    fn end_expired(
        &self,
        open: &mut [Option<&(u64, Row)>],
        left: &mut usize,
        time: Duration,
        timeout: Duration,
    ) -> Duration {
        let now = self.context.clock.boot();
        let mut wait = time.min(LEASE_CHECK);
        for slot in open {
            let Some((number, row)) = slot else { continue };
            let lease = row.ticket.left(now);
            let end = if lease.is_zero() {
                End::Lost
            } else if time.is_zero() {
                End::Answered(timed_out(timeout))
            } else {
                wait = wait.min(lease);
                continue;
            };
            self.end(*number, row, end);
            *slot = None;
            *left -= 1;
        }
        wait
    }

    /// The call that panicked may have sent the row. So a lease that has expired since gives no attempt back.
    async fn send_alone(&self, (number, row): &(u64, Row)) {
        let end = match attempt(row, &self.context).await {
            End::Unsent => End::Lost,
            end @ (End::Answered(_) | End::Lost) => end,
        };
        self.end(*number, row, end);
    }

    fn end(&self, number: u64, row: &Row, end: End) {
        self.context.end(number, row, end, self.wanted);
    }
}
