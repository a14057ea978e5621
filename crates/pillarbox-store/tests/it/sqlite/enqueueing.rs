//! Transactions of applications, in this process and in others.

use std::process::Command;
use std::time::Duration;

use pillarbox::{Delivery, EnqueueError, Enqueued, Event, Outbox, Payload, StoreError};
use pillarbox_store::operate::Filter;
use pillarbox_store::stores::sqlite::{Options, Sqlite, begin, begin_on, connect_options};
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::Harness;
use sqlx::{Connection, SqliteConnection, SqlitePool};
use uuid::Uuid;

use super::SqliteHarness;
use super::harness::request;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::wait::until_some;

fn event() -> Event {
    Event::new("shop", "orders")
}

async fn claim(outbox: &SqliteHarness) -> Vec<Delivery> {
    let request = request(outbox.free(10).await);
    outbox.store.claim(&request).await.expect("a claim")
}

/// A connection that soon gives up waiting for its turn.
async fn connection_with_short_timeout(outbox: &SqliteHarness) -> SqliteConnection {
    let options = Options {
        busy_timeout: Duration::from_millis(20),
        ..Options::default()
    };
    let options = connect_options(&outbox.path().to_string_lossy(), &options).expect("a path");
    SqliteConnection::connect_with(&options).await.expect("it opens")
}

#[tokio::test]
async fn a_plain_insert_by_another_client_is_claimed() {
    let outbox = SqliteHarness::fresh().await;
    outbox
        .run("insert into outbox_events (namespace, topic, payload) values ('shop', 'orders', '{\"order\": 42}')")
        .await;
    let claimed = claim(&outbox).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id.get_version_num(), 7);
    assert_eq!(claimed[0].event.id, claimed[0].id);
    assert_eq!(claimed[0].event.payload, Payload::Json("{\"order\": 42}".into()));
    let row = outbox
        .store
        .show(&OPERATOR, claimed[0].id)
        .await
        .expect("a look")
        .expect("it is there");
    assert_eq!((row.attempts, row.seq), (1, 1));
}

#[tokio::test]
async fn a_value_that_could_not_be_read_is_rejected_when_it_is_written() {
    let outbox = SqliteHarness::fresh().await;
    for (columns, values, constraint) in [
        ("payload", "'{'", "payload_is_json"),
        ("payload, headers", "'{}', '[]'", "headers_are_a_json_object"),
        ("payload, id", "'{}', 'order-42'", "id_is_a_uuid_in_lower_case"),
        (
            "payload, id",
            "'{}', upper('01a1de6d-8b94-7244-8036-ba981b68f0db')",
            "id_is_a_uuid_in_lower_case",
        ),
        (
            "payload, id",
            "'{}', '140f2ea9-1b5d-8856-95cd-35993d1d9e88'",
            "ids_of_version_8_are_derived",
        ),
        (
            "payload, tenant_id",
            "'{}', 'acme'",
            "tenant_id_is_a_uuid_in_lower_case",
        ),
        (
            "payload, next_attempt_at",
            "'{}', datetime('now')",
            "times_are_utc_with_microseconds",
        ),
    ] {
        let sql =
            format!("insert into outbox_events (namespace, topic, {columns}) values ('a', 'b', {values})");
        let refused = sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(&outbox.application)
            .await;
        let message = refused.expect_err("it is refused").to_string();
        assert!(message.contains(constraint), "{message}");
    }
}

#[tokio::test]
async fn text_that_is_not_text_does_not_stop_the_others() {
    let outbox = SqliteHarness::fresh().await;
    outbox
        .run("insert into outbox_events (namespace, topic, payload) values ('shop', cast(x'6fff' as text), '{}')")
        .await;
    outbox.enqueue(&[event()]).await.expect("accepted");
    let topics: Vec<String> = claim(&outbox)
        .await
        .into_iter()
        .map(|delivery| delivery.event.topic.clone())
        .collect();
    assert_eq!(topics, ["o\u{FFFD}", "orders"]);
}

