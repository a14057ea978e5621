//! The port to destinations.

use async_trait::async_trait;

use crate::event::Delivery;
use crate::outcome::Outcome;

/// Delivers events to one kind of system.
///
/// * Called with one event at a time per ordering key, in order. Other calls run concurrently, and each awaits only its
///   own confirmation.
/// * May see the same event again. `delivery.event.id` never changes.
/// * May be dropped during a call, when a lease is lost or the timeout is over. The next call must work all the same.
/// * Never retries on its own: it reports the outcome, and the dispatcher decides when to retry.
/// * Reports [`Outcome::Delivered`] only after the destination confirmed.
/// * Reports [`Outcome::Unavailable`] or [`Outcome::ConnectFailed`] only if the send never began, and
///   [`Outcome::ConnectionLost`] if it began and the connection went away before the answer.
///
/// Tested by `pillarbox_testkit::sink_suite!`.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Makes one attempt.
    async fn deliver(&self, delivery: &Delivery) -> Outcome;

    /// Do events arrive in the order in which `deliver` was first polled, also while earlier calls wait for their
    /// confirmation? Then rows of one key may be sent without waiting for the one before.
    fn keeps_order(&self) -> bool {
        false
    }

    /// The part of the destination that an event goes to, where the event chooses it: a URL, a queue, a topic. Events of one
    /// part may all fail while others are delivered, so their failures count as one for the breaker. The name is never printed.
    fn part(&self, _delivery: &Delivery) -> Option<String> {
        None
    }

    /// Is the destination available? Sends no event. Also the probe after an outage.
    ///
    /// # Errors
    /// What is wrong and, if known, what to do.
    async fn check(&self) -> Result<(), String>;

    /// Flushes and closes what is open. Called once, after the last `deliver`.
    async fn close(&self) {}
}
