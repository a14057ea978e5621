//! Changes by others to a table that Pillarbox serves.

use std::time::Duration;

use pillarbox_store::stores::postgres::adopt::{Table, built_in};
use pillarbox_store::{Operate, Store, Verdict};
use serde_json::{Value, json};

use super::super::harness::unmigrated;
use super::harness::{Adopted, dead, importer, retry};
use super::seeds::{ARAP, FAMILY_HUB, ORDER_SERVICE, REDIVER};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::TIMEOUT;

#[tokio::test]
async fn a_dead_row_that_is_reset_is_imported_again() {
    for (seed, reset) in [
        (ARAP, "\"RetryCount\" = 0, \"Error\" = null"),
        (ORDER_SERVICE, "status = 'NEW'"),
        (
            REDIVER,
            "status = 'pending', retry_count = 0, scheduled_at = now()",
        ),
    ] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let mut delivery = adopted.take().await;
        for _ in 0..2 {
            adopted.settle(&delivery, retry(0)).await;
            delivery = adopted.claim().await.remove(0);
        }
        adopted.settle(&delivery, dead()).await;
        assert_eq!(adopted.import().await.rows, 0, "{}", seed.name);
        adopted.change(id, reset).await;
        let delivery = adopted.take().await;
        assert_eq!((delivery.event.id, delivery.attempts), (id, 1), "{}", seed.name);
        adopted.settle(&delivery, Verdict::Delivered).await;
        adopted.clean_up().await;
    }
}

