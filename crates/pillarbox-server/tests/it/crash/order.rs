//! Every key in order at every destination, whatever happens to the workers.
//!
//! 64 keys, routes that fan out, one send in twenty refused, and writers that race. Workers are killed and frozen
//! past their leases until the load ends. `PILLARBOX_TEST_CHAOS_SECONDS` says for how long.

use std::time::Duration;

use uuid::Uuid;

use super::books;
use super::crew::{Crew, Faults};
use super::folder::Folder;
use super::patience::{Turn, Weight};
use super::shop::{self, HOOK, Load, Reckoning};
use super::world::{Tuning, World};
use crate::receiver::{Mood, Receiver};

/// Fewer events than these in each second prove nothing.
const EVENTS_A_SECOND: u64 = 20;
/// After the load: what lost its worker twice comes back one by one.
const DRAIN: Duration = Duration::from_secs(120);

/// For how long there are faults: so long in CI, and as long as somebody likes.
fn length(seconds: u64) -> Duration {
    let asked = std::env::var("PILLARBOX_TEST_CHAOS_SECONDS").ok();
    let seconds = asked.map_or(seconds, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

fn judge(test: &str, length: Duration, faults: &Faults, reckoning: &Reckoning) {
    println!("{test}: {reckoning}; {faults}");
    let events = u64::try_from(reckoning.events).expect("a count");
    assert!(
        events >= EVENTS_A_SECOND * length.as_secs(),
        "there was no load: {reckoning}"
    );
    assert!(reckoning.rows > reckoning.events, "nothing went to two places");
    assert!(
        reckoning.all_duplicates() <= faults.in_flight,
        "more came again than was in flight: {reckoning}; {faults}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_that_are_killed_and_frozen_keep_every_key_in_order() {
    let length = length(40);
    let world = World::new(Weight::Heavy).await;
    let hook = Receiver::start(Mood::Stumbles);
    let books = books::Postgres::open(world.pool.clone()).await;
    let tuning = Tuning {
        in_flight: 64,
        more: format!("{}{}", hook.destination(HOOK), shop::routes("broker")),
        ..Tuning::hasty()
    };
    let load = Load::start(&books, 2);
    let mut crew = Crew::hire(&books, 4, || world.start(&tuning));
    crew.suffer(length).await;
    load.stop().await;
    hook.becomes(Mood::Answers);
    shop::done(&books, DRAIN).await;
    let faults = crew.dismiss().await;

    let broker: Vec<Uuid> = world
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    let reckoning = shop::reckon(&books, ("broker", &broker), &hook.ledger()).await;
    judge("four workers", length, &faults, &reckoning);
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_on_sqlite_that_is_killed_and_frozen_keeps_every_key_in_order() {
    let length = length(15);
    let _turn = Turn::take(Weight::Heavy).await;
    let folder = Folder::new();
    let hook = Receiver::start(Mood::Stumbles);
    folder.configure(&format!("{}{}", hook.destination(HOOK), shop::routes("log")));
    let books = books::Sqlite::create(&folder.path().join("outbox.db")).await;
    let load = Load::start(&books, 2);
    let mut crew = Crew::hire(&books, 1, || folder.start());
    crew.suffer(length).await;
    load.stop().await;
    hook.becomes(Mood::Answers);
    shop::done(&books, DRAIN).await;
    let faults = crew.dismiss().await;

    let reckoning = shop::reckon(&books, ("log", &folder.ledger()), &hook.ledger()).await;
    judge("SQLite", length, &faults, &reckoning);
}
