//! Every key in order at every destination, while workers are killed and frozen.
//!
//! 64 keys, routes with two destinations, one send in twenty rejected, and writers that compete. Workers are killed and
//! frozen past their leases for `PILLARBOX_TEST_CHAOS_SECONDS`.

use std::time::Duration;

use uuid::Uuid;

use super::fixture::{Fixture, Tuning};
use super::order_databases;
use super::shop::{self, HOOK, Load, Totals};
use super::sqlite_fixture::SqliteFixture;
use super::workers::{Faults, Workers};
use crate::receiver::{Behaviour, Receiver};
use pillarbox_testkit::wait::{Load as MachineLoad, MachineLock};

/// Fewer events per second prove nothing.
const EVENTS_A_SECOND: u64 = 20;
/// After the load: rows that lost their worker twice are claimed one by one.
const DRAIN: Duration = Duration::from_secs(120);

/// For how long there are faults: this long in CI, or as the variable says.
fn duration(seconds: u64) -> Duration {
    let asked = std::env::var("PILLARBOX_TEST_CHAOS_SECONDS").ok();
    let seconds = asked.map_or(seconds, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

fn check_totals(test: &str, length: Duration, faults: &Faults, totals: &Totals) {
    println!("{test}: {totals}; {faults}");
    let events = u64::try_from(totals.events).expect("a count");
    assert!(
        events >= EVENTS_A_SECOND * length.as_secs(),
        "there was no load: {totals}"
    );
    assert!(totals.rows > totals.events, "no event has two destinations");
    assert!(
        totals.all_duplicates() <= faults.in_flight,
        "more duplicates than rows in flight: {totals}; {faults}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_that_are_killed_and_frozen_keep_every_key_in_order() {
    let length = duration(40);
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let hook = Receiver::start(Behaviour::RejectsSome);
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let tuning = Tuning {
        in_flight: 64,
        more: format!("{}{}", hook.destination(HOOK), shop::routes("broker")),
        ..Tuning::short_leases()
    };
    let load = Load::start(&database, 2);
    let mut workers = Workers::start(&database, 4, || fixture.start(&tuning));
    workers.disturb(length).await;
    load.stop().await;
    hook.set_behaviour(Behaviour::Accepts);
    shop::until_done(&database, DRAIN).await;
    let faults = workers.stop().await;

    let broker: Vec<Uuid> = fixture
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    let totals = shop::check_ledger(&database, ("broker", &broker), &hook.ledger()).await;
    check_totals("four workers", length, &faults, &totals);
    fixture.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_on_sqlite_that_is_killed_and_frozen_keeps_every_key_in_order() {
    let length = duration(15);
    let _lock = MachineLock::acquire(MachineLoad::Heavy).await;
    let fixture = SqliteFixture::new();
    let hook = Receiver::start(Behaviour::RejectsSome);
    fixture.configure(&format!("{}{}", hook.destination(HOOK), shop::routes("log")));
    let database = order_databases::Sqlite::create(&fixture.path().join("outbox.db")).await;
    let load = Load::start(&database, 2);
    let mut workers = Workers::start(&database, 1, || fixture.start());
    workers.disturb(length).await;
    load.stop().await;
    hook.set_behaviour(Behaviour::Accepts);
    shop::until_done(&database, DRAIN).await;
    let faults = workers.stop().await;

    let totals = shop::check_ledger(&database, ("log", &fixture.ledger()), &hook.ledger()).await;
    check_totals("SQLite", length, &faults, &totals);
}
