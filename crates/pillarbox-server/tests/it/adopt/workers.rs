//! Two workers on one adopted table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pillarbox_testkit::process::Signal;
use serde_json::Value;
use uuid::Uuid;

use super::faults::SHORT_LEASE;
use super::hook::Hook;
use super::rediver::{config, is_completed};
use super::seeds::REDIVER;
use super::system::System;
use crate::daemon::Daemon;
use pillarbox_testkit::wait::{Load, TIMEOUT, until, until_some};

/// No session has a transaction open.
const NO_TRANSACTION: &str = "select not exists (
    select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
      and backend_type = 'client backend' and xact_start is not null)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_never_deliver_the_same_row_at_once() {
    // One call in four fails at first, and all are slow. A row in flight in both workers would overlap.
    let hook = Hook::start(|call| {
        std::thread::sleep(Duration::from_millis(30));
        if call.turn == 1 && call.id.as_u128() % 4 == 0 {
            500
        } else {
            200
        }
    });
    let system = System::new(Load::Heavy, &[REDIVER]).await;
    let config = config(&hook, "\"100ms\"");
    let daemons = [system.start(&config), system.start(&config)];
    for daemon in &daemons {
        until_some("the daemon has started", async || daemon.worker()).await;
    }
    for _ in 0..4 {
        system.produce(REDIVER, 60).await;
    }
    // On a busy machine one of them may have delivered everything.
    until("both daemons have delivered", async || {
        if daemons.iter().all(has_delivered) {
            return true;
        }
        system.produce(REDIVER, 60).await;
        false
    })
    .await;
    let rows = system.until_all(REDIVER, "are completed", is_completed).await;
    for daemon in daemons {
        daemon.stop().await;
    }
    assert_eq!(hook.overlapping(), [] as [Uuid; 0]);
    let mut accepted = hook.accepted();
    accepted.sort_unstable();
    assert_eq!(
        accepted,
        system.committed().await.into_iter().collect::<Vec<_>>(),
        "once each"
    );
    for (id, row) in rows {
        let failures = hook.answers(id).len() - 1;
        assert_eq!(row["retry_count"], failures, "{row}");
        assert_eq!(failures, usize::from(id.as_u128() % 4 == 0));
    }
    system.remove().await;
}

/// Has it delivered anything, by its statistics?
fn has_delivered(daemon: &Daemon) -> bool {
    let stats = daemon.get("/api/v1/stats").body;
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    stats["worker"]["delivered"].as_u64() > Some(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_worker_that_imports_is_killed_the_other_one_takes_over() {
    let hook = Hook::start(|_| 200);
    let mut system = System::new(Load::Heavy, &[REDIVER]).await;
    let long_lease = std::mem::replace(&mut system.lease, SHORT_LEASE);
    let config = config(&hook, "\"100ms\"");
    let first = system.start(&config);
    system.produce(REDIVER, 10).await;
    system.until_all(REDIVER, "are completed", is_completed).await;
    // With its short lease it may have sent some of them twice on a busy machine.
    let before = hook.accepted().len();
    system.lease = long_lease;
    let second = system.start(&config);
    first.kill();
    system.produce(REDIVER, 10).await;
    let rows = system.until_all(REDIVER, "are completed", is_completed).await;
    assert_eq!(rows.len(), 20);
    second.stop().await;
    let after = hook.accepted().len() - before;
    assert_eq!(after, 10, "no row was in flight");
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_frozen_past_its_lease_changes_nothing_in_the_table() {
    let began = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&began);
    let hook = Hook::start(move |call| {
        calls.fetch_add(1, Ordering::Relaxed);
        // The first call is answered after the second one has begun.
        let deadline = Instant::now() + TIMEOUT;
        while calls.load(Ordering::Relaxed) < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        if call.turn == 1 { 500 } else { 200 }
    });
    let system = System::new(Load::Heavy, &[REDIVER]).await;
    let config = config(&hook, "\"100ms\"");
    let id = system.produce(REDIVER, 1).await[0];
    let frozen = system.start(&config);
    until("the webhook is called", async || {
        began.load(Ordering::Relaxed) > 0
    })
    .await;
    until("it is frozen outside of a transaction", async || {
        frozen.signal(Signal::STOP);
        let holds_nothing = system.is_true(NO_TRANSACTION).await;
        if !holds_nothing {
            frozen.signal(Signal::CONT);
        }
        holds_nothing
    })
    .await;
    // The lease has expired in the database. The frozen worker does not know it and tries to write.
    for over in ["leases set until = now()", "importers set leased_until = now()"] {
        system.psql(&format!("update pillarbox.{over}")).await;
    }
    let other = system.start(&config);
    let row = system.until(REDIVER, id, "is completed", is_completed).await;
    assert_eq!(
        row["retry_count"], 1,
        "the attempt of the frozen worker counts: {row}"
    );
    // Now it receives the answer to its own attempt.
    frozen.signal(Signal::CONT);
    let log = frozen.stop().await;
    assert!(log.contains(" lost=1\n"), "{log}");
    other.stop().await;
    assert_eq!(system.rows(REDIVER).await[&id], row, "the row is unchanged");
    system.remove().await;
}
