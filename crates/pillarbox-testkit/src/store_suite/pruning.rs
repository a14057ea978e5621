//! Retention: what is deleted after its end, and what never.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use pillarbox::inbox::Key;
use pillarbox::{Delivery, Event, StoreError};
use pillarbox_store::archive::{Archive, Restored};
use pillarbox_store::audit::AuditFilter;
use pillarbox_store::retention::{DeleteOld, Keep, PruneRequest, Pruned, Retention, What};
use pillarbox_store::store::{Member, Routing, Settlement};
use pillarbox_store::{Scope, Verdict};
use uuid::Uuid;

use crate::OPERATOR;

use super::Ran;
use super::bench::{Bench, NO_ROWS, dead, event, retry, settlement};
use super::harness::{Capability, Field};

/// Delivered rows for 100 seconds, dead ones for 1,000.
fn short() -> Retention {
    Retention {
        keep: Keep {
            delivered: Some(Duration::from_secs(100)),
            dead: Some(Duration::from_secs(1_000)),
        },
        ..Retention::default()
    }
}

fn request(bench: &Bench, what: What, retention: &Retention) -> PruneRequest {
    PruneRequest {
        worker: bench.worker,
        lease: Duration::from_secs(60),
        what,
        scope: Scope::All,
        retention: retention.clone(),
        batch: 1_000,
        after: None,
        dry_run: false,
        archive: None,
    }
}

/// Makes a whole pass, and returns what it deleted.
async fn pass(bench: &Bench, mut request: PruneRequest) -> Pruned {
    let mut all = Pruned::default();
    loop {
        let pruned = bench.store().prune(&request).await.expect("prunes");
        all.add(&pruned);
        request.after = pruned.after;
        if request.after.is_none() {
            return all;
        }
    }
}

/// Prunes delivered and dead rows, and returns how many of each were deleted.
async fn prune(bench: &Bench, retention: &Retention) -> (u64, u64) {
    let mut all = Pruned::default();
    for what in [What::Delivered, What::Dead] {
        all.add(&pass(bench, request(bench, what, retention)).await);
    }
    (all.delivered, all.dead)
}

/// The rows that are there, by id.
async fn there(bench: &Bench) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = bench.rows().await.into_iter().map(|row| row.id).collect();
    ids.sort();
    ids
}

/// Writes a family of these destinations, and returns its rows.
async fn family(bench: &Bench, delivery: &Delivery, destinations: &[&str]) -> Vec<Delivery> {
    let members: Vec<Member> = destinations
        .iter()
        .enumerate()
        .map(|(place, name)| Member {
            id: if place == 0 { delivery.id } else { Uuid::now_v7() },
            destination: (*name).to_owned(),
            max_attempts: None,
        })
        .collect();
    let routing = Routing {
        id: delivery.id,
        claim: delivery.claim,
        members: members.clone(),
    };
    let routed = bench.store().route(bench.worker, &[routing]).await;
    assert_eq!(routed.expect("a routing").lost, NO_ROWS);
    let row = |member: &Member| Delivery {
        id: member.id,
        ..delivery.clone()
    };
    members.iter().map(row).collect()
}

/// Each by its own status.
pub async fn rows_are_pruned_when_they_are_old_enough(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    let delivered = bench.put_and_claim().await;
    bench.settle(&delivered, Verdict::Delivered).await;
    let refused = bench.put_and_claim().await;
    bench.settle(&refused, dead()).await;
    bench.age(50).await;
    assert_eq!(prune(&bench, &short()).await, (0, 0));
    bench.age(100).await;
    assert_eq!(
        prune(&bench, &Retention::default()).await,
        (0, 0),
        "everything is kept"
    );
    assert_eq!(prune(&bench, &short()).await, (1, 0));
    assert_eq!(there(&bench).await, [refused.id]);
    bench.age(1_000).await;
    assert_eq!(prune(&bench, &short()).await, (0, 1));
    assert_eq!(there(&bench).await, NO_ROWS);
    Ok(())
}

/// Neither one that waits, nor one that failed, nor one in flight, nor one whose lease expired.
pub async fn a_row_that_has_not_ended_is_never_pruned(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    let claimed = bench.put_and_claim().await;
    let failed = bench.put_and_claim().await;
    bench.settle(&failed, retry(1_000_000)).await;
    let waiting = bench.put(event()).await;
    bench.age(100_000).await;
    assert_eq!(prune(&bench, &short()).await, (0, 0));
    let mut expected = [claimed.id, failed.id, waiting];
    expected.sort();
    assert_eq!(there(&bench).await, expected);
    Ok(())
}

