//! Delivered rows that are not kept.

use crate::OPERATOR;
use pillarbox::Delivery;
use pillarbox_store::Verdict;
use pillarbox_store::store::{Member, Routing, Settlement};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, LEASE, NO_ROWS, dead, event, ids, release, retry, settlement, suspect};
use super::harness::{Capability, Field, Skipped};

fn unkept(delivery: &Delivery, verdict: Verdict) -> Settlement {
    Settlement {
        keep: false,
        ..settlement(delivery, verdict)
    }
}

/// The rows that are there, by id.
async fn there(bench: &Bench) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = bench.rows().await.into_iter().map(|row| row.id).collect();
    ids.sort();
    ids
}

/// Also one that leaves its lane, and one that was retried.
pub async fn a_delivered_row_that_is_not_kept_is_deleted(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    let kept = bench.put_and_claim().await;
    bench.settle(&kept, Verdict::Delivered).await;
    let tried = bench.put_tried(2).await;
    bench.put_many(3).await;
    let claimed = bench.claim(10).await;
    assert!(ids(&claimed).contains(&tried));
    let mut batch: Vec<Settlement> = claimed
        .iter()
        .map(|delivery| unkept(delivery, Verdict::Delivered))
        .collect();
    batch[0].unordered = true;
    batch[1].destination = Some("broker".into());
    assert_eq!(bench.settle_all(&batch).await, NO_ROWS);
    assert_eq!(there(&bench).await, [kept.id]);
    assert!(!bench.is_due().await);
    Ok(())
}

/// Every other verdict is written.
pub async fn only_a_delivered_row_is_deleted(bench: Bench) -> Ran {
    bench.put_many(4).await;
    let claimed = bench.claim(4).await;
    let verdicts = [retry(30), release(30), dead(), suspect(30)];
    let batch: Vec<Settlement> = claimed
        .iter()
        .zip(verdicts)
        .map(|(delivery, verdict)| unkept(delivery, verdict))
        .collect();
    assert_eq!(bench.settle_all(&batch).await, NO_ROWS);
    let mut seen = Vec::new();
    for delivery in &claimed {
        seen.push(bench.show(delivery.id).await.status);
    }
    assert_eq!(seen, ["pending", "pending", "dead", "processing"]);
    Ok(())
}

/// A duplicate is still recognised.
pub async fn a_row_with_a_dedupe_key_is_kept(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.needs(&[Field::DedupeKey])?;
    let first = bench.put(event().dedupe_key("order-1")).await;
    let without = bench.put(event()).await;
    let claimed = bench.claim(10).await;
    assert_eq!(ids(&claimed), [first, without]);
    let batch: Vec<Settlement> = claimed
        .iter()
        .map(|delivery| unkept(delivery, Verdict::Delivered))
        .collect();
    assert_eq!(bench.settle_all(&batch).await, NO_ROWS);
    assert_eq!(there(&bench).await, [first]);
    assert_eq!(bench.show(first).await.status, "delivered");
    assert_eq!(bench.put(event().dedupe_key("order-1")).await, first);
    Ok(())
}

/// The first row as well as its siblings, in whatever order they are delivered.
pub async fn a_family_is_kept(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let sibling = Uuid::now_v7();
    let member = |id, destination: &str| Member {
        id,
        destination: destination.into(),
        max_attempts: None,
    };
    let routing = Routing {
        id: delivery.id,
        claim: delivery.claim,
        members: vec![member(delivery.id, "a"), member(sibling, "b")],
    };
    let routed = bench.store().route(bench.worker, &[routing]).await;
    assert_eq!(routed.expect("a routing").lost, NO_ROWS);
    for id in [sibling, delivery.id] {
        let member = Settlement {
            id,
            ..unkept(&delivery, Verdict::Delivered)
        };
        assert_eq!(bench.settle_all(&[member]).await, NO_ROWS);
        assert_eq!(bench.show(id).await.status, "delivered");
    }
    assert_eq!(bench.rows().await.len(), 2);
    Ok(())
}

/// The table itself says what became of the event.
pub async fn a_row_of_an_adopted_table_is_kept(bench: Bench) -> Ran {
    if bench.harness.can(Capability::OwnTable).is_ok() {
        return Err(Skipped("no table is adopted"));
    }
    let delivery = bench.put_and_claim().await;
    let delivered = unkept(&delivery, Verdict::Delivered);
    assert_eq!(bench.settle_all(&[delivered]).await, NO_ROWS);
    assert_eq!(bench.show(delivery.id).await.status, "delivered");
    Ok(())
}

