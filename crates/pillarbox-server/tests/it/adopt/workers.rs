//! Two workers on one adopted table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use uuid::Uuid;

use super::faults::HASTY;
use super::hook::Hook;
use super::rediver::{config, is_completed};
use super::seeds::REDIVER;
use super::system::{PATIENCE, System};
use crate::binary::request;
use crate::crash::daemon::Daemon;
use crate::crash::patience::{Weight, eventually};

/// Nobody has locks that others would wait for.
const NO_TRANSACTION: &str = "select not exists (
    select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
      and backend_type = 'client backend' and xact_start is not null)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_never_deliver_the_same_row_at_once() {
    // One in four is refused at first, and all are slow: a row that two had would be seen twice at once.
    let hook = Hook::start(|call| {
        std::thread::sleep(Duration::from_millis(30));
        if call.turn == 1 && call.id.as_u128() % 4 == 0 {
            500
        } else {
            200
        }
    });
    let system = System::new(Weight::Heavy, &[REDIVER]).await;
    let config = config(&hook, "\"100ms\"");
    let daemons = [system.start(&config), system.start(&config)];
    for daemon in &daemons {
        eventually("it works", PATIENCE, || async { daemon.worker() }).await;
    }
    for _ in 0..4 {
        system.produce(REDIVER, 60).await;
    }
    // On a busy machine one of them may have had all of it.
    eventually("both had something to do", PATIENCE, || async {
        if daemons.iter().all(has_delivered) {
            return Some(());
        }
        system.produce(REDIVER, 60).await;
        None
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

/// Has it delivered anything, as it says itself?
fn has_delivered(daemon: &Daemon) -> bool {
    let said = daemon.said();
    let (_, rest) = said.split_once("listening").expect("it listens before it works");
    let (_, rest) = rest.split_once("http://").expect("an address");
    let address = rest.split_whitespace().next().expect("an address");
    let stats = request(address, "GET", "/api/v1/stats").body;
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    stats["worker"]["delivered"].as_u64() > Some(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_worker_that_imports_is_killed_the_other_one_takes_over() {
    let hook = Hook::start(|_| 200);
    let mut system = System::new(Weight::Heavy, &[REDIVER]).await;
    let patient = std::mem::replace(&mut system.lease, HASTY);
    let config = config(&hook, "\"100ms\"");
    let first = system.start(&config);
    system.produce(REDIVER, 10).await;
    system.until_all(REDIVER, "are completed", is_completed).await;
    // With its short lease it may have sent some of them twice on a busy machine.
    let before = hook.accepted().len();
    system.lease = patient;
    let second = system.start(&config);
    first.kill().await;
    system.produce(REDIVER, 10).await;
    let rows = system.until_all(REDIVER, "are completed", is_completed).await;
    assert_eq!(rows.len(), 20);
    second.stop().await;
    let after = hook.accepted().len() - before;
    assert_eq!(after, 10, "nothing was in anybody's hands");
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_through_its_lease_changes_nothing_in_the_table() {
    let began = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&began);
    let hook = Hook::start(move |call| {
        calls.fetch_add(1, Ordering::Relaxed);
        // Nobody answers the first call before the second one has come.
        let deadline = Instant::now() + PATIENCE;
        while calls.load(Ordering::Relaxed) < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        if call.turn == 1 { 500 } else { 200 }
    });
    let system = System::new(Weight::Heavy, &[REDIVER]).await;
    let config = config(&hook, "\"100ms\"");
    let id = system.produce(REDIVER, 1).await[0];
    let sleeper = system.start(&config);
    eventually("it is called", PATIENCE, || async {
        (began.load(Ordering::Relaxed) > 0).then_some(())
    })
    .await;
    eventually("it sleeps outside of a transaction", PATIENCE, || async {
        sleeper.signal(Signal::STOP);
        let holds_nothing = system.is_true(NO_TRANSACTION).await;
        if !holds_nothing {
            sleeper.signal(Signal::CONT);
        }
        holds_nothing.then_some(())
    })
    .await;
    // The lease is over as everybody sees it but the sleeper, who really tries to write when it wakes.
    for over in [
        "outbox_events set locked_until = now() where status = 'processing'",
        "importers set leased_until = now()",
    ] {
        system.psql(&format!("update pillarbox.{over}")).await;
    }
    let other = system.start(&config);
    let row = system.until(REDIVER, id, "is completed", is_completed).await;
    assert_eq!(row["retry_count"], 1, "the attempt of the sleeper counts: {row}");
    // It hears now that its own attempt has failed.
    sleeper.signal(Signal::CONT);
    let said = sleeper.stop().await;
    assert!(said.contains(" lost=1\n"), "{said}");
    other.stop().await;
    assert_eq!(
        system.rows(REDIVER).await[&id],
        row,
        "not a letter of it has changed"
    );
    system.remove().await;
}
