use std::collections::BTreeSet;
use std::sync::Mutex;

use async_trait::async_trait;
use proptest::collection::btree_set;
use proptest::{prop_assert, prop_assert_eq, proptest};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::*;
use crate::event::{Delivery, Event};
use crate::outcome::Outcome;
use crate::payload::Payload;
use crate::sink::Sink;

const TYPE: &str = "OrderCreated";

/// Upcasters from each of these versions, that each leave their trace in the payload.
fn chain(from: impl IntoIterator<Item = i32>) -> Upcasters {
    from.into_iter().fold(Upcasters::new(), |upcasters, from| {
        upcasters.add(TYPE, from, move |mut value| {
            let seen = value.as_array_mut().ok_or("no list")?;
            seen.push(json!(from));
            Ok(value)
        })
    })
}

fn seen(upcast: Upcast) -> Vec<i32> {
    match upcast {
        Upcast::Same => Vec::new(),
        Upcast::Changed(text) => serde_json::from_slice(&text).expect("a list of numbers"),
    }
}

proptest! {
    #[test]
    fn a_chain_leads_on_exactly_if_it_has_no_gap(from in btree_set(1..12_i32, 0..11), to in 1..14_i32) {
        let needed: BTreeSet<i32> = from.first().map_or_else(BTreeSet::new, |first| (*first..to).collect());
        let led = chain(from.iter().copied()).leads_to(TYPE, to);
        prop_assert_eq!(led.is_ok(), needed.is_subset(&from), "{:?}", led);
        if let Err(BrokenChain::Gap { from: gap, .. }) = led {
            prop_assert!(!from.contains(&gap) && needed.contains(&gap));
        }
    }

    #[test]
    fn every_step_is_taken_once_and_in_its_order(first in 1..6_i32, length in 0..8_i32, start in 0..8_i32, stop in 0..8_i32) {
        let upcasters = chain(first..first + length);
        let (start, stop) = (first + start.min(stop), first + start.max(stop));
        let upcast = upcasters.upcast(TYPE, start, stop, b"[]");
        if start == stop {
            prop_assert_eq!(upcast, Ok(Upcast::Same));
        } else if stop <= first + length {
            prop_assert_eq!(seen(upcast.expect("a chain")), (start..stop).collect::<Vec<_>>());
        } else {
            let older = UpcastError::Older { event_type: TYPE.to_owned(), found: start, understood: stop };
            prop_assert_eq!(upcast, Err(older));
        }
    }

    #[test]
    fn two_halves_of_the_way_are_the_whole(length in 1..8_i32, half in 0..8_i32) {
        let (upcasters, end) = (chain(1..=length), length + 1);
        let half = 1 + half.min(length);
        let whole = upcasters.upcast(TYPE, 1, end, b"[]").expect("a chain");
        let first = seen(upcasters.upcast(TYPE, 1, half, b"[]").expect("a chain"));
        let first = serde_json::to_vec(&first).expect("JSON");
        let second = match upcasters.upcast(TYPE, half, end, &first).expect("a chain") {
            Upcast::Same => first.into(),
            Upcast::Changed(text) => text,
        };
        prop_assert_eq!(Upcast::Changed(second), whole);
    }

    #[test]
    fn what_is_newer_is_said_so_whatever_it_holds(found in 1..100_i32, understood in 1..100_i32, payload: Vec<u8>) {
        let upcast = chain(1..5).upcast(TYPE, found, understood, &payload);
        prop_assert_eq!(found > understood, matches!(upcast, Err(UpcastError::Newer { .. })));
    }
}

#[test]
fn what_has_the_version_already_is_not_even_parsed() {
    let upcasters = chain(1..3);
    assert_eq!(upcasters.upcast(TYPE, 3, 3, b"no JSON"), Ok(Upcast::Same));
    assert_eq!(upcasters.upcast("another", 7, 7, b""), Ok(Upcast::Same));
}

