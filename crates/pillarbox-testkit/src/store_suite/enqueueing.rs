//! What goes into the outbox, and what does not.

use std::collections::BTreeSet;

use pillarbox::InvalidEvent;
use pillarbox::compress::decompress;
use pillarbox::inbox::Key;
use pillarbox::trace::{self, TraceContext};
use pillarbox::{EnqueueError, Enqueued, Event, Payload};
use pillarbox_store::Verdict;
use serde_json::json;
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, NO_ROWS, event, ids};
use super::harness::{Capability, Field};
use crate::OPERATOR;

/// What rolled back is never sent.
pub async fn rolled_back_events_are_never_claimed(bench: Bench) -> Ran {
    let mut tx = bench.harness.begin().await;
    tx.enqueue(&[event(), event()]).await.expect("accepted");
    tx.rollback().await;
    assert_eq!(ids(&bench.claim(10).await), NO_ROWS);
    assert_eq!(bench.rows().await, []);

    let kept = bench.put(event()).await;
    assert_eq!(ids(&bench.claim(10).await), [kept]);
    Ok(())
}

/// A transaction that took its place early and committed late is not passed over.
pub async fn late_commits_with_lower_seq_are_not_skipped(bench: Bench) -> Ran {
    bench.harness.can(Capability::ConcurrentTransactions)?;
    let mut early = bench.harness.begin().await;
    let late = early.enqueue(&[event()]).await.expect("accepted")[0].id();

    let first = bench.put_and_claim().await;
    bench.settle(&first, Verdict::Delivered).await;
    assert_eq!(ids(&bench.claim(10).await), NO_ROWS);

    early.commit().await;
    assert!(bench.is_due().await);
    let delivery = bench.claim_one().await;
    assert_eq!(delivery.id, late);
    if bench.harness.can(Capability::OwnTable).is_ok() {
        assert!(delivery.seq < first.seq, "it took its place first");
    }
    Ok(())
}

/// No claim sees an event before its commit.
pub async fn uncommitted_events_are_not_seen(bench: Bench) -> Ran {
    let mut tx = bench.harness.begin().await;
    let id = tx.enqueue(&[event()]).await.expect("accepted")[0].id();
    // A store with one writer would wait for it, so this asks only what reads.
    assert!(!bench.is_due().await);
    assert_eq!(bench.rows().await, []);
    tx.commit().await;
    assert!(bench.is_due().await);
    assert_eq!(bench.claim_one().await.id, id);
    Ok(())
}

/// The order of a call is the order of the rows.
pub async fn many_events_in_one_call_keep_their_order(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let mut events: Vec<Event> = (0..60)
        .map(|n| event().dedupe_key(format!("{:03}", 60 - n)))
        .collect();
    events.sort_by_key(|_| Uuid::new_v4()); // neither by key nor by id
    let put = bench.put_all(&events).await;
    assert_eq!(put, events.iter().map(|event| event.id).collect::<Vec<_>>());
    assert_eq!(ids(&bench.claim(100).await), put);
    Ok(())
}

/// Nothing to do is done without an error.
pub async fn an_empty_batch_does_nothing(bench: Bench) -> Ran {
    assert_eq!(bench.harness.enqueue(&[]).await.expect("accepted"), []);
    assert_eq!(bench.rows().await, []);
    Ok(())
}

/// All or none.
pub async fn an_invalid_event_rejects_the_whole_batch(bench: Bench) -> Ran {
    bench.harness.can(Capability::Checks)?;
    let mut tx = bench.harness.begin().await;
    let bad = event().json_text("{");
    let refused = tx.enqueue(&[event(), bad, event()]).await;
    assert!(
        matches!(refused, Err(EnqueueError::Invalid(InvalidEvent::NotJson(_)))),
        "{refused:?}"
    );
    tx.commit().await;
    assert_eq!(bench.rows().await, []);
    Ok(())
}

