//! What modkit's specification says of the columns, read by plain SQL: `docs/modkit.md` maps it to Pillarbox.

use pillarbox::Event;
use pillarbox_store::Store as _;
use pillarbox_testkit::store_suite::Harness as _;
use sqlx::{AssertSqlSafe, Row as _};

use super::harness::PostgresHarness;
use super::producer::request;

async fn enqueued(harness: &PostgresHarness) -> uuid::Uuid {
    let event = Event::new("shop", "usage");
    let mut transaction = harness.pool.begin().await.expect("begins");
    let outbox = harness.outbox();
    outbox.enqueue(&mut transaction, &event).await.expect("accepted");
    transaction.commit().await.expect("commits");
    event.id
}

/// Is it true of this row?
async fn holds(harness: &PostgresHarness, id: uuid::Uuid, condition: &str) -> bool {
    let sql = harness.sql(&format!(
        "select coalesce({condition}, false) as holds from pillarbox.outbox_events where id = '{id}'"
    ));
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&harness.pool).await;
    row.expect("it reads").get("holds")
}

#[tokio::test]
async fn a_new_row_is_pending_due_and_not_leased() {
    let harness = PostgresHarness::direct().await;
    let id = enqueued(&harness).await;
    for condition in [
        "namespace = 'shop' and topic = 'usage'",
        "status = 'pending' and attempts = 0",
        "next_attempt_at = created_at and next_attempt_at <= now()",
        "locked_by is null and locked_until is null",
    ] {
        assert!(holds(&harness, id, condition).await, "{condition}");
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn a_claim_writes_the_lease_at_once_and_skips_rows_that_others_lock() {
    let harness = PostgresHarness::direct().await;
    let (locked, free) = (enqueued(&harness).await, enqueued(&harness).await);
    let mut other = harness.pool.begin().await.expect("begins");
    let lock = harness.sql(&format!(
        "select 1 from pillarbox.outbox_events where id = '{locked}' for update"
    ));
    sqlx::query(AssertSqlSafe(lock))
        .execute(&mut *other)
        .await
        .expect("locks");

    let claim = request(10);
    let claimed = harness
        .store
        .claim(&claim)
        .await
        .expect("a claim that does not wait");
    assert_eq!(claimed.iter().map(|row| row.id).collect::<Vec<_>>(), [free]);
    let worker = claim.worker;
    for condition in [
        "status = 'processing' and attempts = 1".to_owned(),
        format!("locked_by = '{worker}' and locked_until = updated_at + interval '60 seconds'"),
        "updated_at > created_at".to_owned(),
    ] {
        assert!(holds(&harness, free, &condition).await, "{condition}");
    }
    assert!(holds(&harness, locked, "status = 'pending' and attempts = 0").await);
    drop(other);
    harness.clean_up().await;
}
