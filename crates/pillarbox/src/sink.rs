//! The port to the places where events go.

use async_trait::async_trait;

use crate::event::Delivery;
use crate::outcome::Outcome;

/// A place events are delivered to.
///
/// * Called with one event at a time per ordering key, in order; other events run concurrently, and
///   what can be pipelined is: each call awaits only its own confirmation.
/// * May see the same event again. `delivery.event.id` never changes.
/// * May be dropped mid-call, when a lease is lost or time is up. Leaves nothing half-open.
/// * Never retries on its own: it says what happened, and the dispatcher decides when to try again.
/// * Says [`Outcome::Delivered`] only after the place confirmed.
/// * Says [`Outcome::Unavailable`] only if the send never began, and [`Outcome::ConnectionLost`] if it began and
///   the connection went away before the answer.
///
/// Proven by `pillarbox_testkit::sink_suite!`.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Makes one attempt.
    async fn deliver(&self, delivery: &Delivery) -> Outcome;

    /// Do events arrive in the order in which `deliver` was first polled, also while earlier calls wait for their
    /// confirmation? Then rows of one key may be sent without waiting for the one before.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Is the place there and willing? Sends no event. Also the probe after an outage.
    ///
    /// # Errors
    /// A sentence that says what is wrong and, where we know, what to do.
    async fn check(&self) -> Result<(), String>;

    /// Says goodbye: flushes and closes what is open. Called once, after the last `deliver`.
    async fn close(&self) {}
}