/// The caller decides what becomes of the rest of its transaction.
pub async fn a_rejected_event_leaves_the_transaction_usable(bench: Bench) -> Ran {
    bench.harness.can(Capability::Checks)?;
    let mut tx = bench.harness.begin().await;
    let before = tx.enqueue(&[event()]).await.expect("accepted")[0].id();
    tx.enqueue(&[Event::new("shop", "")])
        .await
        .expect_err("an empty topic");
    let after = tx.enqueue(&[event()]).await.expect("accepted")[0].id();
    tx.commit().await;
    assert_eq!(ids(&bench.claim(10).await), [before, after]);
    Ok(())
}

/// A key that names another tenant is refused, and nothing is inserted.
pub async fn a_tenant_and_a_dedupe_key_must_agree(bench: Bench) -> Ran {
    bench.harness.can(Capability::Checks)?;
    let (tenant, other) = (Uuid::new_v4(), Uuid::new_v4());
    let with = |key: String| event().tenant(tenant).dedupe_key(key);
    let refused = bench.harness.enqueue(&[with(format!("{other}/1"))]).await;
    assert!(
        matches!(
            refused,
            Err(EnqueueError::Invalid(InvalidEvent::TenantMismatch { .. }))
        ),
        "{refused:?}"
    );
    assert_eq!(bench.rows().await, []);

    let hyphenated = with(format!("{}/1", tenant.hyphenated()));
    let plain = with(format!("{}/1", tenant.simple()));
    assert_eq!(bench.put_all(&[hyphenated, plain]).await.len(), 2);
    assert_eq!(bench.rows().await.len(), 2);
    Ok(())
}

/// An event with such an id would suppress the event whose dedupe key is marked, or block the import of a row.
pub async fn no_producer_chooses_a_derived_id(bench: Bench) -> Ran {
    bench.harness.can(Capability::Checks)?;
    let mark = Key::dedupe("shop", "orders", "42").id();
    let refused = bench.harness.enqueue(&[event().id(mark)]).await;
    assert!(
        matches!(refused, Err(EnqueueError::Invalid(InvalidEvent::ReservedId(id))) if id == mark),
        "{refused:?}"
    );
    assert_eq!(bench.rows().await, []);
    Ok(())
}

/// A second event with the key of a first is not an error, and the caller learns about it.
pub async fn a_dedupe_conflict_is_already_enqueued(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let first = event().dedupe_key("order-1");
    let second = event().dedupe_key("order-1");
    let enqueued = bench
        .harness
        .enqueue(std::slice::from_ref(&first))
        .await
        .expect("accepted");
    assert_eq!(enqueued, [Enqueued::New(first.id)]);

    let fresh = event();
    let enqueued = bench
        .harness
        .enqueue(&[second, fresh.clone()])
        .await
        .expect("accepted");
    assert_eq!(enqueued, [Enqueued::Duplicate(first.id), Enqueued::New(fresh.id)]);
    assert_eq!(ids(&bench.claim(10).await), [first.id, fresh.id]);
    Ok(())
}

/// One call may hold the same key twice.
pub async fn a_duplicate_within_one_call_is_already_enqueued(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let events = [
        event().dedupe_key("a"),
        event().dedupe_key("b"),
        event().dedupe_key("a"),
    ];
    let enqueued = bench.harness.enqueue(&events).await.expect("accepted");
    let (a, b) = (events[0].id, events[1].id);
    assert_eq!(
        enqueued,
        [Enqueued::New(a), Enqueued::New(b), Enqueued::Duplicate(a)]
    );
    assert_eq!(ids(&bench.claim(10).await), [a, b]);
    Ok(())
}

/// Handing over the very same event again, id and key, is what a retried request does.
pub async fn the_same_event_twice_is_already_enqueued(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let twice = event().dedupe_key("order-1");
    bench.put(twice.clone()).await;
    let enqueued = bench
        .harness
        .enqueue(std::slice::from_ref(&twice))
        .await
        .expect("accepted");
    assert_eq!(enqueued, [Enqueued::Duplicate(twice.id)]);
    assert_eq!(bench.rows().await.len(), 1);
    Ok(())
}

