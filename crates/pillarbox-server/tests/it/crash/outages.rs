//! The broker or the database goes away under load, and comes back.

use std::time::Duration;

use super::patience::{Turn, Weight, eventually};
use super::services::{Private, Services};
use super::world::{Tuning, World};

const CUTS: usize = 2;
/// Enough to know that everything is at work again.
const BETWEEN_CUTS: i64 = 300;

/// Kills the service twice under load, each time until the daemon says that it is gone. The daemon says
/// so, and not by each of its tasks, says that it is back, and no attempt is used up by the outage.
async fn survives(world: World, test: &str, tuning: &Tuning, service: &Private, says: [&str; 2]) {
    let load = world.producer.keep_busy();
    let daemon = world.start(tuning);
    world.more_than(BETWEEN_CUTS, "delivered").await;
    let times = |what: &str| daemon.said().matches(what).count();
    let says_more = async |what: &str, than: usize| {
        eventually(what, Duration::from_secs(60), async || {
            (times(what) > than).then_some(())
        })
        .await;
    };
    for _ in 0..CUTS {
        let before = says.map(times);
        // Blocks this thread; the load has another.
        tokio::task::block_in_place(|| service.kill());
        says_more(says[0], before[0]).await;
        tokio::task::block_in_place(|| service.start_again());
        says_more(says[1], before[1]).await;
        let delivered = world.count("delivered").await;
        world.more_than(delivered + BETWEEN_CUTS, "delivered").await;
    }
    load.stop().await;
    world.done().await;
    let said = daemon.stop().await;
    // A task that asked while it was gone, and gives up when it is just back, says so once more.
    let times = said.matches(says[0]).count();
    assert!(
        (CUTS..=2 * CUTS).contains(&times),
        "once for every cut, or nearly: {said}"
    );
    let report = world.reckon(test, &[]).await;
    assert!(report.duplicates <= CUTS * tuning.in_flight, "{report}");
    let most = i32::try_from(1 + CUTS).expect("a small number");
    assert!(report.attempts <= most, "an outage used up attempts: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_broker_that_is_killed_and_comes_back_loses_nothing() {
    let turn = Turn::take(Weight::Heavy).await;
    let broker = Private::start("rabbitmq");
    let services = Services {
        amqp: broker.url("PILLARBOX_TEST_AMQP_URL"),
        ..Services::shared()
    };
    let world = World::on(services, turn).await;
    let says = ["breaker opened", "breaker closed"];
    // A broker that has just started takes its time, and an answer that is late would cost an attempt.
    survives(world, "broker killed", &Tuning::calm(), &broker, says).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_that_is_killed_and_comes_back_loses_nothing() {
    let turn = Turn::take(Weight::Heavy).await;
    let database = Private::start("postgres");
    let services = Services {
        postgres: database.url("PILLARBOX_TEST_POSTGRES_URL"),
        ..Services::shared()
    };
    let world = World::on(services, turn).await;
    let says = ["database unavailable; retrying", "database available again"];
    survives(world, "database killed", &Tuning::hasty(), &database, says).await;
}
