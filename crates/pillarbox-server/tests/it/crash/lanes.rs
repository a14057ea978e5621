//! Lanes follow workers that come and go.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use uuid::Uuid;

use super::books;
use super::daemon::Daemon;
use super::door::{Door, Manners};
use super::patience::{Weight, eventually};
use super::shop::{self, Books, Load};
use super::world::{Tuning, World};

/// Far longer than a handover takes: what goes on well before it is over was handed over.
const LONG_LEASE: Duration = Duration::from_secs(120);
/// Well before it is over. On an idle machine it is a second or two.
const BEFORE_THE_LEASE: Duration = Duration::from_secs(60);
/// What a busy machine may need beyond the lease of one that was killed.
const A_WHILE: Duration = Duration::from_secs(30);

fn tuning(lease: Duration) -> Tuning {
    Tuning {
        lease,
        more: "[[route]]\nto = \"broker\"\n".to_owned(),
        ..Tuning::hasty()
    }
}

/// How many lanes each of these has, as the command says.
fn lanes(world: &World, daemons: &[&Daemon]) -> Option<Vec<u64>> {
    let printed = crate::binary::run(
        world.folder(),
        &["workers", "ls", "--json", "--database", &world.database],
    );
    let workers: Vec<Value> = printed
        .good()
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
async fn share_evenly(world: &World, daemons: &[&Daemon], patience: Duration) {
    let part = 4096 / u64::try_from(daemons.len()).expect("a few");
    eventually("the lanes are shared evenly", patience, || async {
        let lanes = lanes(world, daemons)?;
        lanes
            .iter()
            .all(|count| count.abs_diff(part) <= part / 8)
            .then_some(())
    })
    .await;
}

/// Two workers with half of the lanes each, and nothing to do.
async fn two_at_rest(world: &World, books: &books::Postgres, tuning: &Tuning) -> [Daemon; 2] {
    let load = Load::start(books, 1);
    let daemons = [world.start(tuning), world.start(tuning)];
    share_evenly(world, &[&daemons[0], &daemons[1]], Duration::from_secs(60)).await;
    load.stop().await;
    shop::done(books, Duration::from_secs(60)).await;
    daemons
}

/// One order for each key, whoever had its lane.
async fn every_key_goes_on(books: &books::Postgres, since: Instant, limit: Duration) {
    shop::commit_each_key(books).await;
    shop::done(books, Duration::from_secs(120)).await;
    let took = since.elapsed();
    assert!(took <= limit, "the keys went on after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_worker_that_was_killed_go_on_after_a_lease() {
    let world = World::new(Weight::Heavy).await;
    let books = books::Postgres::open(world.pool.clone()).await;
    let door = Door::open(world.amqp(), Manners::default()).await;
    let tuning = Tuning {
        amqp: Some(door.url(world.amqp())),
        ..tuning(Tuning::hasty().lease)
    };
    let [victim, other] = two_at_rest(&world, &books, &tuning).await;
    let worker = victim.worker().expect("it has lanes");
    door.withholds(true);
    shop::commit_each_key(&books).await;
    eventually(
        "the victim has its hands full",
        Duration::from_secs(60),
        || async {
            // Frozen, it lets nothing go between this look and its death.
            victim.signal(Signal::STOP);
            let is_full = books.held_by(worker).await > 0;
            if !is_full {
                victim.signal(Signal::CONT);
            }
            is_full.then_some(())
        },
    )
    .await;
    let killed = Instant::now();
    victim.kill().await;
    assert!(books.held_by(worker).await > 0, "nothing had to be taken over");
    door.withholds(false);
    every_key_goes_on(&books, killed, tuning.lease + A_WHILE).await;
    other.stop().await;
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_worker_that_was_stopped_go_on_at_once() {
    let world = World::new(Weight::Heavy).await;
    let books = books::Postgres::open(world.pool.clone()).await;
    let [victim, other] = two_at_rest(&world, &books, &tuning(LONG_LEASE)).await;
    victim.stop().await;
    let stopped = Instant::now();
    every_key_goes_on(&books, stopped, BEFORE_THE_LEASE).await;
    other.stop().await;
    world.remove().await;
}

/// While the first has its hands full: a range is handed over when nothing of it is in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_joins_has_half_of_the_lanes_within_seconds() {
    let world = World::new(Weight::Heavy).await;
    let books = books::Postgres::open(world.pool.clone()).await;
    let tuning = tuning(LONG_LEASE);
    let load = Load::start(&books, 2);
    let first = world.start(&tuning);
    share_evenly(&world, &[&first], Duration::from_secs(60)).await;
    let second = world.start(&tuning);
    let look = || async { second.worker() };
    eventually("the second has started", Duration::from_secs(60), look).await;
    share_evenly(&world, &[&first, &second], BEFORE_THE_LEASE).await;
    load.stop().await;
    shop::done(&books, Duration::from_secs(60)).await;
    first.stop().await;
    second.stop().await;
    let broker: Vec<Uuid> = world
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    assert!(!broker.is_empty(), "there was no load");
    world.remove().await;
}
