//! Rows whose import failed are tried again: by themselves, with a slow backoff, and at once if an operator asks.

use std::time::Duration;

use pillarbox_store::Operate;
use pillarbox_store::adopt::ImportRequest;
use pillarbox_testkit::OPERATOR;

use super::failures::{WIDE, record, text, wide};
use super::harness::{Adopted, importer};
use super::large::settled;
use super::odd::{adopt, url};
use super::seeds::ORDER_SERVICE;

/// A trigger of the outbox that raises this error for events with such a payload.
async fn refuse(adopted: &Adopted, code: &str, payload: &str) {
    adopted
        .outbox
        .execute(&format!(
            "create function pillarbox.refuse() returns trigger language plpgsql as $$
               begin raise exception 'the audit log is full' using errcode = '{code}'; end $$;
             create trigger refuse before insert on pillarbox.outbox_events for each row
               when (new.payload = '{payload}') execute function pillarbox.refuse()"
        ))
        .await;
}

async fn accept(adopted: &Adopted) {
    adopted
        .outbox
        .execute("drop trigger refuse on pillarbox.outbox_events")
        .await;
}

async fn insert(adopted: &Adopted, payload: &str, rows: usize) {
    adopted
        .run(&format!(
            "insert into {{schema}}.outbox (payload) select '{payload}' from generate_series(1, {rows})"
        ))
        .await;
}

/// So much time passes.
async fn wait(adopted: &Adopted, minutes: u32) {
    adopted
        .outbox
        .execute(&format!(
            "update pillarbox.import_failures set next_attempt_at = next_attempt_at - interval '{minutes} minutes'"
        ))
        .await;
}

#[tokio::test]
async fn rows_that_failed_by_an_outside_cause_are_retried_by_themselves() {
    let adopted = adopt(&url(), "{schema}.outbox", WIDE, wide()).await;
    refuse(&adopted, "P0001", "7").await;
    insert(&adopted, "7", 12).await;
    insert(&adopted, "1", 3).await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (3, 12));
    accept(&adopted).await;
    let early = adopted.import().await;
    assert_eq!((early.rows, early.failed), (0, 0), "they wait a minute");
    wait(&adopted, 1).await;
    let late = adopted.import().await;
    assert_eq!((late.rows, late.failed), (12, 0));
    assert_eq!(record(&adopted).await.not_imported, 0);
    adopted.clean_up().await;
}

#[tokio::test]
async fn the_wait_doubles_up_to_an_hour_and_begins_again_when_the_row_changes() {
    let adopted = adopt(&url(), "{schema}.outbox", WIDE, wide()).await;
    refuse(&adopted, "P0001", "7").await;
    insert(&adopted, "7", 1).await;
    adopted.import().await;
    let waits = "select attempts || ' ' || round(extract(epoch from next_attempt_at - failed_at) / 60)
        from pillarbox.import_failures";
    let mut seen = vec![text(&adopted, waits).await.expect("is recorded")];
    for minutes in [1, 2, 4, 8, 16, 32, 60] {
        wait(&adopted, minutes).await;
        assert_eq!(adopted.import().await.failed, 1);
        seen.push(text(&adopted, waits).await.expect("is recorded"));
    }
    assert_eq!(seen, ["1 1", "2 2", "3 4", "4 8", "5 16", "6 32", "7 60", "8 60"]);
    adopted.run("update {schema}.outbox set texts = 'x'").await;
    assert_eq!(adopted.import().await.failed, 1);
    assert_eq!(text(&adopted, waits).await.as_deref(), Some("1 1"));
    adopted.clean_up().await;
}

#[tokio::test]
async fn an_internal_error_of_one_row_does_not_stop_the_others() {
    for code in ["XX000", "XX001", "XX002"] {
        let adopted = adopt(&url(), "{schema}.outbox", WIDE, wide()).await;
        refuse(&adopted, code, "7").await;
        insert(&adopted, "1", 3).await;
        insert(&adopted, "7", 1).await;
        insert(&adopted, "1", 3).await;
        let imported = importer(&adopted.outbox.store).import(&adopted.request()).await;
        let imported = imported.expect("the table is imported");
        assert_eq!((imported.rows, imported.failed), (6, 1), "{code}");
        let error = text(&adopted, "select error from pillarbox.import_failures").await;
        assert_eq!(error, Some(format!("the audit log is full ({code})")));
        adopted.clean_up().await;
    }
}

