//! What an operator sees and does.

use crate::OPERATOR;
use pillarbox::Event;
use pillarbox_store::operate::Filter;
use pillarbox_store::store::Parked;
use pillarbox_store::{Scope, Status, Verdict};
use serde_json::json;
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, NO_ROWS, dead, event, ids, retry};
use super::harness::Field;

/// And how long the oldest due row has waited.
pub async fn stats_count_each_state(bench: Bench) -> Ran {
    let stats = async || {
        bench
            .operate()
            .stats(&OPERATOR, &Scope::All)
            .await
            .expect("stats")
    };
    let empty = stats().await;
    assert_eq!((empty.pending, empty.oldest_pending_seconds), (0, None));

    bench.put_many(6).await;
    let claimed = bench.claim(4).await;
    bench.settle(&claimed[0], Verdict::Delivered).await;
    bench.settle(&claimed[1], dead()).await;
    bench.settle(&claimed[2], retry(100_000)).await;
    bench.age(1_000).await;
    bench.put_many(1).await;
    let stats = stats().await;
    assert_eq!(
        (stats.pending, stats.processing, stats.delivered, stats.dead),
        (4, 1, 1, 1)
    );
    assert_eq!((stats.unknown, stats.exact), (0, true));
    let oldest = stats.oldest_pending_seconds.expect("there are due rows");
    assert!((1_000.0..1_500.0).contains(&oldest), "{oldest}");
    Ok(())
}

/// Like everything else.
pub async fn stats_stay_within_the_scope(bench: Bench) -> Ran {
    bench.needs(&[Field::Namespace])?;
    bench.put(Event::new("shop", "orders")).await;
    bench
        .put_all(&[Event::new("till", "orders"), Event::new("till", "orders")])
        .await;
    let pending = async |scope: Scope| {
        bench
            .operate()
            .stats(&OPERATOR, &scope)
            .await
            .expect("stats")
            .pending
    };
    assert_eq!(pending(Scope::of(["shop"])).await, 1);
    assert_eq!(pending(Scope::of(["till"])).await, 2);
    assert_eq!(pending(Scope::All).await, 3);
    Ok(())
}

/// Fifty unless another number is asked for.
pub async fn list_gives_the_newest_first_in_pages(bench: Bench) -> Ran {
    let mut put = bench.put_many(55).await;
    put.reverse();
    let page = bench.list(Filter::default()).await;
    assert_eq!(page.iter().map(|row| row.id).collect::<Vec<_>>(), put[..50]);
    assert!(
        page.iter().all(|row| row.payload.is_none()),
        "a list has no payloads"
    );
    let rest = bench
        .list(Filter {
            before: Some(page[49].seq),
            limit: 3,
            ..Filter::default()
        })
        .await;
    assert_eq!(rest.iter().map(|row| row.id).collect::<Vec<_>>(), put[50..53]);
    Ok(())
}

/// By state, topic and scope, and by all of them.
pub async fn list_filters(bench: Bench) -> Ran {
    bench.needs(&[Field::Namespace, Field::Topic])?;
    let put = bench
        .put_all(&[
            Event::new("shop", "orders"),
            Event::new("shop", "invoices"),
            Event::new("till", "orders"),
        ])
        .await;
    let first = bench.claim(1).await;
    bench.settle(&first[0], dead()).await;
    let list =
        async |filter: Filter| -> Vec<Uuid> { bench.list(filter).await.iter().map(|row| row.id).collect() };
    let all = Filter::default;
    let of_status = |status| Filter {
        status: Some(status),
        ..all()
    };
    assert_eq!(list(of_status(Status::Dead)).await, [put[0]]);
    assert_eq!(list(of_status(Status::Pending)).await, [put[2], put[1]]);
    assert_eq!(list(of_status(Status::Delivered)).await, NO_ROWS);
    assert_eq!(list(of_status(Status::Unknown(String::new()))).await, NO_ROWS);
    let topic = Some("orders".to_owned());
    let orders = Filter { topic, ..all() };
    assert_eq!(list(orders.clone()).await, [put[2], put[0]]);
    let scope = Scope::of(["shop"]);
    assert_eq!(
        list(Filter {
            scope: scope.clone(),
            ..all()
        })
        .await,
        [put[1], put[0]]
    );
    let status = Some(Status::Pending);
    assert_eq!(
        list(Filter {
            scope,
            status,
            ..orders
        })
        .await,
        NO_ROWS
    );
    Ok(())
}

