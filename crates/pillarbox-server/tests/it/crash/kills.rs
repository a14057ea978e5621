//! `kill -9` at moments that nobody chose, while orders keep coming.

use std::time::Duration;

use super::daemon::Daemon;
use super::patience::Weight;
use super::world::{Tuning, World};

const ROUNDS: usize = 4;

/// Waits until somebody delivers, and then a little.
async fn a_moment_under_load(world: &World) {
    let delivered = world.count("delivered").await;
    world.more_than(delivered, "delivered").await;
    // Not a wait for a fact: the moment is the test's chance.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..600))).await;
}

/// Kills one of the daemons in every round and starts another in its place.
async fn kill_at_random(workers: usize, test: &str) {
    let world = World::new(Weight::Heavy).await;
    let tuning = Tuning::hasty();
    let load = world.producer.keep_busy();
    let mut daemons: Vec<Daemon> = (0..workers).map(|_| world.start(&tuning)).collect();
    for _ in 0..ROUNDS {
        a_moment_under_load(&world).await;
        let victim = daemons.swap_remove(fastrand::usize(..daemons.len()));
        victim.kill().await;
        daemons.push(world.start(&tuning));
    }
    load.stop().await;
    world.done().await;
    for daemon in daemons {
        daemon.stop().await;
    }
    let report = world.reckon(test, &[]).await;
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