/// Keys are unique within namespace and topic.
pub async fn the_same_dedupe_key_in_another_topic_is_new(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey, Field::Topic, Field::Namespace])?;
    let events = [
        Event::new("shop", "orders").dedupe_key("1"),
        Event::new("shop", "invoices").dedupe_key("1"),
        Event::new("till", "orders").dedupe_key("1"),
    ];
    let enqueued = bench.harness.enqueue(&events).await.expect("accepted");
    assert!(enqueued.iter().all(|one| one.is_new()), "{enqueued:?}");
    assert_eq!(bench.rows().await.len(), 3);
    Ok(())
}

/// Also after delivery; and no longer.
pub async fn a_dedupe_key_holds_as_long_as_its_row(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    bench.harness.can(Capability::OwnTable)?;
    let first = bench.put(event().dedupe_key("k")).await;
    let delivery = bench.claim_one().await;
    bench.settle(&delivery, Verdict::Delivered).await;
    let again = bench
        .harness
        .enqueue(&[event().dedupe_key("k")])
        .await
        .expect("accepted");
    assert_eq!(again, [Enqueued::Duplicate(first)]);

    assert_eq!(
        bench
            .operate()
            .delete(&OPERATOR, &[first])
            .await
            .expect("a delete"),
        [first]
    );
    let again = bench
        .harness
        .enqueue(&[event().dedupe_key("k")])
        .await
        .expect("accepted");
    assert!(again[0].is_new());
    Ok(())
}

/// What never was blocks nothing.
pub async fn a_dedupe_key_of_a_rolled_back_event_is_free(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let mut tx = bench.harness.begin().await;
    tx.enqueue(&[event().dedupe_key("k")]).await.expect("accepted");
    tx.rollback().await;
    let enqueued = bench
        .harness
        .enqueue(&[event().dedupe_key("k")])
        .await
        .expect("accepted");
    assert!(enqueued[0].is_new());
    Ok(())
}

/// One row is written, whichever transaction is first.
pub async fn racing_transactions_with_one_dedupe_key_write_one_row(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let mut first = bench.harness.begin().await;
    first.enqueue(&[event().dedupe_key("k")]).await.expect("accepted");
    let rivals: Vec<_> = (0..3)
        .map(|_| tokio::spawn(enqueue_in_own_transaction(bench.clone())))
        .collect();
    first.commit().await;
    for rival in rivals {
        rival.await.expect("no panic");
    }
    assert_eq!(bench.rows().await.len(), 1);
    assert_eq!(bench.claim(10).await.len(), 1);
    Ok(())
}

async fn enqueue_in_own_transaction(bench: Bench) -> Enqueued {
    bench
        .harness
        .enqueue(&[event().dedupe_key("k")])
        .await
        .expect("accepted")[0]
}

/// Not an error, but "already", with the id that won.
pub async fn the_loser_of_a_race_learns_the_first_id(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    bench.harness.can(Capability::EnqueueWaitsForRivals)?;
    let mut first = bench.harness.begin().await;
    let winner = first.enqueue(&[event().dedupe_key("k")]).await.expect("accepted")[0].id();
    let rival = tokio::spawn(enqueue_in_own_transaction(bench.clone()));
    tokio::task::yield_now().await;
    assert!(!rival.is_finished(), "it waits for the first to end");
    first.commit().await;
    assert_eq!(rival.await.expect("no panic"), Enqueued::Duplicate(winner));
    Ok(())
}

/// The key is free again when the first gives up, also for one that is waiting for it.
pub async fn the_second_is_new_when_the_first_rolls_back(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let mut first = bench.harness.begin().await;
    first.enqueue(&[event().dedupe_key("k")]).await.expect("accepted");
    let rival = tokio::spawn(enqueue_in_own_transaction(bench.clone()));
    tokio::task::yield_now().await;
    first.rollback().await;
    let second = rival.await.expect("no panic");
    assert!(second.is_new(), "{second:?}");
    assert_eq!(bench.claim_one().await.id, second.id());
    Ok(())
}

