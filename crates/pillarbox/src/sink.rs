//! The port to destinations.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

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

    /// May this event be sent together with others, by [`deliver_all`](Self::deliver_all)? Any other event has a call of
    /// [`deliver`](Self::deliver) of its own.
    ///
    /// A batch costs the dispatcher less than as many calls. It suits a destination that takes many events at once and
    /// confirms each of them, such as a broker.
    fn can_batch(&self, _delivery: &Delivery) -> bool {
        false
    }

    /// Makes one attempt of each event, and reports each outcome as soon as it is known: no event waits for the slowest.
    ///
    /// * All rules of [`deliver`](Self::deliver) hold for each event.
    /// * A sink that [keeps order](Self::keeps_order) sends the events of one key in the order of the list. All of them count
    ///   as first polled when the call is.
    /// * The call may be dropped when every event is reported, timed out or lost. An event that timed out alone may
    ///   still be sent: its outcome is ignored.
    /// * If it panics, each event without an outcome is sent again by `deliver`.
    ///
    /// The default calls `deliver` for all of them concurrently.
    async fn deliver_all(&self, deliveries: &[&Delivery], outcomes: &Outcomes) {
        let attempts = deliveries.iter().enumerate();
        let attempts = attempts.map(|(index, delivery)| async move { (index, self.deliver(delivery).await) });
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        while let Some((index, outcome)) = attempts.next().await {
            outcomes.report(index, outcome);
        }
    }

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

/// Takes the outcomes of one call of [`Sink::deliver_all`].
#[derive(Debug, Default)]
pub struct Outcomes {
    reported: Mutex<Vec<(usize, Outcome)>>,
}

impl Outcomes {
    /// Reports the outcome of the event at this place of the list. Only the first report of an event counts. The dispatcher
    /// reads it when the call returns or waits.
    pub fn report(&self, index: usize, outcome: Outcome) {
        self.reported().push((index, outcome));
    }

    /// The outcomes since the last call of this, with the places of their events.
    pub fn take(&self) -> Vec<(usize, Outcome)> {
        std::mem::take(&mut *self.reported())
    }

    fn reported(&self) -> MutexGuard<'_, Vec<(usize, Outcome)>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