/// JSON as it is, bytes as their number.
pub async fn show_gives_the_payload(bench: Bench) -> Ran {
    bench.needs(&[Field::Json, Field::Bytes])?;
    let value = json!({"order": 42, "lines": [1, 2]});
    let json = bench.put(event().json(&value).expect("JSON")).await;
    let bytes = bench.put(event().bytes(vec![0, 255], "image/png")).await;
    let (json, bytes) = (bench.show(json).await, bench.show(bytes).await);
    assert_eq!((json.payload, json.body_bytes), (Some(value), None));
    assert_eq!((bytes.payload, bytes.body_bytes), (Some(json!(null)), Some(2)));
    assert_eq!(
        bench
            .operate()
            .show(&OPERATOR, Uuid::new_v4())
            .await
            .expect("a query"),
        None
    );
    Ok(())
}

/// Due now, with all attempts; the last error stays to be read.
pub async fn a_manual_retry_makes_dead_and_pending_rows_due(bench: Bench) -> Ran {
    bench.put_many(2).await;
    let claimed = bench.claim(2).await;
    bench.settle(&claimed[0], dead()).await;
    bench.settle(&claimed[1], retry(100_000)).await;
    let mut retried = bench
        .operate()
        .retry(&OPERATOR, &ids(&claimed))
        .await
        .expect("a retry");
    let mut expected = ids(&claimed);
    retried.sort();
    expected.sort();
    assert_eq!(retried, expected);
    let row = bench.show(claimed[0].id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 0));
    assert_eq!(row.last_error.as_deref(), Some("refused"));

    let again = bench.claim(10).await;
    assert_eq!(ids(&again), ids(&claimed));
    assert!(again.iter().all(|delivery| delivery.attempts == 1));
    Ok(())
}

/// Delivered is final, and rows in flight are not changed.
pub async fn a_manual_retry_leaves_delivered_and_leased_rows_alone(bench: Bench) -> Ran {
    bench.put_many(2).await;
    let claimed = bench.claim(2).await;
    bench.settle(&claimed[0], Verdict::Delivered).await;
    let asked = [claimed[0].id, claimed[1].id, Uuid::new_v4()];
    assert_eq!(
        bench.operate().retry(&OPERATOR, &asked).await.expect("a retry"),
        NO_ROWS
    );
    assert_eq!(
        bench.operate().retry(&OPERATOR, &[]).await.expect("a retry"),
        NO_ROWS
    );
    assert_eq!(bench.show(claimed[0].id).await.status, "delivered");
    bench.settle(&claimed[1], Verdict::Delivered).await;
    Ok(())
}

/// The attempt that the operator gave up on is settled too late.
pub async fn the_old_claim_of_a_retried_row_cannot_settle(bench: Bench) -> Ran {
    let old = bench.put_and_claim().await;
    bench.settle(&old, dead()).await;
    assert_eq!(
        bench
            .operate()
            .retry(&OPERATOR, &[old.id])
            .await
            .expect("a retry"),
        [old.id]
    );
    assert_eq!(bench.try_settle(&old, Verdict::Delivered).await, [old.id]);
    let new = bench.claim_one().await;
    assert_eq!(bench.try_settle(&old, Verdict::Delivered).await, [old.id]);
    bench.settle(&new, Verdict::Delivered).await;
    Ok(())
}

/// Any other row may go, also one whose lease ran out.
pub async fn delete_leaves_leased_rows_alone(bench: Bench) -> Ran {
    bench.put_many(4).await;
    let claimed = bench.claim(3).await;
    bench.settle(&claimed[0], Verdict::Delivered).await;
    bench.settle(&claimed[1], dead()).await;
    let all: Vec<Uuid> = bench.rows().await.iter().map(|row| row.id).collect();
    let mut deleted = bench.operate().delete(&OPERATOR, &all).await.expect("a delete");
    let mut expected: Vec<Uuid> = all.iter().copied().filter(|id| *id != claimed[2].id).collect();
    deleted.sort();
    expected.sort();
    assert_eq!(deleted, expected);

    bench.age(100).await;
    assert_eq!(
        bench.operate().delete(&OPERATOR, &all).await.expect("a delete"),
        [claimed[2].id]
    );
    assert_eq!(bench.rows().await, []);
    assert_eq!(
        bench.try_settle(&claimed[2], Verdict::Delivered).await,
        [claimed[2].id]
    );
    Ok(())
}

