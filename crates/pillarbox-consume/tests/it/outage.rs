//! The database goes away while events are handled, and comes back.

use pillarbox::RetryPolicy;
use pillarbox_testkit::Proxy;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
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

/// Handles three hundred events by this pool, which is away for a while in between: each is handled once, none is given up.
async fn assert_costs_nothing(
    books: &Books,
    pool: PgPool,
    go_away: impl Future<Output = ()>,
    come_back: impl Future<Output = ()>,
) {
    let broker = Broker::fresh().await;
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
    go_away.await;
    until("it is noticed", || async { counters.snapshot().store_errors > 5 }).await;
    come_back.await;
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
    broker.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_costs_no_attempt_and_no_event() {
    let books = Books::open().await;
    let options: PgConnectOptions = variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap();
    let proxy = Proxy::start(format!("{}:{}", options.get_host(), options.get_port())).await;
    let pool = through(&proxy, options);
    assert_costs_nothing(&books, pool, proxy.refuse(), proxy.restore()).await;
    books.close().await;
}

/// A role that may do all that the consumer does, until it may not even log in.
struct Role<'a> {
    name: String,
    books: &'a Books,
}

impl<'a> Role<'a> {
    async fn create(books: &'a Books) -> Self {
        let name = books.schema.clone();
        let role = Self { name, books };
        role.run(
            "create role ROLE login; \
             grant usage on schema ROLE to ROLE; \
             grant all on all tables in schema ROLE to ROLE; \
             grant all on all sequences in schema ROLE to ROLE",
        )
        .await;
        role
    }

    /// Its open connections end too.
    async fn lock_out(&self) {
        self.run("alter role ROLE nologin").await;
        self.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ROLE'")
            .await;
    }

    async fn let_in(&self) {
        self.run("alter role ROLE login").await;
    }

    async fn drop(self) {
        self.run("drop owned by ROLE; drop role ROLE").await;
    }

    async fn run(&self, statements: &str) {
        let statements = statements.replace("ROLE", &self.name);
        sqlx::raw_sql(AssertSqlSafe(statements))
            .execute(&self.books.pool)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_log_in_for_a_while_costs_no_attempt_and_no_event() {
    let books = Books::open().await;
    let role = Role::create(&books).await;
    let options: PgConnectOptions = variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .connect_lazy_with(options.username(&role.name));
    assert_costs_nothing(&books, pool.clone(), role.lock_out(), role.let_in()).await;
    pool.close().await;
    role.drop().await;
    books.close().await;
}
