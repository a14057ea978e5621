//! The database goes away while events are handled, and comes back.

use pillarbox::RetryPolicy;
use pillarbox_testkit::Proxy;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::time::Duration;

use crate::books::{Books, entry};
use crate::environment::{until, variable};
use crate::rabbitmq::Broker;
use crate::running::Running;

/// A pool that reaches the database through the proxy, and does not wait long.
fn through(proxy: &Proxy, options: PgConnectOptions) -> PgPool {
    let address = proxy.address();
    let options = options.host(&address.ip().to_string()).port(address.port());
    PgPoolOptions::new()
        .max_connections(10)
        .acquire_timeout(Duration::from_millis(500))
        .connect_lazy_with(options)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_costs_no_attempt_and_no_event() {
    let (books, broker) = (Books::open().await, Broker::fresh().await);
    let options: PgConnectOptions = variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap();
    let proxy = Proxy::start(format!("{}:{}", options.get_host(), options.get_port())).await;
    let pool = through(&proxy, options);
    // A single attempt: whatever counts as a failed one ends among the dead letters.
    let consumer = books
        .consumer_on(pool)
        .retry(RetryPolicy::steps(Vec::new()).max_attempts(1));
    let counters = consumer.counters();
    let running = Running::start(consumer, broker.config());
    broker.until_consumed().await;
    let events: Vec<_> = (0..300)
        .map(|number| entry(&format!("{}", number % 5), number))
        .collect();
    broker.publish(&events).await;
    until("some are handled", || async { books.len().await > 20 }).await;
    proxy.refuse().await;
    until("it is noticed", || async { counters.snapshot().store_errors > 5 }).await;
    proxy.restore().await;
    until("all are handled", || async { books.len().await >= 300 }).await;
    until("all are acknowledged", || async {
        broker.waiting(&broker.queue).await == Some(0)
    })
    .await;
    running.stop().await;
    assert_eq!(counters.snapshot().dead, 0);
    for (account, numbers) in books.accounts().await {
        let first: i64 = account.parse().unwrap();
        let expected: Vec<i64> = (0..300).filter(|number| number % 5 == first).collect();
        assert_eq!(numbers, expected, "once and in order");
    }
    assert_eq!(broker.reasons().await, Vec::<String>::new());
    books.close().await;
    broker.clean_up().await;
}