#[tokio::test]
async fn seq_is_never_used_again() {
    let outbox = SqliteHarness::fresh().await;
    let mut last = 0;
    for _ in 0..3 {
        outbox.enqueue(&[event(), event()]).await.expect("accepted");
        let rows = outbox
            .store
            .list(&OPERATOR, &Filter::default())
            .await
            .expect("a list");
        assert!(rows.iter().all(|row| row.seq > last));
        last = rows[0].seq;
        let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
        assert_eq!(
            outbox
                .store
                .delete(&OPERATOR, &ids)
                .await
                .expect("a delete")
                .len(),
            2
        );
    }
    assert_eq!(last, 6);
}

#[tokio::test]
async fn without_a_transaction_an_event_has_its_own() {
    let outbox = SqliteHarness::fresh().await;
    let mut connection = outbox.application.acquire().await.expect("a connection");
    let event = event();
    let enqueued = Outbox::default()
        .enqueue(&mut connection, &event)
        .await
        .expect("accepted");
    assert_eq!(enqueued, Enqueued::New(event.id));
    assert_eq!(claim(&outbox).await.len(), 1, "nothing is left open");
}

#[tokio::test]
async fn a_transaction_that_read_before_a_write_gets_an_error_with_advice() {
    let outbox = SqliteHarness::fresh().await;
    let mut tx = outbox.application.begin().await.expect("a plain BEGIN");
    let _rows: i64 = sqlx::query_scalar("select count(*) from outbox_events")
        .fetch_one(&mut *tx)
        .await
        .expect("it reads");
    outbox.enqueue(&[event()]).await.expect("accepted");

    let refused = Outbox::default().enqueue(&mut tx, &event()).await;
    assert!(matches!(refused, Err(EnqueueError::NotImmediate)), "{refused:?}");
    tx.rollback()
        .await
        .expect("the transaction is still the caller's to end");
    assert_eq!(claim(&outbox).await.len(), 1);
}

#[tokio::test]
async fn a_transaction_that_read_during_a_write_gets_an_error_with_advice() {
    let outbox = SqliteHarness::fresh().await;
    let mut plain = connection_with_short_timeout(&outbox).await;
    let mut tx = plain.begin().await.expect("a plain BEGIN");
    let _rows: i64 = sqlx::query_scalar("select count(*) from outbox_events")
        .fetch_one(&mut *tx)
        .await
        .expect("it reads");
    let writer = begin(&outbox.application).await.expect("its turn");
    let events: Vec<Event> = (0..1_500).map(|_| event()).collect();
    for events in [&events[..1], &events] {
        let refused = Outbox::default().enqueue_all(&mut tx, events).await;
        assert!(matches!(refused, Err(EnqueueError::NotImmediate)), "{refused:?}");
    }
    writer.rollback().await.expect("a rollback");
}

#[tokio::test]
async fn a_transaction_that_waits_too_long_gets_the_error_busy() {
    let outbox = SqliteHarness::fresh().await;
    let mut waiting = connection_with_short_timeout(&outbox).await;
    let writer = begin(&outbox.application).await.expect("its turn");
    let refused = begin_on(&mut waiting).await.map(drop);
    assert!(matches!(refused, Err(EnqueueError::Busy)), "{refused:?}");
    let refused = Outbox::default().enqueue(&mut waiting, &event()).await;
    assert!(matches!(refused, Err(EnqueueError::Busy)), "{refused:?}");

    writer.rollback().await.expect("a rollback");
    let mut tx = begin_on(&mut waiting).await.expect("its turn");
    Outbox::default()
        .enqueue(&mut tx, &event())
        .await
        .expect("accepted");
    tx.commit().await.expect("a commit");
    assert_eq!(claim(&outbox).await.len(), 1);
}

