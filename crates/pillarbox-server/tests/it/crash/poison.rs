//! One bad event among good ones: only the bad one is dead at the end.

use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;

use super::fixture::{Fixture, Tuning};
use pillarbox_testkit::environment::authority;
use pillarbox_testkit::proxy::{Faults, Proxy};
use pillarbox_testkit::wait::Load;

const ATTEMPTS: u32 = 5;

fn tuning() -> Tuning {
    Tuning {
        max_attempts: ATTEMPTS,
        ..Tuning::short_leases()
    }
}

/// Attempts and last error of an event.
async fn row(fixture: &Fixture, id: Uuid) -> (i32, String) {
    sqlx::query_as("select attempts, coalesce(last_error, '') from pillarbox.outbox_events where id = $1")
        .bind(id)
        .fetch_one(&fixture.pool)
        .await
        .expect("the row exists")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn an_event_that_kills_its_worker_is_the_only_one_to_die() {
    let fixture = Fixture::new(Load::Heavy).await;
    commit_many(&fixture, 500).await;
    let poison = fixture.producer.commit_one("poison", json!({"order": 0})).await;
    commit_many(&fixture, 500).await;

    let began = Instant::now();
    let start = || fixture.start_with(&tuning(), &[("PILLARBOX_ABORT_ON_EVENT_TYPE", "poison")]);
    let mut daemon = start();
    let mut deaths = 0;
    while !fixture.is_done().await {
        if daemon.try_exit().is_some() {
            deaths += 1;
            daemon = start();
        }
        assert!(
            began.elapsed() < Duration::from_secs(180),
            "rows are left after {deaths} deaths"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    daemon.stop().await;

    let (attempts, reason) = row(&fixture, poison).await;
    assert_eq!(attempts, 5, "{reason}");
    // On a busy machine a lease may expire before the send. That attempt kills no worker.
    assert!((3..=5).contains(&deaths), "{deaths} deaths");
    assert!(!reason.is_empty(), "the row has no error");
    let report = fixture.check_ledger("a poison that aborts", &[poison]).await;
    assert_eq!(report.events, 1001);
}

async fn commit_many(fixture: &Fixture, orders: usize) {
    for _ in 0..orders / 50 {
        fixture.producer.transaction(50).await.expect("commits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_closes_the_connection_is_the_only_one_to_die() {
    let fixture = Fixture::new(Load::Heavy).await;
    let faults = Faults {
        cut_on: Some(b"cut me off".to_vec()),
        ..Faults::default()
    };
    let proxy = Proxy::start_with(authority(fixture.amqp()), faults).await;
    commit_many(&fixture, 100).await;
    let poison = fixture
        .producer
        .commit_one("Bad", json!({"note": "cut me off"}))
        .await;
    commit_many(&fixture, 100).await;
    let daemon = fixture.start(&Tuning {
        amqp: Some(proxy.url(fixture.amqp())),
        ..tuning()
    });
    fixture.until_done().await;
    daemon.stop().await;

    let (attempts, reason) = row(&fixture, poison).await;
    assert_eq!(attempts, 5);
    assert!(reason.contains("connection"), "{reason}");
    assert!(
        (3..=5).contains(&proxy.cut_by_content()),
        "{} connections were closed",
        proxy.cut_by_content()
    );
    let report = fixture
        .check_ledger("a poison that closes the connection", &[poison])
        .await;
    assert!(
        report.duplicates <= proxy.cut_by_content() * tuning().in_flight,
        "{report}"
    );
}

/// The brokers of the tests take 20 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_over_the_limit_of_the_broker_is_dead_at_once() {
    let fixture = Fixture::new(Load::Heavy).await;
    commit_many(&fixture, 100).await;
    // The outbox takes more than the broker.
    sqlx::raw_sql("create or replace function pillarbox.max_payload() returns bigint language sql immutable parallel safe return 67108864")
        .execute(&fixture.pool)
        .await
        .expect("raises the limit");
    let blob = "x".repeat(21 * 1024 * 1024);
    let large = fixture
        .producer
        .commit_one("Large", json!({ "blob": blob }))
        .await;
    commit_many(&fixture, 100).await;
    let daemon = fixture.start(&Tuning {
        timeout: Duration::from_secs(20),
        lease: Duration::from_secs(60),
        ..tuning()
    });
    fixture.until_done().await;
    daemon.stop().await;

    let (attempts, reason) = row(&fixture, large).await;
    assert_eq!(attempts, 1, "{reason}");
    assert!(reason.contains("max size"), "{reason}");
    let report = fixture
        .check_ledger("a message over the broker's limit", &[large])
        .await;
    assert_eq!(report.duplicates, 0);
}
