//! A worker that is frozen until its lease has expired.

use std::time::Duration;

use pillarbox_testkit::process::Signal;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::fixture::{Fixture, Tuning};
use pillarbox_testkit::environment::authority;
use pillarbox_testkit::proxy::{Faults, Proxy};
use pillarbox_testkit::wait::{Load, until};

type Row = (Uuid, String, i32, OffsetDateTime);

async fn rows(fixture: &Fixture) -> Vec<Row> {
    sqlx::query_as("select id, status, attempts, updated_at from pillarbox.outbox_events order by id")
        .fetch_all(&fixture.pool)
        .await
        .expect("the database answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_frozen_past_its_lease_changes_nothing() {
    let fixture = Fixture::new(Load::Light).await;
    let faults = Faults {
        delay: Duration::from_millis(100),
        ..Faults::default()
    };
    let proxy = Proxy::start_with(authority(fixture.amqp()), faults).await;
    let slow = Tuning {
        concurrency: 8,
        amqp: Some(proxy.url(fixture.amqp())),
        ..Tuning::short_leases()
    };
    fixture.producer.commit(200).await;
    // Enough for ten seconds: on a busy machine it may take long until it is frozen.
    fixture.producer.transaction(600).await.expect("commits");
    let frozen = fixture.start(&slow);
    fixture.until_more_than(0, "delivered").await;
    frozen.signal(Signal::STOP);
    let in_flight = fixture.count("processing").await;
    assert!(in_flight > 0, "it was frozen with nothing in flight");

    let other = fixture.start(&Tuning::short_leases());
    fixture.until_done().await;
    let before = rows(&fixture).await;
    let sent = fixture.queue.len().await;
    frozen.signal(Signal::CONT);
    until("the frozen worker notices", async || {
        frozen.log().contains("lease lost before")
    })
    .await;
    let log = frozen.stop().await;
    other.stop().await;

    let lost = number_after(&log, " lost=");
    assert!(lost > Some(0), "it lost nothing, so nothing was tested: {log}");
    assert_eq!(rows(&fixture).await, before, "a stale worker changed rows");
    // A send that had begun may finish. No other send begins.
    let sent_late = usize::try_from(fixture.queue.len().await - sent).expect("a small number");
    assert!(
        sent_late <= slow.concurrency,
        "{sent_late} of {in_flight} were sent after the lease"
    );
    let report = fixture.check_ledger("SIGSTOP past the lease", &[]).await;
    assert!(report.duplicates <= slow.in_flight, "{report}");
}

/// The number after the last occurrence of these words.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(words)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}
