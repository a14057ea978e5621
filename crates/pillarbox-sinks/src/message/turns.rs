//! Keeps the order of a key where an event may have to wait before it is sent.
//!
//! A place that keeps order gets events in the order in which `deliver` is first polled. One that is decompressed
//! first would be overtaken there by a small one behind it. So every event with a key waits for its turn, and has
//! it until the place has seen it.
//!
//! Lanes share a few turns, so that one large event holds up only a few keys.
//!
//! An event whose turn ends before the place saw it (no room, out of time) comes again later. Those that waited
//! behind it must not go before it, and come again as well.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use pillarbox::Outcome;
use tokio::sync::{Mutex, MutexGuard};

/// How many turns there are: a power of two, so that lanes are spread evenly.
const TURNS: usize = 64;

/// Whose turn it is, by lane.
pub(super) struct Turns([Turn; TURNS]);

#[derive(Default)]
struct Turn {
    /// First come, first served.
    queue: Mutex<()>,
    /// How many turns ended unseen.
    unseen: AtomicU64,
}

/// Somebody's turn. Dropped before [`begin`](Place::begin) or [`pass`](Place::pass) it ends unseen.
pub(super) struct Place<'a> {
    turn: &'a Turn,
    _queue: MutexGuard<'a, ()>,
    was_seen: bool,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Turn::default()))
    }

    /// Waits for the turn. `None` if one before it ended unseen: then this one must not be sent now.
    pub(super) async fn take(&self, lane: u16) -> Option<Place<'_>> {
        let turn = &self.0[usize::from(lane) % TURNS];
        let before = turn.unseen.load(Ordering::Acquire);
        let queue = turn.queue.lock().await;
        let place = Place {
            turn,
            _queue: queue,
            was_seen: false,
        };
        if turn.unseen.load(Ordering::Acquire) == before {
            return Some(place);
        }
        place.pass(); // those behind it came before the end as well, and see for themselves
        None
    }
}

impl Place<'_> {
    /// Lets the place see the event, ends the turn, and waits for what comes of it.
    pub(super) async fn begin(mut self, delivering: impl Future<Output = Outcome>) -> Outcome {
        let mut delivering = pin!(delivering);
        let seen = std::future::poll_fn(|context| Poll::Ready(delivering.as_mut().poll(context))).await;
        self.was_seen = true;
        drop(self);
        match seen {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => delivering.await,
        }
    }

    /// Ends the turn of an event that will not be sent at all.
    pub(super) fn pass(mut self) {
        self.was_seen = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.was_seen {
            self.turn.unseen.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn the_turn_ends_when_the_place_has_seen_the_event_not_when_it_answers() {
        let turns = Turns::new();
        let first = turns.take(7).await.unwrap();
        let mut unanswered = pin!(first.begin(pending()));
        assert!((&mut unanswered).now_or_never().is_none());
        let second = turns.take(7).now_or_never().flatten().unwrap();
        assert_eq!(second.begin(ready(Outcome::Delivered)).await, Outcome::Delivered);
    }

    #[tokio::test]
    async fn nobody_goes_before_one_whose_turn_ended_unseen() {
        let turns = Turns::new();
        let first = turns.take(7).await.unwrap();
        let mut second = pin!(turns.take(7));
        let mut third = pin!(turns.take(7));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        assert!(second.await.is_none());
        assert!(third.await.is_none());
        assert!(
            turns.take(7).await.is_some(),
            "who comes later finds nothing before it"
        );
    }

    #[tokio::test]
    async fn one_that_is_not_sent_at_all_holds_nobody_up() {
        let turns = Turns::new();
        let first = turns.take(7).await.unwrap();
        let mut second = pin!(turns.take(7));
        assert!((&mut second).now_or_never().is_none());
        first.pass();
        assert!(second.await.is_some());
    }

    #[tokio::test]
    async fn other_lanes_have_other_turns() {
        let turns = Turns::new();
        let _first = turns.take(7).await.unwrap();
        assert!(turns.take(8).now_or_never().is_some());
    }
}
