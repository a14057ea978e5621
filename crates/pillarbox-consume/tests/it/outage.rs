//! The database is unavailable for a while during consumption.

use pillarbox::RetryPolicy;
use pillarbox_testkit::Proxy;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::time::Duration;

use crate::ledger::{Ledger, entry};
use crate::rabbitmq::Broker;
use crate::running::Running;
use pillarbox_testkit::wait::until;

/// A pool that connects by way of the proxy, with a short timeout.
fn through(proxy: &Proxy, options: PgConnectOptions) -> PgPool {
    let address = proxy.address();
    let options = options.host(&address.ip().to_string()).port(address.port());
    PgPoolOptions::new()
        .max_connections(10)
        .acquire_timeout(Duration::from_millis(500))
        .connect_lazy_with(options)
}

/// Handles three hundred events with this pool and an outage in between. Each is handled once, and there is no dead letter.
async fn assert_costs_nothing(
    ledger: &Ledger,
    pool: PgPool,
    begin_outage: impl Future<Output = ()>,
    end_outage: impl Future<Output = ()>,
) {
    let broker = Broker::fresh().await;
    // A single attempt: one that counts as failed becomes a dead letter.
    let consumer = ledger
        .consumer_on(pool)
        .retry(RetryPolicy::steps(Vec::new()).max_attempts(1));
    let counters = consumer.counters();
    let running = Running::start(consumer, broker.config());
    broker.until_consumed().await;
    let events: Vec<_> = (0..300)
        .map(|number| entry(&format!("{}", number % 5), number))
        .collect();
    broker.publish(&events).await;
    until("some are handled", || async { ledger.len().await > 20 }).await;
    begin_outage.await;
    until("the outage is noticed", || async {
        counters.snapshot().store_errors > 5
    })
    .await;
    end_outage.await;
    until("all are handled", || async { ledger.len().await >= 300 }).await;
    until("all are acknowledged", || async {
        broker.waiting(&broker.queue).await == Some(0)
    })
    .await;
    running.stop().await;
    assert_eq!(counters.snapshot().dead, 0);
    for (account, numbers) in ledger.accounts().await {
        let first: i64 = account.parse().unwrap();
        let expected: Vec<i64> = (0..300).filter(|number| number % 5 == first).collect();
        assert_eq!(numbers, expected, "once and in order");
    }
    assert_eq!(broker.reasons().await, Vec::<String>::new());
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_database_costs_no_attempt_and_no_event() {
    let ledger = Ledger::create().await;
    let options = ledger.login();
    let proxy = Proxy::start(format!("{}:{}", options.get_host(), options.get_port())).await;
    let pool = through(&proxy, options);
    assert_costs_nothing(&ledger, pool, proxy.refuse(), proxy.restore()).await;
    ledger.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_cannot_log_in_for_a_while_costs_no_attempt_and_no_event() {
    let ledger = Ledger::create().await;
    let role = ledger.role();
    let disable_login = async {
        ledger.administer(&format!("alter role {role} nologin")).await;
        // Also ends its sessions.
        let sessions =
            format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'");
        ledger.administer(&sessions).await;
    };
    let login = format!("alter role {role} login");
    let enable_login = ledger.administer(&login);
    assert_costs_nothing(&ledger, ledger.pool.clone(), disable_login, enable_login).await;
    ledger.drop().await;
}
