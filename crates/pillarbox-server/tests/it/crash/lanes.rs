//! Lanes move when workers start, stop and die.

use std::time::{Duration, Instant};

use pillarbox_testkit::process::Signal;
use serde_json::Value;
use uuid::Uuid;

use super::fixture::{Fixture, Tuning};
use super::order_databases;
use super::shop::{self, Load, OrderDatabase};
use crate::daemon::Daemon;
use pillarbox_testkit::environment::authority;
use pillarbox_testkit::proxy::{Faults, Proxy};
use pillarbox_testkit::wait::{Load as MachineLoad, until, until_some, until_within};

/// Far longer than a handover takes: a key that continues well before its end was handed over.
const LONG_LEASE: Duration = Duration::from_secs(120);
/// Well before its end. On an idle machine it is a second or two.
const BEFORE_THE_LEASE: Duration = Duration::from_secs(60);
/// What a busy machine may need beyond the lease of a worker that was killed.
const MARGIN: Duration = Duration::from_secs(30);

fn tuning(lease: Duration) -> Tuning {
    Tuning {
        lease,
        more: "[[route]]\nto = \"broker\"\n".to_owned(),
        ..Tuning::short_leases()
    }
}

/// How many lanes each of these has, by `pillarbox workers ls`.
fn lanes(fixture: &Fixture, daemons: &[&Daemon]) -> Option<Vec<u64>> {
    let printed = crate::command::run(
        fixture.folder(),
        &["workers", "ls", "--json", "--database", &fixture.database.url],
    );
    let workers: Vec<Value> = printed
        .success()
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object per line"))
        .collect();
    let of = |worker: Uuid| {
        let found = workers.iter().find(|one| one["id"] == worker.to_string())?;
        found["lanes"].as_u64()
    };
    daemons.iter().map(|daemon| of(daemon.worker()?)).collect()
}

/// Waits until the lanes are shared evenly between these.
async fn until_shared_evenly(fixture: &Fixture, daemons: &[&Daemon], timeout: Duration) {
    let part = 4096 / u64::try_from(daemons.len()).expect("a few");
    until_within(timeout, "the lanes are shared evenly", async || {
        let lanes = lanes(fixture, daemons).unwrap_or_default();
        !lanes.is_empty() && lanes.iter().all(|count| count.abs_diff(part) <= part / 8)
    })
    .await;
}

/// Two idle workers with half of the lanes each.
async fn two_idle_workers(
    fixture: &Fixture,
    database: &order_databases::Postgres,
    tuning: &Tuning,
) -> [Daemon; 2] {
    let load = Load::start(database, 1);
    let daemons = [fixture.start(tuning), fixture.start(tuning)];
    until_shared_evenly(fixture, &[&daemons[0], &daemons[1]], Duration::from_secs(60)).await;
    load.stop().await;
    shop::until_done(database, Duration::from_secs(60)).await;
    daemons
}

/// Commits one order for each key, and expects that all are delivered in time.
async fn every_key_continues(database: &order_databases::Postgres, since: Instant, limit: Duration) {
    shop::commit_each_key(database).await;
    shop::until_done(database, Duration::from_secs(120)).await;
    let took = since.elapsed();
    assert!(took <= limit, "the keys continued after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_killed_worker_continue_after_its_lease() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let proxy = Proxy::start_with(authority(fixture.amqp()), Faults::default()).await;
    let tuning = Tuning {
        amqp: Some(proxy.url(fixture.amqp())),
        ..tuning(Tuning::short_leases().lease)
    };
    let [victim, other] = two_idle_workers(&fixture, &database, &tuning).await;
    let worker = victim.worker().expect("it has lanes");
    proxy.mute();
    shop::commit_each_key(&database).await;
    until("the victim has rows in flight", async || {
        // A frozen worker settles nothing between this query and the kill.
        victim.signal(Signal::STOP);
        let is_busy = database.in_flight_of(worker).await > 0;
        if !is_busy {
            victim.signal(Signal::CONT);
        }
        is_busy
    })
    .await;
    let killed = Instant::now();
    victim.kill();
    assert!(
        database.in_flight_of(worker).await > 0,
        "nothing had to be taken over"
    );
    proxy.restore().await;
    every_key_continues(&database, killed, tuning.lease + MARGIN).await;
    other.stop().await;
    fixture.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_stopped_worker_continue_at_once() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let [victim, other] = two_idle_workers(&fixture, &database, &tuning(LONG_LEASE)).await;
    victim.stop().await;
    let stopped = Instant::now();
    every_key_continues(&database, stopped, BEFORE_THE_LEASE).await;
    other.stop().await;
    fixture.remove().await;
}

/// Under load: a range is handed over when none of its rows is in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_joins_has_half_of_the_lanes_within_seconds() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let tuning = tuning(LONG_LEASE);
    let load = Load::start(&database, 2);
    let first = fixture.start(&tuning);
    until_shared_evenly(&fixture, &[&first], Duration::from_secs(60)).await;
    let second = fixture.start(&tuning);
    until_some("the second worker has started", async || second.worker()).await;
    until_shared_evenly(&fixture, &[&first, &second], BEFORE_THE_LEASE).await;
    load.stop().await;
    shop::until_done(&database, Duration::from_secs(60)).await;
    first.stop().await;
    second.stop().await;
    let broker: Vec<Uuid> = fixture
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    assert!(!broker.is_empty(), "there was no load");
    fixture.remove().await;
}