#[tokio::test]
async fn a_worker_whose_turn_does_not_come_may_try_again() {
    let outbox = SqliteHarness::fresh().await;
    outbox.enqueue(&[event()]).await.expect("accepted");
    let options = Options {
        busy_timeout: Duration::from_millis(20),
        ..Options::default()
    };
    let worker = Sqlite::open(&outbox.path().to_string_lossy(), options)
        .await
        .expect("it opens");
    let writer = begin(&outbox.application).await.expect("its turn");
    let request = request(outbox.free(10).await);
    let refused = worker.claim(&request).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let look = worker.find(&Scope::All, None, None, 1).await;
    assert_eq!(look.expect("readers do not wait").due.len(), 1);
    writer.rollback().await.expect("a rollback");
    assert_eq!(worker.claim(&request).await.expect("a claim").len(), 1);
}

#[tokio::test]
async fn a_refusal_in_a_later_statement_of_a_batch_takes_back_the_earlier_ones() {
    let outbox = SqliteHarness::fresh().await;
    let first = event();
    outbox
        .enqueue(std::slice::from_ref(&first))
        .await
        .expect("accepted");
    let mut events: Vec<Event> = (0..1_500).map(|_| event()).collect();
    events.push(event().id(first.id));

    let mut tx = begin(&outbox.application).await.expect("its turn");
    let before = Outbox::default()
        .enqueue(&mut tx, &event())
        .await
        .expect("accepted")
        .id();
    let refused = Outbox::default().enqueue_all(&mut tx, &events).await;
    assert!(
        matches!(refused, Err(EnqueueError::IdTaken(id)) if id == first.id),
        "{refused:?}"
    );
    tx.commit().await.expect("a commit");
    let rows: Vec<Uuid> = outbox
        .store
        .list(&OPERATOR, &Filter::default())
        .await
        .expect("a list")
        .iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(rows, [before, first.id]);
}

#[tokio::test]
async fn json_that_sqlite_cannot_hold_is_refused_and_said_so() {
    let outbox = SqliteHarness::fresh().await;
    let deep = format!("{}{}", "[".repeat(1_500), "]".repeat(1_500));
    let refused = outbox.enqueue(&[event().json_text(deep)]).await;
    assert!(matches!(refused, Err(EnqueueError::Payload(_))), "{refused:?}");
    assert_eq!(claim(&outbox).await, []);
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_the_call() {
    let outbox = SqliteHarness::fresh().await;
    outbox.enqueue(&[event()]).await.expect("accepted");
    let request = request(outbox.free(10).await);
    let mut claim = outbox.store.claim(&request);
    assert!(futures_poll_once(&mut claim).await, "it has begun");
    drop(claim);
    until_some("the claim goes on", async || {
        let stats = outbox.store.stats(&OPERATOR, &Scope::All).await.expect("stats");
        (stats.processing == 1).then_some(())
    })
    .await;
}

/// Polls once, and says whether there is more to come.
async fn futures_poll_once<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

/// Not a test of its own: what the next one runs in another process.
#[tokio::test]
#[ignore = "run by a_producer_in_another_process_is_seen"]
async fn produce() {
    let path = std::env::var("PILLARBOX_TEST_SQLITE_FILE").expect("the file of the test that runs this");
    let options = connect_options(&path, &Options::default()).expect("a path");
    let pool = SqlitePool::connect_with(options).await.expect("it opens");
    let mut tx = begin(&pool).await.expect("its turn");
    Outbox::default()
        .enqueue(&mut tx, &event().event_type("FromAfar"))
        .await
        .expect("accepted");
    tx.commit().await.expect("a commit");
}

#[tokio::test]
async fn a_producer_in_another_process_is_seen() {
    let outbox = SqliteHarness::fresh().await;
    assert!(!outbox.is_due().await);
    let produced = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "sqlite::enqueueing::produce", "--ignored"])
        .env("PILLARBOX_TEST_SQLITE_FILE", outbox.path())
        .output()
        .expect("it runs");
    assert!(
        produced.status.success(),
        "{}",
        String::from_utf8_lossy(&produced.stdout)
    );
    assert!(outbox.is_due().await);
    assert_eq!(
        claim(&outbox).await[0].event.event_type.as_deref(),
        Some("FromAfar")
    );
}
