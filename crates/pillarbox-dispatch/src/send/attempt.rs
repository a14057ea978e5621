//! One attempt, from top to bottom.
//!
//! No send starts after its lease, by a clock that counts suspension; none goes on after it either.
//! A sink that hangs or panics costs its own row one attempt and nobody else anything.
//!
//! **If we die here** the event may have arrived: its lease ends, and it is sent again.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pillarbox::{Clock, Outcome, Sink, failpoint};

use crate::send::key_queues::Row;

/// How often a long attempt looks whether its row is still ours.
const LOOK: Duration = Duration::from_secs(1);

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The sink said something, or nothing in time.
    Answered(Outcome),
    /// The lease was over before the send began.
    Unsent,
    /// The lease ended while the send was under target: the row is not ours to settle.
    Lost,
}

/// Makes one attempt. Safe to cancel, as far as the sink is.
pub(crate) async fn attempt(row: Row, sink: Arc<dyn Sink>, clock: Arc<dyn Clock>) -> End {
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
            return End::Answered(Outcome::retry(format!("no answer within {timeout:?}")));
        }
        let look = time.min(left).min(LOOK);
        match tokio::time::timeout(look, &mut deliver).await {
            Ok(Ok(outcome)) => {
                if outcome == Outcome::Delivered {
                    failpoint::hit("after_send");
                }
                return End::Answered(outcome);
            }
            Ok(Err(panic)) => return End::Answered(Outcome::retry(describe(panic.as_ref()))),
            Err(_) => time = time.saturating_sub(look),
        }
    }
}

/// Asks a sink whether its place is there, within a time, whatever it does.
pub(crate) async fn check(sink: Arc<dyn Sink>, timeout: Duration) -> Result<(), String> {
    let check = AssertUnwindSafe(sink.check()).catch_unwind();
    match tokio::time::timeout(timeout, check).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(describe(panic.as_ref())),
        Err(_) => Err(format!("the check was not answered within {timeout:?}")),
    }
}

fn describe(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the sink panicked: {}", text.unwrap_or("(without a message)"))
}