#[test]
fn two_from_one_version_are_refused_by_name() {
    let twice = chain([1, 2, 2]).leads_to(TYPE, 2).expect_err("twice");
    assert_eq!(
        twice.to_string(),
        "two upcasters lead from version 2 of `OrderCreated`; one of them would never run"
    );
}

#[test]
fn a_gap_says_which_upcaster_is_missing() {
    let gap = chain([1, 3]).leads_to(TYPE, 4).expect_err("a gap");
    assert_eq!(
        gap.to_string(),
        "nothing leads from version 2 of `OrderCreated` to version 3, on the way from 1 to 4; add that upcaster"
    );
}

#[test]
fn what_an_upcaster_refuses_says_why_and_where() {
    let refused = chain(1..4).upcast(TYPE, 2, 4, b"{}").expect_err("no list");
    assert_eq!(
        refused.to_string(),
        "version 2 of `OrderCreated` cannot be made into version 3: no list"
    );
    let no_json = chain(1..4).upcast(TYPE, 2, 4, b"{").expect_err("no JSON");
    assert!(matches!(no_json, UpcastError::NotJson(_)), "{no_json}");
}

/// Keeps what it is given.
#[derive(Default)]
struct Kept(Mutex<Vec<Event>>);

#[async_trait]
impl Sink for &'static Kept {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        self.0
            .lock()
            .expect("no test panicked")
            .push(delivery.event.clone());
        Outcome::Delivered
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn delivery(event: Event) -> Delivery {
    Delivery {
        id: event.id,
        seq: 1,
        event,
        lane: None,
        attempts: 1,
        max_attempts: None,
        created_at: OffsetDateTime::UNIX_EPOCH,
        claim: Uuid::nil(),
        suspect: false,
        contested: false,
    }
}

/// What arrives, or the outcome that is none.
async fn published(event: Event) -> Result<Event, Outcome> {
    let kept: &'static Kept = Box::leak(Box::default());
    let sink = Upcasting::new(kept, chain(1..3)).to(TYPE, 3).expect("a chain");
    match sink.deliver(&delivery(event)).await {
        Outcome::Delivered => Ok(kept.0.lock().expect("no test panicked").remove(0)),
        other => Err(other),
    }
}

#[tokio::test]
async fn an_event_is_published_in_the_version_that_is_understood() {
    let event = Event::new("shop", "orders").event_type(TYPE).json_text("[]");
    let arrived = published(event.clone()).await.expect("delivered");
    assert_eq!(arrived.event_version, 3);
    assert_eq!(arrived.payload, Payload::Json("[1,2]".into()));
    assert_eq!(arrived.id, event.id);
}

#[cfg(feature = "zstd")]
#[tokio::test]
async fn a_compressed_payload_is_published_as_the_json_that_it_is() {
    let large = serde_json::to_string(&vec!["outbox"; 1000]).expect("JSON");
    let event = Event::new("shop", "orders")
        .event_type(TYPE)
        .version(2)
        .json_text(large);
    let compressed = crate::compress::compress(&event, 100).expect("smaller");
    let arrived = published(compressed).await.expect("delivered");
    assert_eq!(
        (arrived.event_version, arrived.content_encoding.as_deref()),
        (3, None)
    );
    assert!(arrived.payload.as_bytes().ends_with(b"\"outbox\",2]"));
}

#[tokio::test]
async fn what_is_newer_or_of_another_type_is_published_as_it_is() {
    for event in [
        Event::new("shop", "orders")
            .event_type(TYPE)
            .version(4)
            .json_text("[]"),
        Event::new("shop", "orders").event_type("another").json_text("[]"),
        Event::new("shop", "orders").bytes("x", "text/plain"),
    ] {
        assert_eq!(published(event.clone()).await.expect("delivered"), event);
    }
}

#[tokio::test]
async fn what_an_upcaster_refuses_is_rejected_with_the_reason() {
    let event = Event::new("shop", "orders").event_type(TYPE).json_text("{}");
    let outcome = published(event).await.expect_err("rejected");
    assert!(
        matches!(&outcome, Outcome::Reject { reason } if reason.contains("no list")),
        "{outcome:?}"
    );
}
