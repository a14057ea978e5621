//! The broker or the database is killed under load, and started again.

use super::fixture::Services;
use super::fixture::{Fixture, Tuning};
use pillarbox_testkit::Private;
use pillarbox_testkit::wait::{Load, MachineLock, until};

const OUTAGES: usize = 2;
/// Enough to show that every task works again.
const BETWEEN_OUTAGES: i64 = 300;

/// Kills the service twice under load, each time until the daemon logs it. The daemon logs each outage about once, not once
/// per task, and logs the recovery. No attempt is used up by an outage.
async fn survives(fixture: Fixture, test: &str, tuning: &Tuning, service: &Private, messages: [&str; 2]) {
    let load = fixture.producer.start_load();
    let daemon = fixture.start(tuning);
    fixture.until_more_than(BETWEEN_OUTAGES, "delivered").await;
    let times = |what: &str| daemon.log().matches(what).count();
    let is_logged_again = async |what: &str, before: usize| {
        until(what, async || times(what) > before).await;
    };
    for _ in 0..OUTAGES {
        let before = messages.map(times);
        // Blocks this thread; the load has another.
        tokio::task::block_in_place(|| service.kill());
        is_logged_again(messages[0], before[0]).await;
        tokio::task::block_in_place(|| service.start_again());
        is_logged_again(messages[1], before[1]).await;
        let delivered = fixture.count("delivered").await;
        fixture
            .until_more_than(delivered + BETWEEN_OUTAGES, "delivered")
            .await;
    }
    load.stop().await;
    fixture.until_done().await;
    let log = daemon.stop().await;
    // A request that was sent during the outage may fail after the recovery, and is logged once more.
    let times = log.matches(messages[0]).count();
    assert!(
        (OUTAGES..=2 * OUTAGES).contains(&times),
        "about once for each outage: {log}"
    );
    let report = fixture.check_ledger(test, &[]).await;
    assert!(report.duplicates <= OUTAGES * tuning.in_flight, "{report}");
    let most = i32::try_from(1 + OUTAGES).expect("a small number");
    assert!(report.attempts <= most, "an outage used up attempts: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_broker_that_is_killed_and_restarted_loses_nothing() {
    let lock = MachineLock::acquire(Load::Heavy).await;
    let broker = Private::start("rabbitmq");
    let services = Services {
        amqp: broker.url("PILLARBOX_TEST_AMQP_URL"),
        ..Services::shared()
    };
    let fixture = Fixture::on(services, lock).await;
    let messages = ["breaker opened", "breaker closed"];
    // A broker that has just started is slow, and a timeout would cost an attempt.
    survives(
        fixture,
        "broker killed",
        &Tuning::long_leases(),
        &broker,
        messages,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_that_is_killed_and_restarted_loses_nothing() {
    let lock = MachineLock::acquire(Load::Heavy).await;
    let database = Private::start("postgres");
    let services = Services {
        postgres: database.url("PILLARBOX_TEST_POSTGRES_URL"),
        ..Services::shared()
    };
    let fixture = Fixture::on(services, lock).await;
    let messages = ["database unavailable; retrying", "database available again"];
    survives(
        fixture,
        "database killed",
        &Tuning::short_leases(),
        &database,
        messages,
    )
    .await;
}
