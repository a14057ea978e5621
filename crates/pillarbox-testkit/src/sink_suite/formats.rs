//! What a message looks like: CloudEvents in both modes, compressed payloads, and the trace.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use pillarbox::trace::{self, TraceContext};
use pillarbox::{Delivery, Event, Outcome, compress};
use serde_json::{Value, json};

use super::bench::{Bench, delivery, order};
use super::harness::Arrived;
use crate::store_suite::{Ran, Skipped};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// An event with every attribute, some of which need encoding.
fn full() -> Delivery {
    let mut sent = order(7);
    sent.event = sent
        .event
        .event_type("Größe 100%")
        .version(3)
        .severity("low")
        .dedupe_key("once")
        .header("traceparent", PARENT)
        .header("x-own", "kept");
    sent
}

/// What a receiver should find.
fn attributes(sent: &Delivery) -> BTreeMap<&'static str, String> {
    let topic = sent.event.topic.clone();
    BTreeMap::from([
        ("specversion", "1.0".to_owned()),
        ("id", sent.event.id.to_string()),
        ("source", "/shop".to_owned()),
        ("type", "Größe 100%".to_owned()),
        ("subject", "7".to_owned()),
        ("time", "2027-01-15T08:00:00Z".to_owned()),
        ("topic", topic),
        ("eventversion", "3".to_owned()),
        ("partitionkey", "order-7".to_owned()),
        ("aggregatetype", "order".to_owned()),
        ("dedupekey", "once".to_owned()),
        ("severity", "low".to_owned()),
        ("traceparent", PARENT.to_owned()),
    ])
}

fn only_own_headers(arrived: &Arrived) {
    assert_eq!(arrived.headers.get("x-own").map(String::as_str), Some("kept"));
    assert_eq!(
        arrived.headers.get("traceparent").map(String::as_str),
        Some(PARENT)
    );
    let ours = arrived.headers.keys().find(|name| name.starts_with("pillarbox-"));
    assert_eq!(ours, None, "{:?}", arrived.headers);
}

pub async fn a_cloudevent_arrives_with_its_attributes_in_headers(bench: Bench) -> Ran {
    let Some(names) = bench.harness.attributes() else {
        return Err(Skipped("it has no headers for attributes"));
    };
    let sink = bench.harness.with_keys("format = \"cloudevents\"").await?;
    let sent = full();
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let arrived = &bench.arrived(1).await[0];
    let mut found: BTreeMap<&str, String> = (arrived.headers.iter())
        .filter_map(|(name, value)| Some((name.strip_prefix(names.prefix)?, names.read(value))))
        .collect();
    if let Some(media_type) = found.remove("datacontenttype") {
        assert_eq!(media_type, "application/json");
    }
    assert_eq!(found, attributes(&sent));
    assert_eq!(arrived.content_type, "application/json");
    assert_eq!(&arrived.payload, sent.event.payload.as_bytes());
    only_own_headers(arrived);
    Ok(())
}

pub async fn a_cloudevent_arrives_in_one_piece(bench: Bench) -> Ran {
    let keys = "format = \"cloudevents-structured\"\nsource = \"https://shop.example/{topic}\"";
    let sink = bench.harness.with_keys(keys).await?;
    let mut sent = full();
    // More digits than a number of JavaScript has: the payload must not be parsed and rewritten.
    sent.event = sent.event.json_text("{\"total\": 12345678901234567890.10}");
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let arrived = &bench.arrived(1).await[0];
    assert_eq!(arrived.content_type, "application/cloudevents+json");
    let text = String::from_utf8(arrived.payload.to_vec()).expect("JSON is UTF-8");
    assert!(
        text.contains("\"data\":{\"total\": 12345678901234567890.10}"),
        "{text}"
    );
    let mut event: BTreeMap<String, Value> = serde_json::from_str(&text).expect("the event is JSON");
    event.remove("data");
    let mut expected: BTreeMap<String, Value> = attributes(&sent)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    expected.insert("eventversion".to_owned(), json!(3));
    expected.insert("datacontenttype".to_owned(), "application/json".into());
    let source = format!("https://shop.example/{}", sent.event.topic);
    expected.insert("source".to_owned(), source.into());
    assert_eq!(event, expected);
    if bench.harness.attributes().is_some() {
        only_own_headers(arrived);
    }
    Ok(())
}

pub async fn bytes_arrive_in_a_cloudevent_as_they_were(bench: Bench) -> Ran {
    let sink = bench
        .harness
        .with_keys("format = \"cloudevents-structured\"")
        .await?;
    let event = Event::new("shop", "orders").bytes(&b"\x00\xff"[..], "image/png");
    assert_eq!(sink.deliver(&delivery(event)).await, Outcome::Delivered);
    let arrived = &bench.arrived(1).await[0];
    let event: Value = serde_json::from_slice(&arrived.payload).expect("the event is JSON");
    assert_eq!(event["data_base64"], "AP8=");
    assert_eq!(event["datacontenttype"], "image/png");
    Ok(())
}