/// The next rows of the key follow, in their order.
pub async fn a_deleted_row_frees_its_key(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.needs(&[Field::OrderingKey])?;
    let events: Vec<_> = (0..3).map(|_| event().ordering_key("customer-1")).collect();
    let rows = bench.put_all(&events).await;
    let claimed = bench.claim_keyed(10).await;
    assert_eq!(ids(&claimed), rows);
    let batch = [
        unkept(&claimed[0], Verdict::Delivered),
        unkept(&claimed[1], retry(30)),
        unkept(&claimed[2], release(0)),
    ];
    assert_eq!(bench.settle_all(&batch).await, NO_ROWS);
    let mut left = rows[1..].to_vec();
    left.sort();
    assert_eq!(there(&bench).await, left);
    assert_eq!(bench.claim_keyed(10).await, [], "the second blocks the third");
    bench.age(100).await;
    assert_eq!(ids(&bench.claim_keyed(10).await), rows[1..]);
    Ok(())
}

/// Of a batch, those that another worker holds, those under another claim, and those that are gone.
pub async fn rows_that_were_lost_are_reported_and_stay(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.put_many(3).await;
    let claimed = bench.claim(3).await;
    let mut batch: Vec<Settlement> = claimed
        .iter()
        .map(|delivery| unkept(delivery, Verdict::Delivered))
        .collect();
    batch[1].claim = Uuid::new_v4();
    batch.push(Settlement {
        id: Uuid::new_v4(),
        ..batch[0].clone()
    });
    assert_eq!(bench.rival().settle_all(&batch[..1]).await, [batch[0].id]);
    let mut lost = bench.settle_all(&batch).await;
    let mut expected = [batch[1].id, batch[3].id];
    lost.sort();
    expected.sort();
    assert_eq!(lost, expected);
    assert_eq!(there(&bench).await, [claimed[1].id]);
    assert_eq!(bench.show(claimed[1].id).await.status, "processing");
    Ok(())
}

/// A second settlement and a late renewal are told that the row is lost.
pub async fn a_deleted_row_cannot_be_settled_or_renewed(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    let delivery = bench.put_and_claim().await;
    let delivered = unkept(&delivery, Verdict::Delivered);
    assert_eq!(bench.settle_all(std::slice::from_ref(&delivered)).await, NO_ROWS);
    assert_eq!(bench.settle_all(&[delivered]).await, [delivery.id]);
    assert_eq!(bench.try_settle(&delivery, retry(0)).await, [delivery.id]);
    let held = (delivery.id, delivery.claim);
    assert_eq!(bench.renew(&[held], LEASE).await, [delivery.id]);
    assert_eq!(there(&bench).await, NO_ROWS);
    Ok(())
}

/// The other rows of its claim are renewed, expire and are claimed again as if it were there.
pub async fn the_rest_of_a_claim_outlives_a_deleted_row(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.put_many(3).await;
    let claimed = bench.claim(3).await;
    let first = unkept(&claimed[0], Verdict::Delivered);
    assert_eq!(bench.settle_all(&[first]).await, NO_ROWS);
    bench.age(40).await;
    let held: Vec<(Uuid, Uuid)> = claimed[1..].iter().map(|row| (row.id, row.claim)).collect();
    assert_eq!(bench.renew(&held, LEASE).await, NO_ROWS);
    bench.age(40).await;
    assert_eq!(bench.claim(10).await, [], "the lease was renewed");
    let second = unkept(&claimed[1], Verdict::Delivered);
    assert_eq!(bench.settle_all(&[second]).await, NO_ROWS);
    bench.age(40).await;
    let again = bench.rival().claim_one().await;
    assert_eq!((again.id, again.attempts), (claimed[2].id, 2));
    assert_eq!(
        bench.try_settle(&claimed[2], Verdict::Delivered).await,
        [again.id]
    );
    Ok(())
}

/// Long after its claim there is nothing to sweep, to claim or to free.
pub async fn a_deleted_row_leaves_no_lease_behind(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    let delivery = bench.put_and_claim().await;
    let delivered = unkept(&delivery, Verdict::Delivered);
    assert_eq!(bench.settle_all(&[delivered]).await, NO_ROWS);
    let stats = bench
        .operate()
        .stats(&OPERATOR, &pillarbox_store::Scope::All)
        .await;
    assert_eq!(stats.expect("statistics").processing, 0);
    bench.age(1_000).await;
    let swept = bench.sweep().await;
    assert_eq!(
        (swept.dead.len(), swept.suspects, swept.lone_suspect),
        (0, false, false)
    );
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.claim_alone().await, []);
    Ok(())
}