/// A round tries few of them again, and takes all that succeed.
#[tokio::test]
async fn many_due_rows_cost_a_bounded_part_of_each_round() {
    let adopted = adopt(&url(), "{schema}.outbox", WIDE, wide()).await;
    refuse(&adopted, "P0001", "7").await;
    insert(&adopted, "7", 250).await;
    let mut failed = 0;
    while failed < 250 {
        failed += adopted.import().await.failed;
    }
    wait(&adopted, 1).await;
    let again = adopted.import().await;
    assert_eq!(again.rows, 0);
    assert!((1..=20).contains(&again.failed), "{again:?}");
    accept(&adopted).await;
    let rest = adopted.import().await;
    assert_eq!(
        (rest.rows, rest.failed),
        (250 - again.failed, 0),
        "those that were tried wait again"
    );
    wait(&adopted, 2).await;
    assert_eq!(adopted.import().await.rows, again.failed);
    assert_eq!(record(&adopted).await.not_imported, 0);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_due_row_that_another_session_holds_keeps_no_other_from_its_turn() {
    let adopted = adopt(&url(), "{schema}.outbox", WIDE, wide()).await;
    refuse(&adopted, "P0001", "7").await;
    insert(&adopted, "7", 2).await;
    assert_eq!(adopted.import().await.failed, 2);
    accept(&adopted).await;
    wait(&adopted, 1).await;
    let mut session = adopted.outbox.pool.begin().await.expect("begins");
    let lock = format!("select from {} where id = 1 for update", adopted.place());
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock))
        .execute(&mut *session)
        .await
        .expect("locks");
    assert_eq!(adopted.import().await.rows, 1);
    let waits = "select row_id from pillarbox.import_failures where next_attempt_at > now()";
    assert_eq!(text(&adopted, waits).await.as_deref(), Some("1"));
    session.rollback().await.expect("rolls back");
    wait(&adopted, 1).await;
    assert_eq!(adopted.import().await.rows, 1);
    adopted.clean_up().await;
}

/// Counted in rows, not in time. Conflicts fail without a statement of their own, so many are quickly made.
#[tokio::test]
async fn failed_rows_are_not_read_again_in_every_round() {
    const FAILED: i64 = 20_000;
    const ROUNDS: i64 = 50;
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let request = ImportRequest {
        batch: 10_000,
        max_in_progress: 1_000_000,
        lease: Duration::from_secs(600),
        prune: false,
        ..adopted.request()
    };
    let id = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";
    adopted
        .run(&format!(
            "alter table {{schema}}.outbox set (autovacuum_enabled = false);
             insert into {{schema}}.outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
               select {id}, 'Order', {id}, 'OrderCreated', '{{}}', 'NEW', now() at time zone 'UTC' - make_interval(secs => {FAILED} - n)
               from generate_series(1, {FAILED}) as n;
             analyze {{schema}}.outbox"
        ))
        .await;
    adopted
        .outbox
        .execute(&format!(
            "insert into pillarbox.outbox_events (id, namespace, topic, payload)
               select {id}, 'native', 'orders', '1' from generate_series(1, {FAILED}) as n;
             analyze pillarbox.outbox_events"
        ))
        .await;
    let store = &adopted.outbox.store;
    let import = async |request: &ImportRequest| importer(store).import(request).await.expect("imports");
    let mut failed = 0;
    while failed < FAILED {
        failed += i64::try_from(import(&request).await.failed).expect("few");
    }
    adopted.outbox.execute("analyze pillarbox.import_failures").await;
    import(&request).await;
    let before = settled(&adopted).await;
    for _ in 0..ROUNDS {
        assert_eq!(import(&request).await.rows, 0);
    }
    // A new row is found although those before it are passed over.
    adopted.produce().await;
    assert_eq!(import(&request).await.rows, 1);
    // A backend reports its counts when it ends.
    store.close().await;
    let fetched = settled(&adopted).await - before;
    assert!(
        fetched < FAILED * ROUNDS / 4,
        "{fetched} rows were fetched in {ROUNDS} rounds, {FAILED} of them failed"
    );
    adopted.drop_schemas().await;
}

#[tokio::test]
async fn an_operator_retries_failed_rows_at_once() {
    let adopted = adopt(&url(), "{schema}.outbox", WIDE, wide()).await;
    refuse(&adopted, "P0001", "7").await;
    insert(&adopted, "7", 3).await;
    assert_eq!(adopted.import().await.failed, 3);
    accept(&adopted).await;
    let store = &adopted.outbox.store;
    let name = adopted.seed.name;
    let unknown = ["2".to_owned(), "99".to_owned()];
    let retried = store
        .retry_imports(&OPERATOR, name, Some(&unknown))
        .await
        .expect("retries");
    assert_eq!(retried, ["2"]);
    assert_eq!(adopted.import().await.rows, 1);
    let mut retried = store.retry_imports(&OPERATOR, name, None).await.expect("retries");
    retried.sort();
    assert_eq!(retried, ["1", "3"]);
    let again = store.retry_imports(&OPERATOR, name, None).await.expect("retries");
    assert_eq!(again, [] as [String; 0], "they are due");
    assert_eq!(adopted.import().await.rows, 2);
    let another = store
        .retry_imports(&OPERATOR, "another", None)
        .await
        .expect("retries");
    assert_eq!(another, [] as [String; 0]);
    adopted.clean_up().await;
}
