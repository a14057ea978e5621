//! The database is unavailable for a while during consumption.

use pillarbox::RetryPolicy;
use pillarbox_testkit::Proxy;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use std::time::Duration;

use crate::ledger::{Ledger, entry};
use crate::rabbitmq::Broker;
use crate::running::Running;
use pillarbox_testkit::environment::variable;
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
    let options: PgConnectOptions = variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap();
    let proxy = Proxy::start(format!("{}:{}", options.get_host(), options.get_port())).await;
    let pool = through(&proxy, options);
    assert_costs_nothing(&ledger, pool, proxy.refuse(), proxy.restore()).await;
    ledger.drop().await;
}

/// A role with the privileges of the consumer, whose login can be disabled.
struct Role<'a> {
    name: String,
    ledger: &'a Ledger,
}

impl<'a> Role<'a> {
    async fn create(ledger: &'a Ledger) -> Self {
        let name = ledger.schema.clone();
        let role = Self { name, ledger };
        role.run(
            "create role ROLE login; \
             grant usage on schema ROLE to ROLE; \
             grant all on all tables in schema ROLE to ROLE; \
             grant all on all sequences in schema ROLE to ROLE",
        )
        .await;
        role
    }

    /// Also ends its sessions.
    async fn disable_login(&self) {
        self.run("alter role ROLE nologin").await;
        self.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ROLE'")
            .await;
    }

    async fn enable_login(&self) {
        self.run("alter role ROLE login").await;
    }

    async fn drop(self) {
        self.run("drop owned by ROLE; drop role ROLE").await;
    }

    async fn run(&self, statements: &str) {
        let statements = statements.replace("ROLE", &self.name);
        sqlx::raw_sql(AssertSqlSafe(statements))
            .execute(&self.ledger.pool)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_cannot_log_in_for_a_while_costs_no_attempt_and_no_event() {
    let ledger = Ledger::create().await;
    let role = Role::create(&ledger).await;
    let options: PgConnectOptions = variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .connect_lazy_with(options.username(&role.name));
    assert_costs_nothing(&ledger, pool.clone(), role.disable_login(), role.enable_login()).await;
    pool.close().await;
    role.drop().await;
    ledger.drop().await;
}
