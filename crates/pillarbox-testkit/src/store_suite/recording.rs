//! What a transaction sees of the outbox, and what aggregates recorded.

use pillarbox::testing::{assert_enqueued, assert_nothing_enqueued};
use pillarbox::{Clock, Enqueued, Event, Recorded, SystemClock};
use pillarbox_store::store::{Member, Routing};
use serde_json::json;
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, NO_ROWS, event};
use super::harness::Capability;

/// An event with something in every column.
fn full(tenant: Uuid) -> Event {
    Event::new("shop", "orders")
        .event_type("OrderCreated")
        .version(3)
        .aggregate("order", "42")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/42"))
        .ordering_key("order-42")
        .severity("high")
        .header("x-request", "r \"1\"")
        .destination("audit")
        .json(&json!({"order": 42, "text": "ä \\ \" 漢", "none": null, "list": [1, 2.5]}))
        .expect("JSON")
}

/// In the order in which they were enqueued; and nothing of it is left when the transaction rolls back.
pub async fn a_transaction_sees_the_outbox_and_its_own_events(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let committed = full(Uuid::new_v4());
    bench.put(committed.clone()).await;
    let bytes = event().bytes(&[0_u8, 255, 128, 10][..], "image/png");
    let later = event().deliver_at(SystemClock.wall() + time::Duration::days(1));
    let mut tx = bench.harness.begin().await;
    tx.enqueue(&[bytes.clone(), later.clone()])
        .await
        .expect("accepted");

    let seen = tx.enqueued().await;
    let ids: Vec<Uuid> = seen.iter().map(|event| event.id).collect();
    assert_eq!(ids, [committed.id, bytes.id, later.id]);
    for expected in [&committed, &bytes, &later] {
        assert_eq!(assert_enqueued(&seen, expected).id, expected.id);
    }
    tx.rollback().await;

    let mut tx = bench.harness.begin().await;
    let ids: Vec<Uuid> = tx.enqueued().await.iter().map(|event| event.id).collect();
    assert_eq!(ids, [committed.id]);
    tx.rollback().await;
    Ok(())
}

/// The tests of an application compare its payload, not the stored form.
pub async fn a_compressed_payload_is_seen_uncompressed(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let large = "outbox ".repeat(300_000);
    let json = event().json(&json!({ "text": large })).expect("JSON");
    let text = event().bytes(large.into_bytes(), "text/plain");
    let mut tx = bench.harness.begin().await;
    assert_nothing_enqueued(tx.enqueued().await);
    tx.enqueue(&[json.clone(), text.clone()]).await.expect("accepted");
    let seen = tx.enqueued().await;
    assert_enqueued(&seen, &json);
    assert_enqueued(&seen, &text);
    tx.rollback().await;
    Ok(())
}

/// Siblings are how it is delivered.
pub async fn a_family_is_seen_as_one_event(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let id = bench.put(event()).await;
    let delivery = bench.claim_one().await;
    let member = |id: Uuid, destination: &str| Member {
        id,
        destination: destination.to_owned(),
        max_attempts: Some(5),
    };
    let routing = Routing {
        id,
        claim: delivery.claim,
        members: vec![member(id, "mail"), member(Uuid::now_v7(), "chat")],
    };
    let routed = bench
        .store()
        .route(bench.worker, &[routing])
        .await
        .expect("routes");
    assert_eq!(routed.lost, NO_ROWS);
    assert_eq!(bench.rows().await.len(), 2);

    let mut tx = bench.harness.begin().await;
    let seen = tx.enqueued().await;
    tx.rollback().await;
    assert_eq!(seen.iter().map(|event| event.id).collect::<Vec<_>>(), [id]);
    Ok(())
}

/// The caller clears it after the commit.
pub async fn recorded_events_are_enqueued_in_order_and_stay_recorded(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let (mut recorded, ids) = recorded();
    let mut tx = bench.harness.begin().await;
    let enqueued = tx.enqueue_recorded(&mut recorded).await.expect("accepted");
    tx.commit().await;
    assert_eq!(enqueued, ids.map(Enqueued::New));
    assert_eq!(recorded.len(), ids.len());
    let claimed: Vec<Uuid> = bench.claim(10).await.iter().map(|one| one.event.id).collect();
    assert_eq!(claimed, ids);
    Ok(())
}

/// What never was is not there when it is looked up.
pub async fn recorded_events_that_were_rolled_back_are_enqueued_again(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let (mut recorded, ids) = recorded();
    for _ in 0..2 {
        let mut tx = bench.harness.begin().await;
        tx.enqueue_recorded(&mut recorded).await.expect("accepted");
        tx.rollback().await;
    }
    let mut tx = bench.harness.begin().await;
    let enqueued = tx.enqueue_recorded(&mut recorded).await.expect("accepted");
    tx.commit().await;
    assert_eq!(enqueued, ids.map(Enqueued::New));
    assert_eq!(bench.rows().await.len(), ids.len());
    Ok(())
}

/// The caller did not clear it, because the answer to the commit was lost.
pub async fn recorded_events_that_were_committed_are_not_enqueued_again(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let (mut recorded, ids) = recorded();
    let mut tx = bench.harness.begin().await;
    tx.enqueue_recorded(&mut recorded).await.expect("accepted");
    tx.commit().await;

    let later = event();
    recorded.record(&later);
    let mut tx = bench.harness.begin().await;
    let enqueued = tx.enqueue_recorded(&mut recorded).await.expect("accepted");
    tx.commit().await;
    assert_eq!(
        enqueued,
        [
            Enqueued::Duplicate(ids[0]),
            Enqueued::Duplicate(ids[1]),
            Enqueued::New(later.id)
        ]
    );
    assert_eq!(bench.rows().await.len(), 3);
    Ok(())
}

fn recorded() -> (Recorded, [Uuid; 2]) {
    let mut recorded = Recorded::default();
    let events = [event(), event()];
    for event in &events {
        recorded.record(event);
    }
    (recorded, events.map(|event| event.id))
}