/// Once an operator has skipped it, it goes like any dead row.
pub async fn a_dead_row_that_blocks_its_key_is_never_pruned(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.needs(&[Field::OrderingKey])?;
    let events: Vec<Event> = (0..2).map(|_| event().ordering_key("customer-1")).collect();
    let rows = bench.put_all(&events).await;
    let claimed = bench.claim_keyed(1).await;
    bench.settle(&claimed[0], dead()).await;
    bench.age(100_000).await;
    assert_eq!(prune(&bench, &short()).await, (0, 0));
    assert_eq!(bench.claim_keyed(10).await, [], "it still blocks its key");
    assert_eq!(
        bench.operate().skip(&OPERATOR, &rows[..1]).await.expect("skips"),
        rows[..1]
    );
    assert_eq!(prune(&bench, &short()).await, (0, 0), "it changed just now");
    bench.age(2_000).await;
    assert_eq!(prune(&bench, &short()).await, (0, 1));
    assert_eq!(there(&bench).await, rows[1..]);
    Ok(())
}

/// Whichever member is delivered first.
pub async fn a_family_is_pruned_as_a_whole(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    let delivery = bench.put_and_claim().await;
    let rows = family(&bench, &delivery, &["a", "b", "c"]).await;
    bench.settle(&rows[1], Verdict::Delivered).await;
    bench.settle(&rows[0], Verdict::Delivered).await;
    bench.age(1_000).await;
    assert_eq!(prune(&bench, &short()).await, (0, 0), "one is in flight");
    bench.settle(&rows[2], dead()).await;
    bench.age(500).await;
    assert_eq!(
        prune(&bench, &short()).await,
        (0, 0),
        "the dead one is kept longer"
    );
    bench.age(1_000).await;
    let before = there(&bench).await;
    assert_eq!(before.len(), 3);
    let all = pass(&bench, request(&bench, What::Delivered, &short())).await;
    assert_eq!((all.delivered, all.dead), (2, 1));
    assert_eq!(there(&bench).await, NO_ROWS);
    Ok(())
}

/// Also if the first row was deleted by an operator.
pub async fn a_dead_sibling_that_blocks_its_key_keeps_its_family(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.needs(&[Field::OrderingKey])?;
    bench.put(event().ordering_key("customer-1")).await;
    let delivery = bench.claim_keyed(1).await.remove(0);
    let rows = family(&bench, &delivery, &["a", "b"]).await;
    bench.settle(&rows[0], Verdict::Delivered).await;
    bench.settle(&rows[1], dead()).await;
    bench.age(100_000).await;
    assert_eq!(prune(&bench, &short()).await, (0, 0));
    assert_eq!(there(&bench).await.len(), 2);
    bench
        .operate()
        .delete(&OPERATOR, &[rows[0].id])
        .await
        .expect("deletes");
    assert_eq!(prune(&bench, &short()).await, (0, 0));
    bench
        .operate()
        .skip(&OPERATOR, &[rows[1].id])
        .await
        .expect("skips");
    bench.age(2_000).await;
    assert_eq!(prune(&bench, &short()).await, (0, 1));
    Ok(())
}

/// And no namespace outside the scope loses a row.
pub async fn a_namespace_has_a_retention_of_its_own(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.needs(&[Field::Namespace])?;
    let mut ids = Vec::new();
    for namespace in ["audit", "other", "shop", "till"] {
        let id = bench.put(Event::new(namespace, "orders")).await;
        let delivery = bench.claim_one().await;
        bench.settle(&delivery, Verdict::Delivered).await;
        ids.push(id);
    }
    let mut retention = short();
    let kept = Keep {
        delivered: None,
        ..retention.keep
    };
    let longer = Keep {
        delivered: Some(Duration::from_secs(10_000)),
        ..retention.keep
    };
    retention.namespaces.insert("audit".to_owned(), kept);
    retention.namespaces.insert("till".to_owned(), longer);
    bench.age(1_000).await;
    let in_scope = PruneRequest {
        scope: Scope::of(["audit", "shop", "unknown"]),
        ..request(&bench, What::Delivered, &retention)
    };
    assert_eq!(pass(&bench, in_scope).await.delivered, 1);
    let mut expected = vec![ids[0], ids[1], ids[3]];
    expected.sort();
    assert_eq!(there(&bench).await, expected);
    assert_eq!(prune(&bench, &retention).await, (1, 0));
    bench.age(100_000).await;
    assert_eq!(prune(&bench, &retention).await, (1, 0));
    assert_eq!(there(&bench).await, [ids[0]]);
    Ok(())
}

