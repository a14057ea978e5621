//! What people do to a table while it is being worked on.

use std::time::Duration;

use pillarbox::{Operate, Store, Verdict};
use serde_json::{Value, json};

use super::harness::{Adopted, dead, retry};
use super::seeds::{ARAP, FAMILY_HUB, ORDER_SERVICE, REDIVER};

#[tokio::test]
async fn a_dead_row_that_a_person_resets_is_imported_anew() {
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

#[tokio::test]
async fn a_row_in_backoff_that_a_person_resets_is_due_at_once() {
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
async fn a_reset_while_the_row_is_processed_waits_and_delivered_wins() {
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
async fn a_reset_while_the_row_is_processed_holds_if_the_attempt_fails() {
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
async fn a_row_that_is_gone_is_dropped_quietly() {
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
            .show(id)
            .await
            .expect("looks")
            .map(|row| row.id),
        None
    );
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_that_goes_while_it_is_processed_is_dropped_when_it_fails() {
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
async fn a_row_that_somebody_holds_locked_stalls_nobody_and_is_told_later() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let (held, free) = (adopted.produce().await, adopted.produce().await);
    adopted.import().await;
    let claimed = adopted.claim().await;
    let mut somebody = adopted.outbox.pool.begin().await.expect("begins");
    let lock = adopted.lock_sql(held);
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock))
        .execute(&mut *somebody)
        .await
        .expect("locks");
    let settled = async {
        for delivery in &claimed {
            adopted.settle(delivery, Verdict::Delivered).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled)
        .await
        .expect("nobody waits");
    assert_eq!(adopted.row(free).await["status"], "SENT");
    assert_eq!(adopted.row(held).await["status"], "NEW");
    assert_eq!(adopted.import().await.rows, 0, "it is not taken again");
    somebody.rollback().await.expect("lets go");
    adopted.import().await;
    assert_eq!(adopted.row(held).await["status"], "SENT");
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_person_who_retries_here_is_heard_there() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, dead()).await;
    assert_eq!(adopted.row(id).await["status"], "FAILED");
    adopted.outbox.store.retry(&[id]).await.expect("retries");
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
    let rival = pillarbox::store::ImportRequest {
        source: "arap".to_owned(),
        worker: uuid::Uuid::new_v4(),
        lease: Duration::from_secs(60),
        batch: 10,
        most: 100,
    };
    let store = &adopted.outbox.store;
    assert_eq!(
        store.import(&rival).await.expect("asks").rows,
        0,
        "it is somebody else's"
    );
    adopted
        .outbox
        .execute("update pillarbox.importers set until = now() - interval '1 second'")
        .await;
    assert_eq!(store.import(&rival).await.expect("imports").rows, 1);
    adopted.clean_up().await;
}
