//! What is delivered arrives, as it was.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use pillarbox::{Event, Outcome};

use super::bench::{Bench, delivery, order, reason};
use crate::store_suite::{Ran, Skipped};

pub async fn a_delivered_event_arrives_unchanged(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let sent = order(1);
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let arrived = bench.arrived(1).await;
    assert_eq!(arrived.len(), 1, "{arrived:?}");
    let value =
        |bytes: &Bytes| serde_json::from_slice::<serde_json::Value>(bytes).expect("the payload is JSON");
    assert_eq!(value(&arrived[0].payload), value(sent.event.payload.as_bytes()));
    assert_eq!(arrived[0].content_type, "application/json");
    Ok(())
}

pub async fn the_event_id_travels(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let mut sent = order(1);
    sent.id = uuid::Uuid::now_v7(); // a sibling: its row has an id of its own
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    assert_eq!(bench.arrived(1).await[0].id, sent.event.id);
    Ok(())
}

pub async fn headers_travel(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let mut sent = order(1);
    sent.event = sent
        .event
        .header("traceparent", "00-abc-1")
        .header("x-note", "Grüße");
    sent.attempts = 3;
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let headers = &bench.arrived(1).await[0].headers;
    for (name, value) in [
        ("pillarbox-id", sent.event.id.to_string().as_str()),
        ("pillarbox-namespace", "shop"),
        ("pillarbox-topic", sent.event.topic.as_str()),
        ("pillarbox-type", "OrderCreated"),
        ("pillarbox-version", "1"),
        ("pillarbox-aggregate-type", "order"),
        ("pillarbox-aggregate-id", "1"),
        ("pillarbox-key", "order-1"),
        ("pillarbox-created-at", "2027-01-15T08:00:00Z"),
        ("pillarbox-attempt", "3"),
        ("traceparent", "00-abc-1"),
        ("x-note", "Grüße"),
    ] {
        assert_eq!(
            headers.get(name).map(String::as_str),
            Some(value),
            "{name} in {headers:?}"
        );
    }
    Ok(())
}

pub async fn configured_headers_are_made_from_the_event(bench: Bench) -> Ran {
    let configured = [
        ("x-tenant", "{tenant_id}"),
        ("x-source", "shop"),
        ("X-Note", "{event_type} {{{header.region}}}"),
    ];
    let sink = bench.harness.with_headers(&configured).await?;
    let mut invalid = order(1);
    invalid.event = invalid.event.header("region", "Köln");
    let outcome = sink.deliver(&invalid).await;
    assert_eq!(outcome.name(), "reject", "it has no tenant: {outcome:?}");
    assert!(reason(&outcome).contains("`tenant_id`"), "{outcome:?}");
    let tenant = uuid::Uuid::now_v7();
    let mut sent = order(2);
    sent.event = (sent.event.tenant(tenant))
        .header("region", "Köln")
        .header("x-source", "forged")
        .header("x-note", "forged");
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let arrived = bench.arrived(1).await;
    assert_eq!(arrived.len(), 1, "{arrived:?}");
    let headers = &arrived[0].headers;
    for (name, value) in [
        ("x-tenant", tenant.to_string().as_str()),
        ("x-source", "shop"),
        ("x-note", "OrderCreated {Köln}"),
        ("region", "Köln"),
        ("pillarbox-id", sent.event.id.to_string().as_str()),
    ] {
        assert_eq!(
            headers.get(name).map(String::as_str),
            Some(value),
            "{name} in {headers:?}"
        );
    }
    Ok(())
}

pub async fn binary_payloads_arrive_as_they_were(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let bytes: Vec<u8> = (0..=255).collect();
    let event = Event::new("shop", "orders").bytes(bytes.clone(), "image/png");
    assert_eq!(sink.deliver(&delivery(event)).await, Outcome::Delivered);
    let arrived = bench.arrived(1).await;
    assert_eq!(arrived[0].payload, bytes);
    assert_eq!(arrived[0].content_type, "image/png");
    Ok(())
}

pub async fn an_empty_payload_arrives(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let event = Event::new("shop", "orders").bytes(&b""[..], "text/plain");
    assert_eq!(sink.deliver(&delivery(event)).await, Outcome::Delivered);
    assert_eq!(bench.arrived(1).await[0].payload, "");
    Ok(())
}

pub async fn a_large_payload_arrives(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let bytes: Vec<u8> = (0u8..=250).cycle().take(1024 * 1024).collect();
    let event = Event::new("shop", "orders").bytes(bytes.clone(), "application/octet-stream");
    assert_eq!(sink.deliver(&delivery(event)).await, Outcome::Delivered);
    assert!(
        bench.arrived(1).await[0].payload == bytes,
        "a megabyte arrived changed"
    );
    Ok(())
}

pub async fn the_same_event_may_be_delivered_twice_with_the_same_id(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let mut sent = order(1);
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    sent.attempts = 2;
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let copies = bench.copies_of_two();
    let arrived = bench.arrived(copies).await;
    assert!(arrived.iter().all(|one| one.id == sent.event.id), "{arrived:?}");
    bench.nothing_but(copies, &sink).await;
    Ok(())
}

pub async fn a_thousand_concurrent_events_all_arrive(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let sent: Vec<_> = (0..1000).map(order).collect();
    let ids: BTreeSet<_> = sent.iter().map(|delivery| delivery.event.id).collect();
    for (id, outcome) in bench.deliver_all(&sink, sent).await {
        assert_eq!(outcome, Outcome::Delivered, "{id}");
    }
    let arrived: Vec<_> = bench.arrived(1000).await.into_iter().map(|one| one.id).collect();
    assert_eq!(arrived.len(), 1000, "none arrived twice");
    assert_eq!(arrived.into_iter().collect::<BTreeSet<_>>(), ids);
    Ok(())
}

/// What `pipelined` rests on: the calls are made one after another, and none waits for the one before.
pub async fn an_ordered_sink_keeps_the_order_without_waiting(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    if !sink.keeps_order() {
        return Err(Skipped("it does not say that it keeps order"));
    }
    let sent: Vec<_> = (0..300)
        .map(|number| {
            let mut one = order(number);
            one.event.ordering_key = Some("all".to_owned());
            one.event.aggregate_id = Some("all".to_owned());
            one.lane = Some(77);
            one
        })
        .collect();
    // In one task, as the dispatcher does it, and from before the connection is open.
    let mut calls: FuturesUnordered<_> = sent.iter().map(|one| sink.deliver(one)).collect();
    while let Some(outcome) = calls.next().await {
        assert_eq!(outcome, Outcome::Delivered);
    }
    let arrived: Vec<_> = bench.arrived(300).await.into_iter().map(|one| one.id).collect();
    let ids: Vec<_> = sent.iter().map(|one| one.event.id).collect();
    assert!(arrived == ids, "300 events of one key arrived in another order");
    Ok(())
}