/// Rows that stay do not keep a pass from what lies behind them, however small its batches are.
pub async fn a_pass_in_small_batches_deletes_everything(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.put_many(20).await;
    let claimed = bench.claim(20).await;
    let mut settlements: Vec<Settlement> = Vec::new();
    let mut staying = Vec::new();
    for (number, delivery) in claimed.iter().enumerate() {
        // Of every other event a second row is in flight.
        if number % 2 == 0 {
            let rows = family(&bench, delivery, &["a", "b"]).await;
            staying.extend(rows.iter().map(|row| row.id));
            settlements.push(settlement(&rows[0], Verdict::Delivered));
        } else {
            let verdict = if number % 3 == 0 {
                dead()
            } else {
                Verdict::Delivered
            };
            settlements.push(settlement(delivery, verdict));
        }
    }
    // In one call, so that all rows have one time.
    assert_eq!(bench.settle_all(&settlements).await, NO_ROWS);
    bench.age(100_000).await;
    let mut all = Pruned::default();
    for what in [What::Delivered, What::Dead] {
        let small = PruneRequest {
            batch: 3,
            ..request(&bench, what, &short())
        };
        all.add(&pass(&bench, small).await);
    }
    assert_eq!(all.delivered + all.dead, 10);
    staying.sort();
    assert_eq!(there(&bench).await, staying);
    Ok(())
}

/// The same key is new again.
pub async fn pruning_ends_the_dedupe_key(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.needs(&[Field::DedupeKey])?;
    let first = bench.put(event().dedupe_key("order-1")).await;
    let delivery = bench.claim_one().await;
    let unkept = Settlement {
        keep: false,
        ..settlement(&delivery, Verdict::Delivered)
    };
    assert_eq!(bench.settle_all(&[unkept]).await, NO_ROWS);
    let mut at_once = short();
    at_once.keep.delivered = Some(Duration::ZERO);
    bench.age(3_600).await;
    assert_eq!(
        prune(&bench, &at_once).await,
        (0, 0),
        "what is needed stays for a week"
    );
    assert_eq!(bench.put(event().dedupe_key("order-1")).await, first);
    bench.age(7 * 24 * 3_600).await;
    assert_eq!(prune(&bench, &at_once).await, (1, 0));
    assert_ne!(bench.put(event().dedupe_key("order-1")).await, first);
    Ok(())
}

/// Of all consumers, also of those that no longer run.
pub async fn old_marks_of_every_consumer_are_pruned(bench: Bench) -> Ran {
    bench.harness.can(Capability::Outbox)?;
    let keys = |count: usize| -> Vec<Key> { (0..count).map(|_| Key::event(Uuid::now_v7())).collect() };
    let mark = async |consumer: &str, keys: &[Key]| {
        let mut tx = bench.harness.begin().await;
        let new = tx.mark(consumer, keys).await.expect("marks");
        tx.commit().await;
        new
    };
    let (old, fresh) = (keys(5), keys(2));
    for consumer in ["billing", "gone", "mail"] {
        mark(consumer, &old).await;
    }
    bench.age(1_000).await;
    mark("mail", &fresh).await;
    let retention = Retention {
        inbox: Some(Duration::from_secs(100)),
        ..Retention::default()
    };
    let small = PruneRequest {
        batch: 2,
        ..request(&bench, What::Marks, &retention)
    };
    assert_eq!(pass(&bench, small).await.marks, 15);
    assert_eq!(mark("mail", &fresh).await, [false; 2]);
    assert_eq!(mark("gone", &old).await, [true; 5]);
    Ok(())
}

