//! What the cases have in common: making deliveries, and waiting for what should arrive.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Delivery, Event, Outcome, Sink};
use serde_json::json;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::harness::{Arrived, Harness};
use crate::captured_logs::keep_enabled;

/// The longest wait for a fact. Only a failing test waits that long.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait before looking again.
const AGAIN: Duration = Duration::from_millis(20);

/// A destination and what the cases do with it.
#[derive(Clone)]
pub struct Bench {
    /// The destination.
    pub harness: Arc<dyn Harness>,
}

impl Bench {
    /// A bench for this destination.
    pub fn new(harness: Arc<dyn Harness>) -> Self {
        keep_enabled();
        Self { harness }
    }

    /// Waits until `number` events have arrived.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn arrived(&self, number: usize) -> Vec<Arrived> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let arrived = self.harness.arrived().await;
            if arrived.len() >= number {
                return arrived;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{} of {number} events arrived within {TIMEOUT:?}",
                arrived.len()
            );
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// How many messages two deliveries of one row leave at the destination.
    pub fn copies_of_two(&self) -> usize {
        if self.harness.drops_duplicates() { 1 } else { 2 }
    }

    /// Makes sure that no more than `number` events have arrived, by one that comes after them.
    ///
    /// # Panics
    /// When there are more.
    pub async fn nothing_but(&self, number: usize, sink: &Arc<dyn Sink>) {
        let last = order(number);
        assert_eq!(sink.deliver(&last).await, Outcome::Delivered);
        let arrived = self.arrived(number + 1).await;
        assert_eq!(arrived.len(), number + 1, "{arrived:?}");
        assert_eq!(arrived[number].id, last.event.id);
    }

    /// Waits until each of these events has arrived, whatever else does.
    ///
    /// # Panics
    /// When one does not come: it was confirmed and lost.
    pub async fn arrived_all(&self, ids: &BTreeSet<Uuid>) {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let arrived: BTreeSet<Uuid> = self.harness.arrived().await.iter().map(|one| one.id).collect();
            let missing = ids.difference(&arrived).count();
            if missing == 0 {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{missing} of {} events were confirmed and lost",
                ids.len()
            );
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Delivers again and again until it is done.
    ///
    /// # Panics
    /// When it never is.
    pub async fn deliver_until_done(&self, sink: &dyn Sink, delivery: &Delivery) {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let outcome = sink.deliver(delivery).await;
            if outcome == Outcome::Delivered {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "still {outcome:?} after {TIMEOUT:?}"
            );
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Delivers all of these at once. Returns what came of each.
    pub async fn deliver_all(&self, sink: &Arc<dyn Sink>, deliveries: Vec<Delivery>) -> Vec<(Uuid, Outcome)> {
        let mut tasks = JoinSet::new();
        for delivery in deliveries {
            let sink = sink.clone();
            tasks.spawn(async move { (delivery.event.id, sink.deliver(&delivery).await) });
        }
        tasks.join_all().await
    }
}

/// The first attempt to deliver an event.
pub fn delivery(event: Event) -> Delivery {
    Delivery {
        id: event.id,
        seq: 1,
        event,
        lane: None,
        attempts: 1,
        max_attempts: None,
        created_at: OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        claim: Uuid::now_v7(),
        suspect: false,
        contested: false,
    }
}

/// The first attempt to deliver some order or other.
pub(super) fn order(number: usize) -> Delivery {
    let event = Event::new("shop", "orders")
        .event_type("OrderCreated")
        .aggregate("order", number.to_string())
        .ordering_key(format!("order-{number}"))
        .json(&json!({"order": number, "note": "Grüße"}));
    delivery(event.expect("a map with text keys has a JSON form"))
}

/// What went wrong, or nothing.
pub(super) fn reason(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Delivered => "",
        Outcome::Retry { reason, .. }
        | Outcome::Reject { reason }
        | Outcome::Throttled { reason, .. }
        | Outcome::ThrottledPart { reason, .. }
        | Outcome::ConnectFailed { reason }
        | Outcome::Unavailable { reason }
        | Outcome::ConnectionLost { reason }
        | Outcome::Disable { reason } => reason,
    }
}