/// Two calls with the same keys in opposite order both come through.
pub async fn callers_with_crossing_keys_do_not_deadlock(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    bench.harness.can(Capability::Checks)?;
    let keys = |order: &[&str]| -> Vec<Event> {
        let once = order.iter().map(|key| event().dedupe_key(*key));
        once.collect()
    };
    for round in 0..10 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (there, back) = (keys(&[&a, &b]), keys(&[&b, &a]));
        let (one, two) = tokio::join!(bench.harness.enqueue(&there), bench.harness.enqueue(&back));
        let new: usize = [one.expect("accepted"), two.expect("accepted")]
            .iter()
            .flatten()
            .filter(|one| one.is_new())
            .count();
        // Where the commit decides, both believe to be first.
        if bench.harness.can(Capability::EnqueueWaitsForRivals).is_ok() {
            assert_eq!(new, 2);
        }
    }
    assert_eq!(bench.rows().await.len(), 20);
    Ok(())
}

/// An id is an event's own.
pub async fn an_id_that_exists_is_rejected(bench: Bench) -> Ran {
    bench.harness.can(Capability::Checks)?;
    let first = event();
    bench.put(first.clone()).await;
    let refused = bench.harness.enqueue(&[event().id(first.id)]).await;
    assert!(
        matches!(refused, Err(EnqueueError::IdTaken(id)) if id == first.id),
        "{refused:?}"
    );
    assert_eq!(bench.rows().await.len(), 1);
    Ok(())
}

/// Byte for byte, whatever they are.
pub async fn payload_bytes_come_back_as_they_were(bench: Bench) -> Ran {
    bench.needs(&[Field::Bytes])?;
    let every: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let bodies = [Vec::new(), vec![0], every, b"{\"b\" :1}".to_vec()];
    let events: Vec<Event> = bodies
        .iter()
        .map(|body| event().bytes(body.clone(), "application/x-test"))
        .collect();
    bench.put_all(&events).await;
    let claimed = bench.claim(10).await;
    let back: Vec<Payload> = claimed
        .iter()
        .map(|delivery| delivery.event.payload.clone())
        .collect();
    let sent: Vec<Payload> = bodies
        .into_iter()
        .map(|body| Payload::Bytes(body.into()))
        .collect();
    assert_eq!(back, sent);
    assert_eq!(claimed[0].event.media_type(), "application/x-test");
    Ok(())
}

/// The text may change, its value does not.
pub async fn json_payloads_come_back_equal_as_json(bench: Bench) -> Ran {
    bench.needs(&[Field::Json])?;
    let values = [
        json!({"b": 1, "a": [1, 2.5, null, true, {"ü\n\"\\": "\u{1F600}"}], "big": 12_345_678_901_234_567_890_u64}),
        json!(null),
        json!("text"),
        json!([]),
        json!(-7),
    ];
    let events: Vec<Event> = values
        .iter()
        .map(|value| event().json(value).expect("JSON"))
        .collect();
    bench.put_all(&events).await;
    for (delivery, value) in bench.claim(10).await.iter().zip(&values) {
        let Payload::Json(text) = &delivery.event.payload else {
            panic!("JSON stays JSON: {delivery:?}");
        };
        assert_eq!(
            &serde_json::from_slice::<serde_json::Value>(text).expect("JSON"),
            value
        );
    }
    Ok(())
}

