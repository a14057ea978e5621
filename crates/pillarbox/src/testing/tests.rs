//! What passes, and what a failure says.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::json;
use time::Duration;
use time::macros::datetime;
use uuid::Uuid;

use super::*;

fn order(number: u64) -> Event {
    Event::new("shop", "orders")
        .event_type("OrderCreated")
        .aggregate("order", number.to_string())
        .json(&json!({"order": number, "lines": [1, 2], "customer": {"name": "Ada", "age": 36}}))
        .unwrap()
}

/// What an assertion says when it fails.
fn complaint_of(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("it fails");
    let text = panic.downcast_ref::<String>();
    text.expect("it says something").clone()
}

#[test]
fn an_event_is_the_expected_one_whatever_its_id_and_its_trace() {
    let enqueued = order(42)
        .header("traceparent", "00-…")
        .header("TraceState", "a=1");
    assert_eq!(assert_enqueued([&order(1), &enqueued], &order(42)), enqueued);
}

#[test]
fn json_is_compared_as_json_and_a_default_media_type_is_none() {
    let mut enqueued = order(42).json_text(r#"{"b": [1], "a": 2}"#);
    enqueued.content_type = Some("application/json".to_owned());
    assert_enqueued([enqueued], &order(42).json(&json!({"a": 2, "b": [1]})).unwrap());
}

#[test]
fn times_are_compared_as_far_as_stores_keep_them() {
    let midnight = datetime!(2030-01-01 0:00 UTC);
    let at = |nanoseconds| order(42).deliver_at(midnight + Duration::nanoseconds(nanoseconds));
    // Also where a rounded second, millisecond or microsecond begins in between.
    for begin in [-1, 0, 1, 499_500, 500_000, 999_999_500] {
        assert_enqueued([&at(begin + 999)], &at(begin));
        assert_enqueued([&at(begin)], &at(begin + 999));
        let said = complaint_of(|| {
            assert_enqueued([&at(begin)], &at(begin + 1_000));
        });
        assert!(said.contains("deliver_at: expected"), "{said}");
    }
    assert_eq!(
        at(0).differences(&at(1_000_000))[0].to_string(),
        "deliver_at: expected 2030-01-01 0:00:00.0 +00:00:00, found 2030-01-01 0:00:00.001 +00:00:00"
    );
    assert_eq!(order(42).differences(&at(0)).len(), 1);
}

#[test]
fn every_field_counts() {
    let tenant = Uuid::new_v4();
    let changed = |change: fn(&mut Event)| {
        let mut event = order(42);
        change(&mut event);
        event
    };
    for (field, other) in [
        ("namespace", changed(|event| event.namespace = "till".into())),
        ("topic", changed(|event| event.topic = "invoices".into())),
        ("event_type", order(42).event_type("OrderPaid")),
        ("event_version", order(42).version(2)),
        ("aggregate_type", order(42).aggregate("cart", "42")),
        ("aggregate_id", order(42).aggregate("order", "43")),
        ("tenant_id", order(42).tenant(tenant)),
        ("dedupe_key", order(42).dedupe_key("x")),
        ("ordering_key", order(42).ordering_key("x")),
        ("severity", order(42).severity("x")),
        ("destination", order(42).destination("x")),
        ("headers.x", order(42).header("x", "y")),
        (
            "content_encoding",
            changed(|event| event.content_encoding = Some("br".into())),
        ),
        (
            "payload.order",
            order(42).json_text(String::from_utf8_lossy(order(43).payload.as_bytes()).into_owned()),
        ),
        ("payload", order(42).json_text("[]")),
    ] {
        for (expected, found) in [(order(42), &other), (other.clone(), &order(42))] {
            let differences = expected.differences(found);
            let fields: Vec<&str> = differences.iter().map(|one| one.field.as_str()).collect();
            assert_eq!(fields, [field]);
        }
    }
    let bytes = order(42).bytes(&b"\x00x"[..], "text/plain");
    let fields: Vec<String> = order(42)
        .differences(&bytes)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(fields.len(), 2, "{fields:?}");
    assert!(fields[1].ends_with(r"found 2 bytes: \x00x"), "{fields:?}");
    assert_eq!(bytes.differences(&bytes), []);
}

#[test]
fn a_failure_lists_what_there_is_and_in_what_the_nearest_differs() {
    let other = Event::new("till", "receipts");
    let near = order(42)
        .version(2)
        .json(&json!({"order": 42, "extra": true}))
        .unwrap();
    let expected = order(42).json(&json!({"order": 42, "total": "19.90"})).unwrap();
    let said = complaint_of(|| {
        assert_enqueued([&other, &near], &expected);
    });
    assert_eq!(
        said,
        "the expected event was not enqueued\n\
         expected: shop/orders OrderCreated v1, aggregate 42: {\"order\":42,\"total\":\"19.90\"}\n\
         there are\n  \
         1. till/receipts: {}\n  \
         2. shop/orders OrderCreated v2, aggregate 42: {\"extra\":true,\"order\":42}\n\
         the nearest is 2, which differs in\n  \
         event_version: expected 1, found 2\n  \
         payload.total: expected \"19.90\", found nothing\n  \
         payload.extra: expected nothing, found true"
    );
}

#[test]
fn an_empty_outbox_is_said_to_be_empty() {
    let said = complaint_of(|| {
        assert_enqueued(Vec::<Event>::new(), &order(42));
    });
    assert!(said.ends_with("there is nothing at all\n"), "{said}");
}

#[test]
fn only_what_is_expected_counts() {
    let events = [
        order(1),
        order(42).ordering_key("k").header("h", "v").severity("low"),
    ];
    let found = assert_enqueued(
        &events,
        &Expected::event_type("OrderCreated")
            .namespace("shop")
            .topic("orders")
            .version(1)
            .aggregate("order", "42")
            .ordering_key("k")
            .header("h", "v")
            .severity("low")
            .payload_includes(json!({"customer": {"name": "Ada"}}))
            .payload_includes(json!({"lines": [1, 2]})),
    );
    assert_eq!(found, events[1]);
    assert_enqueued(&events, &Expected::any());
}

#[test]
fn what_is_expected_in_part_is_missed_in_part() {
    let events = [order(42)];
    for (expected, said) in [
        (
            Expected::event_type("OrderPaid"),
            "event_type: expected \"OrderPaid\", found \"OrderCreated\"",
        ),
        (Expected::any().version(2), "event_version: expected 2, found 1"),
        (Expected::any().tenant(Uuid::nil()), "found nothing"),
        (
            Expected::any().dedupe_key("x"),
            "dedupe_key: expected \"x\", found nothing",
        ),
        (
            Expected::any().destination("x"),
            "destination: expected \"x\", found nothing",
        ),
        (
            Expected::any().header("h", "v"),
            "headers.h: expected \"v\", found nothing",
        ),
        (
            Expected::any().payload(json!({"order": 42})),
            "payload.lines: expected nothing, found [1,2]",
        ),
        (
            Expected::any().payload_includes(json!({"lines": [1]})),
            "payload.lines: expected [1], found [1,2]",
        ),
        (
            Expected::any().payload_includes(json!({"customer": {"age": 37}})),
            "payload.customer.age: expected 37, found 36",
        ),
    ] {
        let complaint = complaint_of(|| {
            assert_enqueued(&events, &expected);
        });
        assert!(complaint.contains(said), "{said}: {complaint}");
    }
}

#[test]
fn nothing_is_nothing() {
    assert_nothing_enqueued(Vec::<Event>::new());
    let said = complaint_of(|| assert_nothing_enqueued([order(42)]));
    assert!(
        said.starts_with("nothing should have been enqueued; there is\n  1. shop/orders OrderCreated v1"),
        "{said}"
    );
}
