//! Enqueues a backlog and drains it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pillarbox::{Delivery, Event, Limits, Outcome, Sink};

use super::scratch::Scratch;
use super::{Plan, per_second};
use crate::failure::Failure;
use crate::logs;

/// Events of one transaction.
const BATCH: u32 = 100;
/// How often the progress of a drain is read.
const CHECK: Duration = Duration::from_millis(2);
/// How often it is printed.
const PROGRESS: Duration = Duration::from_secs(5);
/// Without progress for this long, the drain has failed.
const STALLED: Duration = Duration::from_secs(60);

/// Enqueues the backlog. Returns events per second.
pub(super) async fn enqueue(scratch: &Scratch, plan: Plan) -> Result<f64, Failure> {
    logs::progress(&format!("enqueueing {} events", plan.events));
    let began = Instant::now();
    let mut printed = began;
    let mut next = 0;
    while next < plan.events {
        let end = plan.events.min(next.saturating_add(BATCH));
        let events: Vec<Event> = (next..end).map(|n| event(n, plan)).collect();
        scratch.database.enqueue_all(&events, Limits::default()).await?;
        next = end;
        if printed.elapsed() >= PROGRESS {
            printed = Instant::now();
            logs::progress(&format!("{next} of {} events enqueued", plan.events));
        }
    }
    Ok(per_second(plan.events, began.elapsed()))
}

/// Drains the backlog. Returns events per second.
#[expect(clippy::disallowed_methods, reason = "the wait between two readings")]
pub(super) async fn drain(scratch: &Scratch, events: u32) -> Result<f64, Failure> {
    logs::progress(&format!("draining {events} events"));
    let began = Instant::now();
    let counters = scratch.start(Arc::new(NullSink)).await?;
    let (mut seen, mut printed) = ((0, began), began);
    loop {
        let delivered = counters.snapshot().delivered;
        if delivered >= u64::from(events) {
            break;
        }
        if delivered > seen.0 {
            seen = (delivered, Instant::now());
        }
        if seen.1.elapsed() > STALLED {
            return Err(Failure::failed(format!(
                "{delivered} of {events} events drained, and no progress for {STALLED:?} (run with --log info)"
            )));
        }
        if printed.elapsed() >= PROGRESS {
            printed = Instant::now();
            logs::progress(&format!("{delivered} of {events} events drained"));
        }
        tokio::time::sleep(CHECK).await;
    }
    let took = began.elapsed();
    scratch.stop().await?;
    Ok(per_second(events, took))
}

/// One event, with a payload of about the wanted size.
pub(super) fn event(n: u32, plan: Plan) -> Event {
    let head = format!("{{\"order\":{n},\"note\":\"");
    let pad = plan.payload.saturating_sub(head.len() + 2);
    let event = Event::new("bench", "orders")
        .event_type("OrderPlaced")
        .json_text(format!("{head}{}\"}}", "x".repeat(pad)));
    match plan.keys {
        0 => event,
        keys => event.ordering_key(format!("key-{}", n % keys)),
    }
}

struct NullSink;

#[async_trait]
impl Sink for NullSink {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        Outcome::Delivered
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_wanted_size_and_is_json() {
        for payload in [40, 300, 4096] {
            let plan = Plan {
                events: 1,
                keys: 3,
                payload,
                rate: 1,
                duration: Duration::ZERO,
            };
            let event = event(7, plan);
            assert_eq!(event.payload.len(), payload);
        }
    }
}