/// With what is wrong and how much waits; a skipped one is dead and lets the others go.
pub async fn a_blocked_key_is_listed_and_can_be_skipped(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::Destination])?;
    let of = |key: &str| event().ordering_key(key).destination("chat");
    let put = bench
        .put_all(&[of("a"), of("b"), of("a"), of("b"), of("b"), of("c")])
        .await;
    let claimed = bench.claim_keyed(100).await;
    let verdicts = [
        dead(),
        retry(500),
        super::bench::release(0),
        super::bench::release(0),
        super::bench::release(0),
        Verdict::Delivered,
    ];
    for (delivery, verdict) in claimed.iter().zip(verdicts) {
        bench.settle(delivery, verdict).await;
    }
    bench.age(100).await;
    let blocked = async |limit| {
        bench
            .operate()
            .blocked(&OPERATOR, &Scope::All, limit)
            .await
            .expect("blocked keys")
    };
    let keys = blocked(10).await;
    let seen: Vec<_> = keys
        .iter()
        .map(|key| {
            (
                key.ordering_key.as_str(),
                key.head,
                key.status.as_str(),
                key.reason.as_deref(),
                key.behind,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a", put[0], "dead", Some("refused"), 1),
            ("b", put[1], "pending", Some("connection reset"), 2)
        ]
    );
    assert_eq!(keys[0].destination.as_deref(), Some("chat"));
    assert!(keys[0].age_seconds >= 100.0 && keys[0].next_attempt_at.is_none());
    assert!(keys[1].next_attempt_at.is_some());
    assert_eq!(blocked(1).await.len(), 1);
    let elsewhere = bench.operate().blocked(&OPERATOR, &Scope::of(["till"]), 10).await;
    assert_eq!(elsewhere.expect("blocked keys"), []);

    let mut skipped = bench.operate().skip(&OPERATOR, &put).await.expect("a skip");
    let mut expected = put[..5].to_vec();
    skipped.sort();
    expected.sort();
    assert_eq!(skipped, expected, "the delivered one is left alone");
    assert_eq!(blocked(10).await, []);
    let row = bench.show(put[2]).await;
    assert_eq!((row.status.as_str(), row.unordered), ("dead", true));
    assert_eq!(row.last_error.as_deref(), Some(pillarbox_store::operate::SKIPPED));
    assert_eq!(
        bench.show(put[1]).await.last_error.as_deref(),
        Some("connection reset")
    );
    assert_eq!(
        bench.operate().skip(&OPERATOR, &put).await.expect("a skip"),
        NO_ROWS
    );
    Ok(())
}

/// Only while a worker is alive: without any, nothing at all is served.
pub async fn keys_that_no_live_worker_serves_are_listed(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::Destination])?;
    let of = |key: &str, destination: &str| event().ordering_key(key).destination(destination);
    let put = bench
        .put_all(&[of("a", "lost"), of("a", "lost"), of("b", "lost"), of("c", "mail")])
        .await;
    let blocked = async |limit| {
        let mut keys = bench
            .operate()
            .blocked(&OPERATOR, &Scope::All, limit)
            .await
            .expect("blocked keys");
        keys.sort_by_key(|key| key.seq);
        keys
    };
    assert_eq!(blocked(10).await, [], "no worker is alive");
    bench.heartbeat_serving(&["mail"], &["mail"]).await;
    let keys = blocked(10).await;
    let seen: Vec<_> = keys
        .iter()
        .map(|key| {
            (
                key.head,
                key.ordering_key.as_str(),
                key.status.as_str(),
                key.behind,
            )
        })
        .collect();
    assert_eq!(seen, [(put[0], "a", "pending", 1), (put[2], "b", "pending", 0)]);
    let reason = keys[0].reason.as_deref().unwrap_or_default();
    assert!(
        reason.contains("no live worker serves the destination `lost`"),
        "{reason}"
    );
    assert_eq!(blocked(1).await.len(), 1);
    bench.rival().heartbeat_serving(&["lost"], &[]).await;
    assert_eq!(blocked(10).await, []);
    Ok(())
}

/// They stay dead and block no other row.
pub async fn dead_rows_that_block_are_listed_and_unparked(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let of = || event().ordering_key("a");
    let put = bench.put_all(&[of(), of()]).await;
    let claimed = bench.claim_keyed(100).await;
    bench.settle(&claimed[0], dead()).await;
    bench.settle(&claimed[1], super::bench::release(0)).await;
    let blocking = async || {
        bench
            .store()
            .parked(Parked::Blocking, &Scope::All, None, 10)
            .await
            .expect("a query")
    };
    assert_eq!(
        blocking().await.iter().map(|stub| stub.id).collect::<Vec<_>>(),
        [put[0]]
    );
    assert_eq!(
        bench
            .store()
            .unpark(Parked::Blocking, &put)
            .await
            .expect("unparks"),
        [put[0]]
    );
    assert_eq!(blocking().await, []);
    assert_eq!(bench.show(put[0]).await.status, "dead");
    assert_eq!(ids(&bench.claim_keyed(100).await), [put[1]]);
    Ok(())
}

/// What was made for this program is good enough for it.
pub async fn check_accepts_a_fresh_outbox(bench: Bench) -> Ran {
    bench.store().check().await.expect("content");
    Ok(())
}