/// Every field of an event reaches the sink and is shown to operators.
pub async fn all_columns_survive_the_round_trip(bench: Bench) -> Ran {
    bench.needs(&[
        Field::Namespace,
        Field::Topic,
        Field::Tenant,
        Field::DedupeKey,
        Field::OrderingKey,
        Field::Bytes,
        Field::Headers,
        Field::Destination,
    ])?;
    let tenant = Uuid::new_v4();
    let mut full = Event::new("shop ☕", "orders'\";--")
        .event_type("OrderCreated")
        .version(7)
        .aggregate("order", "42")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/42"))
        .ordering_key("order-42")
        .severity("critical")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .header("empty", "")
        .header("quote\"", "\\ ü \u{1F600}")
        .destination("broker")
        .bytes(vec![1, 2, 3], "application/x-protobuf");
    full.content_encoding = Some("zstd".into());
    let plain = event();
    bench.put_all(&[full.clone(), plain.clone()]).await;

    let shown = bench.show(full.id).await;
    assert_eq!(
        (shown.event.id, shown.tenant_id, shown.body_bytes),
        (full.id, Some(tenant), Some(3))
    );
    assert_eq!(shown.event, *full);
    assert_eq!(shown.destination.as_deref(), Some("broker"));

    let keyed = bench.claim_keyed(10).await;
    assert_eq!(keyed[0].event, full);
    assert!(keyed[0].lane.is_some());
    let free = bench.claim(10).await;
    assert_eq!(free[0].event, plain);
    assert_eq!(free[0].lane, None);
    Ok(())
}

/// More rows than a statement has room for parameters.
pub async fn a_large_batch_goes_through(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    let events: Vec<Event> = (0..10_000).map(|n| event().dedupe_key(format!("k{n}"))).collect();
    let put = bench.put_all(&events).await;
    let claimed = ids(&bench.claim(20_000).await);
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 10_000);
    assert_eq!(claimed, put);
    Ok(())
}

/// What came after the mark never was; what came before it stays.
pub async fn a_savepoint_that_rolls_back_takes_its_events_with_it(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey])?;
    bench.harness.can(Capability::Savepoints)?;
    let mut tx = bench.harness.begin().await;
    let kept = tx.enqueue(&[event()]).await.expect("accepted")[0].id();
    tx.savepoint().await;
    let gone = event().dedupe_key("k");
    tx.enqueue(&[gone, event()]).await.expect("accepted");
    tx.rollback_to_savepoint().await;
    let again = tx.enqueue(&[event().dedupe_key("k")]).await.expect("accepted")[0];
    assert!(again.is_new(), "the key is free again");
    tx.commit().await;
    assert_eq!(ids(&bench.claim(10).await), [kept, again.id()]);
    Ok(())
}

/// The row has the encoding, and its payload decompresses to the original.
pub async fn a_large_payload_is_compressed_and_marked_so(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let large = json!({"pad": "abcdefgh".repeat(256 * 1024), "last": 1});
    let events = [event().json(&large).expect("JSON"), event()];
    bench.put_all(&events).await;
    let claimed = bench.claim(10).await;
    let stored = &claimed[0].event;
    assert_eq!(stored.content_encoding.as_deref(), Some("zstd"));
    assert_eq!(stored.media_type(), "application/json");
    assert!(stored.payload.len() < 100_000, "{} bytes", stored.payload.len());
    let text = decompress(stored.payload.as_bytes(), 4 << 20).expect("zstd");
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&text).expect("JSON"),
        large
    );
    assert_eq!(
        claimed[1].event.content_encoding, None,
        "a small one stays as it is"
    );
    Ok(())
}

/// The trace of the caller is in the headers, unless the event has its own.
pub async fn an_event_has_the_trace_of_its_transaction(bench: Bench) -> Ran {
    const OURS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const THEIRS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    bench.harness.can(Capability::Outbox)?;
    let trace = TraceContext::parse(OURS, Some("shop=1")).expect("a sound trace");
    let events = [event(), event().header("traceparent", THEIRS)];
    trace::within(trace, bench.put_all(&events)).await;
    bench.put(event()).await;
    let claimed = bench.claim(10).await;
    let header = |n: usize, name: &str| claimed[n].event.headers.get(name).map(String::as_str);
    assert_eq!(
        (header(0, "traceparent"), header(0, "tracestate")),
        (Some(OURS), Some("shop=1"))
    );
    assert_eq!(
        (header(1, "traceparent"), header(1, "tracestate")),
        (Some(THEIRS), None)
    );
    assert_eq!(header(2, "traceparent"), None);
    Ok(())
}