/// JetStream drops a message whose row and `seq` it has seen.
#[tokio::test]
async fn a_reset_row_is_no_duplicate_of_its_first_delivery() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let first = adopted.take().await;
    adopted.settle(&first, retry(0)).await;
    let again = adopted.claim().await.remove(0);
    assert_eq!((again.id, again.seq), (first.id, first.seq), "a retry");
    adopted.settle(&again, Verdict::Delivered).await;
    adopted
        .change(
            id,
            "status = 'NEW', sent_at = null, payload = '{\"right\": true}'",
        )
        .await;
    let corrected = adopted.take().await;
    assert_eq!((corrected.id, corrected.event.id), (first.id, first.event.id));
    assert_ne!(corrected.seq, first.seq, "a reset");
    assert_ne!(corrected.event.payload, first.event.payload);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_in_backoff_that_is_reset_is_due_at_once() {
    let adopted = Adopted::new(FAMILY_HUB).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, retry(600)).await;
    assert_eq!(adopted.claim().await.len(), 0);
    adopted.change(id, "retry_count = 0").await;
    assert_eq!(adopted.import().await.reset, 1);
    assert_eq!(adopted.claim().await[0].attempts, 1);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_reset_in_flight_waits_and_delivered_wins() {
    let adopted = Adopted::new(FAMILY_HUB).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, retry(0)).await;
    let delivery = adopted.claim().await.remove(0);
    adopted.change(id, "retry_count = 0").await;
    assert_eq!(adopted.import().await.reset, 0, "it waits");
    adopted.settle(&delivery, Verdict::Delivered).await;
    assert_eq!(adopted.row(id).await["status"], json!(1));
    assert_eq!(adopted.import().await.rows, 0);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_reset_in_flight_wins_if_the_attempt_fails() {
    let adopted = Adopted::new(FAMILY_HUB).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, retry(0)).await;
    let delivery = adopted.claim().await.remove(0);
    adopted.change(id, "retry_count = 0").await;
    adopted.settle(&delivery, retry(600)).await;
    assert_eq!(
        adopted.row(id).await["retry_count"],
        json!(0),
        "the person's word stands"
    );
    assert_eq!(adopted.import().await.reset, 1);
    assert_eq!(adopted.claim().await[0].attempts, 1);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_late_settle_leaves_the_table_alone() {
    let adopted = Adopted::new(FAMILY_HUB).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    // The row is reset, and no import has run yet.
    adopted.change(id, "status = 0, processed_at = null").await;
    let before = adopted.row(id).await;
    for verdict in [Verdict::Delivered, retry(0), dead()] {
        assert_eq!(adopted.settle_late(&delivery, verdict).await, [delivery.id]);
    }
    assert_eq!(adopted.row(id).await, before, "the person's word stands");
    assert_eq!(adopted.import().await.rows, 1, "and is heard");
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_deleted_row_is_dropped() {
    let adopted = Adopted::new(REDIVER).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, retry(0)).await;
    adopted
        .run(&format!("delete from {{schema}}.tenants where id = '{id}'"))
        .await;
    assert_eq!(adopted.import().await.dropped, 1);
    assert_eq!(adopted.claim().await.len(), 0);
    assert_eq!(
        adopted
            .outbox
            .store
            .show(&OPERATOR, id)
            .await
            .expect("looks")
            .map(|row| row.id),
        None
    );
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_deleted_in_flight_is_dropped_when_it_fails() {
    let adopted = Adopted::new(REDIVER).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted
        .run(&format!("delete from {{schema}}.tenants where id = '{id}'"))
        .await;
    adopted.settle(&delivery, retry(0)).await;
    assert_eq!(adopted.import().await.dropped, 1);
    assert_eq!(adopted.claim().await.len(), 0);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_locked_row_stalls_no_other_and_is_written_back_later() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let (held, free) = (adopted.produce().await, adopted.produce().await);
    adopted.import().await;
    let claimed = adopted.claim().await;
    let session = adopted.hold(held).await;
    let settled = async {
        for delivery in &claimed {
            adopted.settle(delivery, Verdict::Delivered).await;
        }
    };
    tokio::time::timeout(TIMEOUT, settled)
        .await
        .expect("the settle does not wait");
    assert_eq!(adopted.row(free).await["status"], "SENT");
    assert_eq!(adopted.row(held).await["status"], "NEW");
    assert_eq!(adopted.import().await.rows, 0, "it is not taken again");
    session.rollback().await.expect("rolls back");
    adopted.import().await;
    assert_eq!(adopted.row(held).await["status"], "SENT");
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_manual_retry_is_written_back() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, dead()).await;
    assert_eq!(adopted.row(id).await["status"], "FAILED");
    adopted
        .outbox
        .store
        .retry(&OPERATOR, &[id])
        .await
        .expect("retries");
    assert_eq!(adopted.row(id).await["status"], "NEW");
    let delivery = adopted.claim().await.remove(0);
    adopted.settle(&delivery, Verdict::Delivered).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["error_message"]),
        (&json!("SENT"), &Value::Null)
    );
    adopted.clean_up().await;
}

#[tokio::test]
async fn one_worker_imports_at_a_time() {
    let adopted = Adopted::new(ARAP).await;
    adopted.produce().await;
    assert_eq!(adopted.import().await.rows, 1);
    adopted.produce().await;
    let rival = pillarbox_store::adopt::ImportRequest {
        worker: uuid::Uuid::new_v4(),
        lease: Duration::from_secs(60),
        batch: 10,
        max_in_progress: 100,
        detect_changes: true,
        prune: true,
    };
    let importer = importer(&adopted.outbox.store);
    assert_eq!(
        importer.import(&rival).await.expect("asks").rows,
        0,
        "another worker has the lease"
    );
    adopted
        .outbox
        .execute("update pillarbox.importers set leased_until = now() - interval '1 second'")
        .await;
    assert_eq!(importer.import(&rival).await.expect("imports").rows, 1);
    adopted.clean_up().await;
}