/// Counts first, deletes what was counted, and writes one line of the audit.
pub async fn an_operator_deletes_old_events(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.put_many(7).await;
    let claimed = bench.claim(6).await;
    let settlements: Vec<Settlement> = claimed
        .iter()
        .enumerate()
        .map(|(number, delivery)| settlement(delivery, if number < 2 { dead() } else { Verdict::Delivered }))
        .collect();
    assert_eq!(bench.settle_all(&settlements).await, NO_ROWS);
    bench.age(1_000).await;
    let alice = OPERATOR.clone().because("a test");
    let delete = async |what, older_than, dry_run, expected| -> (u64, u64) {
        let mut request = DeleteOld {
            what,
            older_than: Duration::from_secs(older_than),
            scope: Scope::All,
            batch: 3,
            after: None,
            dry_run,
            expected,
        };
        let mut all = Pruned::default();
        loop {
            let deleted = bench
                .operate()
                .delete_old(&alice, &request)
                .await
                .expect("deletes");
            all.add(&deleted);
            request.after = deleted.after;
            if request.after.is_none() {
                return (all.delivered, all.dead);
            }
        }
    };
    assert_eq!(delete(What::Delivered, 2_000, true, 0).await, (0, 0));
    assert_eq!(delete(What::Delivered, 100, true, 0).await, (4, 0));
    assert_eq!(delete(What::Dead, 100, true, 0).await, (0, 2));
    assert_eq!(there(&bench).await.len(), 7, "nothing is deleted by counting");
    assert_eq!(delete(What::Delivered, 100, false, 4).await, (4, 0));
    assert_eq!(delete(What::Dead, 100, false, 2).await, (0, 2));
    assert_eq!(there(&bench).await.len(), 1);
    let filter = AuditFilter {
        action: Some("events.delete".to_owned()),
        ..AuditFilter::default()
    };
    let lines = bench.operate().audit(&OPERATOR, &filter).await.expect("lines");
    let shown: Vec<_> = lines
        .iter()
        .map(|line| (line.objects.join(" "), line.count, line.reason.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            ("status=dead older_than=100s".to_owned(), 2, Some("a test")),
            ("status=delivered older_than=100s".to_owned(), 4, Some("a test")),
        ]
    );
    Ok(())
}

/// An archive in memory, which may fail.
#[derive(Debug, Default)]
struct Shelf {
    rows: Mutex<Vec<String>>,
    is_full: bool,
}

#[async_trait]
impl Archive for Shelf {
    async fn write(&self, rows: Vec<String>) -> Result<(), StoreError> {
        if self.is_full {
            return Err(StoreError::Other("no space left".to_owned()));
        }
        self.rows.lock().expect("no panic").extend(rows);
        Ok(())
    }
}

/// Every column comes back, whatever the payload is.
pub async fn pruned_rows_are_archived_and_can_be_restored(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.harness.can(Capability::Archive)?;
    bench.needs(&[Field::Bytes, Field::OrderingKey, Field::DedupeKey, Field::Headers])?;
    bench
        .put(
            event()
                .json(&serde_json::json!({ "text": "a\"ü\\", "list": [1.5, null] }))
                .expect("JSON"),
        )
        .await;
    bench
        .put(
            event()
                .bytes(vec![0, 1, 255], "image/png")
                .dedupe_key("k")
                .header("a", "b"),
        )
        .await;
    let claimed = bench.claim(10).await;
    assert_eq!(claimed.len(), 2);
    for delivery in &claimed {
        bench.settle(delivery, Verdict::Delivered).await;
    }
    let refused = bench.put(event().ordering_key("customer-1")).await;
    let keyed = bench.claim_keyed(10).await;
    bench.settle(&keyed[0], dead()).await;
    bench.operate().skip(&OPERATOR, &[refused]).await.expect("skips");
    bench.age(100_000).await;
    let mut before = bench.rows().await;
    before.sort_by_key(|row| row.id);
    let full = Arc::new(Shelf {
        is_full: true,
        ..Shelf::default()
    });
    let to = |archive: Arc<Shelf>, what| PruneRequest {
        archive: Some(archive),
        batch: 2,
        ..request(&bench, what, &short())
    };
    assert!(bench.store().prune(&to(full, What::Delivered)).await.is_err());
    assert_eq!(
        there(&bench).await.len(),
        3,
        "nothing is deleted that is not archived"
    );
    let shelf = Arc::new(Shelf::default());
    for what in [What::Delivered, What::Dead] {
        pass(&bench, to(Arc::clone(&shelf), what)).await;
    }
    assert_eq!(there(&bench).await, NO_ROWS);
    let rows = shelf.rows.lock().expect("no panic").clone();
    assert_eq!(rows.len(), 3);
    let restore = async |rows: &[String], dry_run| bench.operate().restore(&OPERATOR, rows, dry_run).await;
    let all = Restored {
        restored: 3,
        known: 0,
    };
    assert_eq!(restore(&rows, true).await.expect("counts"), all);
    assert_eq!(there(&bench).await, NO_ROWS, "a dry run restores nothing");
    assert_eq!(restore(&rows, false).await.expect("restores"), all);
    assert_eq!(
        restore(&rows, false).await.expect("restores"),
        Restored {
            restored: 0,
            known: 3
        }
    );
    let mut after = bench.rows().await;
    after.sort_by_key(|row| row.id);
    assert_eq!(after, before);
    let pending = rows[0].replace("delivered", "pending");
    assert!(
        restore(&[pending], false).await.is_err(),
        "only history is restored"
    );
    assert_eq!(bench.claim(10).await, [], "nothing is sent again");
    Ok(())
}
