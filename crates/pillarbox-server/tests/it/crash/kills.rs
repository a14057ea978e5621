//! `kill -9` at random moments, while the producer commits orders.

use std::time::Duration;

use super::fixture::{Fixture, Tuning};
use crate::daemon::Daemon;
use pillarbox_testkit::wait::Load;

const ROUNDS: usize = 4;

/// Waits until a daemon delivers, and then for a random time.
async fn random_moment_under_load(fixture: &Fixture) {
    let delivered = fixture.count("delivered").await;
    fixture.until_more_than(delivered, "delivered").await;
    // Not a wait for a fact: the kill happens at a random moment.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..600))).await;
}

/// Kills one of the daemons in every round and starts another in its place.
async fn kill_at_random(workers: usize, test: &str) {
    let fixture = Fixture::new(Load::Heavy).await;
    let tuning = Tuning::short_leases();
    let load = fixture.producer.start_load();
    let mut daemons: Vec<Daemon> = (0..workers).map(|_| fixture.start(&tuning)).collect();
    for _ in 0..ROUNDS {
        random_moment_under_load(&fixture).await;
        let victim = daemons.swap_remove(fastrand::usize(..daemons.len()));
        victim.kill();
        daemons.push(fixture.start(&tuning));
    }
    load.stop().await;
    fixture.until_done().await;
    for daemon in daemons {
        daemon.stop().await;
    }
    let report = fixture.check_ledger(test, &[]).await;
    assert!(report.events > 200, "there was no load");
    assert!(
        report.duplicates <= ROUNDS * tuning.in_flight,
        "more duplicates than were in flight: {report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_at_any_moment_loses_nothing() {
    kill_at_random(1, "kill -9 of the only worker").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_daemons_killed_at_any_moment_loses_nothing() {
    kill_at_random(2, "kill -9 of one of two workers").await;
}
