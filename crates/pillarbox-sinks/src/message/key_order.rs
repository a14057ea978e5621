//! Keeps the order of a key where an event has to wait before it is sent.
//!
//! A sink that keeps order sends events in the order of the first poll of `deliver`. An event that is decompressed first
//! would be overtaken by a small one behind it. So every event with a key waits for its turn, and keeps it until the sink
//! has seen it.
//!
//! Lanes share a few queues, so one large event delays only a few keys.
//!
//! A turn is abandoned if it ends before the sink saw the event: no memory was free, or the attempt was dropped. That event
//! is sent later. The events that waited behind it must not overtake it, so they are sent later too.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use pillarbox::Outcome;
use tokio::sync::{Mutex, MutexGuard};

/// How many queues there are: a power of two, so that lanes are spread evenly.
const QUEUES: usize = 64;

/// The queues, by lane.
pub(super) struct KeyOrder([Queue; QUEUES]);

#[derive(Default)]
struct Queue {
    /// First come, first served.
    head: Mutex<()>,
    /// How many turns were abandoned.
    abandoned: AtomicU64,
}

/// The turn of one event. It is abandoned if it is dropped before [`send`](Turn::send) or [`skip`](Turn::skip).
pub(super) struct Turn<'a> {
    queue: &'a Queue,
    _head: MutexGuard<'a, ()>,
    was_used: bool,
}

impl KeyOrder {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Queue::default()))
    }

    /// Waits for the turn. `None` if one before it was abandoned: then this event must not be sent now.
    pub(super) async fn turn(&self, lane: u16) -> Option<Turn<'_>> {
        let queue = &self.0[usize::from(lane) % QUEUES];
        let before = queue.abandoned.load(Ordering::Acquire);
        let head = queue.head.lock().await;
        let turn = Turn {
            queue,
            _head: head,
            was_used: false,
        };
        if queue.abandoned.load(Ordering::Acquire) == before {
            return Some(turn);
        }
        turn.skip(); // events behind it were waiting too, and see the same count
        None
    }
}

impl Turn<'_> {
    /// Polls the delivery once, so that the sink has seen the event. Then ends the turn and waits for the outcome.
    pub(super) async fn send(mut self, delivering: impl Future<Output = Outcome>) -> Outcome {
        let mut delivering = pin!(delivering);
        let first = std::future::poll_fn(|context| Poll::Ready(delivering.as_mut().poll(context))).await;
        self.was_used = true;
        drop(self);
        match first {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => delivering.await,
        }
    }

    /// Ends the turn of an event that is never sent.
    pub(super) fn skip(mut self) {
        self.was_used = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.was_used {
            self.queue.abandoned.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn the_turn_ends_when_the_sink_has_seen_the_event_not_with_the_outcome() {
        let order = KeyOrder::new();
        let first = order.turn(7).await.unwrap();
        let mut unanswered = pin!(first.send(pending()));
        assert!((&mut unanswered).now_or_never().is_none());
        let second = order.turn(7).now_or_never().flatten().unwrap();
        assert_eq!(second.send(ready(Outcome::Delivered)).await, Outcome::Delivered);
    }

    #[tokio::test]
    async fn no_event_overtakes_one_whose_turn_was_abandoned() {
        let order = KeyOrder::new();
        let first = order.turn(7).await.unwrap();
        let mut second = pin!(order.turn(7));
        let mut third = pin!(order.turn(7));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        assert!(second.await.is_none());
        assert!(third.await.is_none());
        assert!(order.turn(7).await.is_some(), "a later event waits for nothing");
    }

    #[tokio::test]
    async fn an_event_that_is_never_sent_delays_no_other() {
        let order = KeyOrder::new();
        let first = order.turn(7).await.unwrap();
        let mut second = pin!(order.turn(7));
        assert!((&mut second).now_or_never().is_none());
        first.skip();
        assert!(second.await.is_some());
    }

    #[tokio::test]
    async fn other_lanes_have_other_turns() {
        let order = KeyOrder::new();
        let _first = order.turn(7).await.unwrap();
        assert!(order.turn(8).now_or_never().is_some());
    }
}