#[tokio::test]
async fn after_a_worker_deregisters_another_imports_at_once() {
    let adopted = Adopted::new(ARAP).await;
    let store = &adopted.outbox.store;
    let importer = importer(store);
    let [first, next] =
        [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(|worker| pillarbox_store::adopt::ImportRequest {
            worker,
            lease: Duration::from_secs(3600),
            batch: 10,
            max_in_progress: 100,
            detect_changes: true,
            prune: true,
        });
    adopted.produce().await;
    assert_eq!(importer.import(&first).await.expect("imports").rows, 1);
    adopted.produce().await;
    assert_eq!(
        importer.import(&next).await.expect("asks").rows,
        0,
        "the first worker has the lease"
    );
    store.deregister(first.worker).await.expect("leaves");
    assert_eq!(importer.import(&next).await.expect("imports").rows, 1);
    adopted.clean_up().await;
}

#[tokio::test]
async fn only_delivered_rows_are_pruned_and_only_if_configured() {
    let day = Duration::from_secs(86_400);
    let adopted = Adopted::with(ORDER_SERVICE, |table| Table {
        prune: Some(day),
        ..table
    })
    .await;
    let (old, young, failed) = (
        adopted.produce().await,
        adopted.produce().await,
        adopted.produce().await,
    );
    adopted.import().await;
    let claimed = adopted.claim().await;
    adopted.settle(&claimed[0], Verdict::Delivered).await;
    adopted.settle(&claimed[1], Verdict::Delivered).await;
    adopted.settle(&claimed[2], dead()).await;
    adopted.change(old, "sent_at = sent_at - interval '2 days'").await;
    adopted
        .change(failed, "sent_at = now() - interval '2 days'")
        .await;
    assert_eq!(adopted.import().await.pruned, 1);
    assert_eq!(adopted.row(old).await, Value::Null);
    assert_eq!(adopted.row(young).await["status"], "SENT");
    assert_eq!(adopted.row(failed).await["status"], "FAILED");
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_dead_row_is_pruned_unless_its_event_goes_on_or_blocks_its_key() {
    let adopted = Adopted::with(FAMILY_HUB, |table| Table {
        prune_dead: Some(Duration::from_secs(86_400)),
        ..table
    })
    .await;
    let (dead_one, blocking, retried, young) = (
        adopted.produce().await,
        adopted.produce().await,
        adopted.produce().await,
        adopted.produce().await,
    );
    adopted.import().await;
    let claimed = adopted.claim().await;
    assert_eq!(claimed.len(), 4);
    for delivery in &claimed {
        adopted.settle(delivery, dead()).await;
    }
    for id in [dead_one, blocking, retried] {
        adopted
            .change(id, "updated_at = updated_at - interval '2 days'")
            .await;
    }
    let native = |id: uuid::Uuid, set: &str| {
        let update = format!("update pillarbox.outbox_events set {set} where id = '{id}'");
        let outbox = &adopted.outbox;
        async move { outbox.execute(&update).await }
    };
    native(dead_one, "unordered = true").await;
    native(young, "unordered = true").await;
    native(blocking, "ordering_key = 'a', unordered = false").await;
    native(retried, "unordered = true, status = 'pending'").await;
    assert_eq!(adopted.import().await.pruned, 1);
    assert_eq!(adopted.row(dead_one).await, Value::Null);
    for id in [blocking, retried, young] {
        assert_ne!(adopted.row(id).await, Value::Null);
    }
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_with_an_unknown_status_is_left_alone_and_counted() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    adopted.change(id, "status = 'PARKED'").await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.unknown_status), (0, Some(1)));
    assert_eq!(adopted.row(id).await["status"], "PARKED");
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_misspelt_column_is_rejected_with_the_nearest_name() {
    let adopted = Adopted::new(ARAP).await;
    let store = unmigrated(&variable("PILLARBOX_TEST_POSTGRES_URL"));
    let mut layout = built_in("arap").expect("a layout");
    layout.table = adopted.place();
    layout.attempts = Some("RetryCont".to_owned());
    let table = Table {
        name: "arap".to_owned(),
        layout,
        poll: Duration::from_secs(1),
        batch: 1,
        ..adopted.table()
    };
    let refused = store
        .adopt(&[table])
        .await
        .expect_err("no such column")
        .to_string();
    assert!(
        refused.contains("adopted table `arap`: `attempts` names the column \"RetryCont\"")
            && refused.ends_with("did you mean \"RetryCount\"?"),
        "{refused}"
    );
    adopted.clean_up().await;
}