/// What enqueue makes of a large payload.
fn stored(event: &Event) -> Delivery {
    delivery(compress::compress(event, 1000).expect("it shrinks"))
}

fn large() -> Event {
    let lines = vec!["all work and no play"; 10_000];
    let event = Event::new("shop", "orders").json(&json!({ "lines": lines }));
    event.expect("a map with text keys has a JSON form")
}

pub async fn a_compressed_payload_arrives_uncompressed(bench: Bench) -> Ran {
    let sink = bench.harness.with_keys("").await?;
    let event = large();
    assert_eq!(sink.deliver(&stored(&event)).await, Outcome::Delivered);
    let arrived = &bench.arrived(1).await[0];
    assert_eq!(&arrived.payload, event.payload.as_bytes());
    assert_eq!(arrived.content_type, "application/json");
    Ok(())
}

pub async fn a_compressed_payload_arrives_compressed_if_configured(bench: Bench) -> Ran {
    let sink = bench.harness.with_keys("compressed = true").await?;
    let event = large();
    let sent = stored(&event);
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let arrived = &bench.arrived(1).await[0];
    assert_eq!(arrived.content_encoding.as_deref(), Some("zstd"));
    assert_eq!(arrived.content_type, "application/json");
    assert_eq!(&arrived.payload, sent.event.payload.as_bytes());
    let content = compress::decompress(&arrived.payload, usize::MAX);
    assert_eq!(content.as_ref(), Ok(event.payload.as_bytes()));
    Ok(())
}

pub async fn a_payload_too_large_or_not_zstd_is_rejected_alone(bench: Bench) -> Ran {
    let sink = bench.harness.with_keys("max_decompressed = \"64KiB\"").await?;
    let mut broken = Event::new("shop", "orders").bytes(&b"no zstd"[..], "text/plain");
    broken.content_encoding = Some("zstd".to_owned());
    for (sent, said) in [
        (stored(&large()), "larger than 65536 bytes"),
        (delivery(broken), "not valid zstd"),
    ] {
        match sink.deliver(&sent).await {
            Outcome::Reject { reason } => assert!(reason.contains(said), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    bench.nothing_but(0, &sink).await;
    Ok(())
}

/// As [`an_ordered_sink_keeps_the_order_without_waiting`](super::arriving), with events that take their time.
pub async fn a_compressed_event_is_not_overtaken_where_order_is_kept(bench: Bench) -> Ran {
    let sink = bench.harness.with_keys("").await?;
    if !sink.keeps_order() {
        return Err(Skipped("it does not say that it keeps order"));
    }
    let padding = Bytes::from(vec![b' '; 700 * 1024]);
    let large = stored(&Event::new("shop", "orders").bytes(padding, "text/plain"));
    let sent: Vec<_> = (0..60)
        .map(|number| {
            let mut one = order(number);
            one.event.ordering_key = Some("all".to_owned());
            one.event.aggregate_id = Some("all".to_owned());
            one.lane = Some(77);
            if number % 3 == 0 {
                one.event.payload = large.event.payload.clone();
                one.event.content_encoding = large.event.content_encoding.clone();
            }
            one
        })
        .collect();
    let mut calls: FuturesUnordered<_> = sent.iter().map(|one| sink.deliver(one)).collect();
    while let Some(outcome) = calls.next().await {
        assert_eq!(outcome, Outcome::Delivered);
    }
    let arrived: Vec<_> = bench.arrived(60).await.into_iter().map(|one| one.id).collect();
    let ids: Vec<_> = sent.iter().map(|one| one.event.id).collect();
    assert!(arrived == ids, "60 events of one key arrived in another order");
    Ok(())
}

pub async fn the_trace_that_an_event_was_enqueued_within_arrives(bench: Bench) -> Ran {
    let context = TraceContext::parse(PARENT, Some("shop=1")).expect("it is the recommendation's own");
    let sink = bench.harness.sink().await;
    let mut sent = order(1);
    // What enqueue does with every event.
    let traced = trace::within(context, async { trace::capture(&sent.event) }).await;
    sent.event = traced.expect("there is a trace");
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let headers = &bench.arrived(1).await[0].headers;
    assert_eq!(
        headers.get("traceparent").map(String::as_str),
        Some(PARENT),
        "{headers:?}"
    );
    assert_eq!(
        headers.get("tracestate").map(String::as_str),
        Some("shop=1"),
        "{headers:?}"
    );
    Ok(())
}
