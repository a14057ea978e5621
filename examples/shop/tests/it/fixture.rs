//! A shop for one test, and the check of its tables. An outbox that is written by its owner fails the test: each process has a
//! role of its own.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Channel, Connection, ConnectionProperties};
use pillarbox_testkit::duties;
pub(crate) use pillarbox_testkit::environment::variable;
use pillarbox_testkit::fixture::Database;
use pillarbox_testkit::process::{Process, assert_aborted_at};
use pillarbox_testkit::wait::until_within;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::sync::{Semaphore, SemaphorePermit};

/// All services.
pub(crate) const SERVICES: [&str; 6] = [
    "orders",
    "payment",
    "stock",
    "shipping",
    "notifications",
    "dispatcher",
];

/// Longer than any test, so that no timeout of a saga helps a test to pass. A twentieth of it, the shortest wait before a
/// retry, is longer too.
pub(crate) const LONG_TIMEOUT: &str = "1h";

/// An attempt may take half of a lease. That is longer than the longest stall of a busy machine, so there are no duplicates.
const LEASE: &str = "1m";

/// For tests that kill dispatchers: a successor waits until the lease expires.
const SHORT_LEASE: &str = "2s";

/// Long enough for anything on a busy machine. It costs time only where something is broken.
const DEADLINE: Duration = Duration::from_secs(300);

/// Asks until the answer is yes.
pub(crate) async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    until_within(DEADLINE, what, is_so).await;
}

/// How many shops run at once: each has six processes with several database connections.
static ROOM: Semaphore = Semaphore::const_new(4);

/// A shop.
pub(crate) struct Fixture {
    _room: SemaphorePermit<'static>,
    pub(crate) pool: PgPool,
    /// The name of its database and the prefix of its queues.
    pub(crate) name: String,
    database: Database,
    environment: Vec<(&'static str, String)>,
}

impl Fixture {
    pub(crate) async fn open(timeout: &str) -> Self {
        Self::open_at(&variable("PILLARBOX_TEST_AMQP_URL"), timeout).await
    }

    /// With RabbitMQ at another address.
    pub(crate) async fn open_at(amqp: &str, timeout: &str) -> Self {
        Self::open_with(amqp, timeout, LEASE).await
    }

    /// With short leases, for tests that kill dispatchers.
    pub(crate) async fn open_to_kill(timeout: &str) -> Self {
        Self::open_with(&variable("PILLARBOX_TEST_AMQP_URL"), timeout, SHORT_LEASE).await
    }

    async fn open_with(amqp: &str, timeout: &str, lease: &str) -> Self {
        let room = ROOM.acquire().await.unwrap();
        let database = Database::create("shop").await;
        let fixture = Self {
            _room: room,
            pool: PgPoolOptions::new()
                .max_connections(3)
                .connect_lazy(&database.url)
                .unwrap(),
            environment: vec![
                ("DATABASE_URL", database.url.clone()),
                ("AMQP_URL", amqp.to_owned()),
                ("SHOP_PREFIX", database.name.clone()),
                ("SHOP_STEP_TIMEOUT", timeout.to_owned()),
                ("SHOP_LEASE", lease.to_owned()),
            ],
            name: database.name.clone(),
            database,
        };
        fixture.run(&["migrate"]).await;
        let written = ["outbox_events", "inbox", "sagas", "workers"];
        duties::refuse_owners(&fixture.pool, "pillarbox", &written).await;
        fixture
    }

    /// Connections of a process of the shop.
    pub(crate) fn pool_of(&self, who: &str) -> PgPool {
        let url = duties::log_in_as(&self.database.url, &self.role(who));
        PgPool::connect_lazy(&url).unwrap()
    }

    fn role(&self, who: &str) -> String {
        format!("{}_{who}", self.name)
    }

    /// The program with the settings of this fixture.
    pub(crate) fn shop(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        command
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env_remove("PILLARBOX_ABORT_AT")
            .env_remove("RUST_LOG");
        command
    }

    /// Runs a command to its end, and returns what it printed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = tokio::process::Command::from(self.shop(arguments))
            .output()
            .await
            .unwrap();
        let errors = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "shop {arguments:?}: {errors}");
        String::from_utf8(stdout).unwrap()
    }

    pub(crate) async fn order(&self, arguments: &[&str]) {
        self.run(&[&["order"], arguments].concat()).await;
    }

    pub(crate) async fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.run(&["status", "--json"]).await).unwrap()
    }

    pub(crate) fn start(&self, service: &str) -> Service {
        let mut command = self.shop(&["serve", service, "--until-stdin-ends"]);
        command.stdin(Stdio::piped());
        Service(Process::start(command))
    }

    /// Starts a service that ends at a failpoint.
    pub(crate) fn start_to_die(&self, service: &str, failpoint: &str) -> Service {
        let mut command = self.shop(&["serve", service, "--until-stdin-ends"]);
        command.env("PILLARBOX_ABORT_AT", failpoint).stdin(Stdio::piped());
        Service(Process::start(command))
    }

    pub(crate) fn start_all(&self) -> BTreeMap<&'static str, Service> {
        SERVICES
            .into_iter()
            .map(|service| (service, self.start(service)))
            .collect()
    }

    pub(crate) async fn count(&self, query: &str) -> i64 {
        let count = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
        count.fetch_one(&self.pool).await.unwrap()
    }

    /// Waits until every saga has ended, every customer is notified and every event is delivered.
    pub(crate) async fn until_idle(&self) {
        let open = "select (select count(*) from shop.orders where status = 'placed')
             + (select count(*) from pillarbox.outbox_events where status <> 'delivered' and event_type <> 'SagaTimeout')
             + (select count(*) from shop.orders o where (select count(*) from notifications.sent n
                  where n.order_id = o.id) < 2)";
        until("every order has ended", || async { self.count(open).await == 0 }).await;
    }

    /// Waits until a process has aborted itself at the failpoint. If it does not, prints what the others did meanwhile.
    pub(crate) async fn until_dead(
        &self,
        mut dying: Service,
        failpoint: &str,
        services: &BTreeMap<&'static str, Service>,
    ) {
        let ended = async {
            until_within(DEADLINE * 2, "it dies", async || dying.has_ended()).await;
        };
        if tokio::time::timeout(DEADLINE, ended).await.is_ok() {
            return dying.died_at(failpoint).await;
        }
        let events: Vec<String> =
            sqlx::query_scalar("select row_to_json(e)::text from pillarbox.outbox_events e")
                .fetch_all(&self.pool)
                .await
                .unwrap();
        let mut logs = format!("dying: {}\n", dying.log());
        for (name, service) in services {
            logs += &format!("{name}: {}\n", service.log());
        }
        panic!(
            "no process died at {failpoint} for {DEADLINE:?}\nlogs:\n{logs}\nevents:\n{}",
            events.join("\n")
        );
    }

    /// Waits until the shop is idle, stops the services and checks all tables: all services have done an order, or none has.
    pub(crate) async fn check_ledger(&self, services: BTreeMap<&'static str, Service>) -> Totals {
        self.until_idle().await;
        for (name, process) in services {
            process.stop(name).await;
        }
        let violations = self.status().await["violations"].clone();
        assert_eq!(violations, serde_json::json!([]));
        let notified: Vec<(i64, Vec<String>, String)> = sqlx::query_as(
            "select o.id, array_agg(n.what order by n.position), o.status from shop.orders o
             left join notifications.sent n on n.order_id = o.id group by o.id",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        for (order, sent, status) in notified {
            assert_eq!(sent, ["placed", &status], "the notifications of order {order}");
        }
        let between = "select count(*) from pillarbox.sagas where status not in ('completed', 'compensated')";
        assert_eq!(self.count(between).await, 0, "sagas have not ended");
        Totals {
            confirmed: self
                .count("select count(*) from shop.orders where status = 'confirmed'")
                .await,
            cancelled: self
                .count("select count(*) from shop.orders where status = 'cancelled'")
                .await,
        }
    }

    /// The commands that the saga of an order has sent: compensations with a minus, retries once for each attempt.
    pub(crate) async fn sent(&self, order: i64) -> Vec<String> {
        let select = "select case action when 'compensation' then '-' else '' end || step
             from pillarbox.saga_log l join pillarbox.sagas s on s.seq = l.saga
             where s.id = $1 and what = 'sent' order by l.seq";
        sqlx::query_scalar(select)
            .bind(order.to_string())
            .fetch_all(&self.pool)
            .await
            .unwrap()
    }

    /// Makes a scheduled message of the order's saga due, as soon as it exists.
    pub(crate) async fn bring_forward(&self, event_type: &str, step: &str, attempt: u32) {
        let update = "update pillarbox.outbox_events set next_attempt_at = now()
             where event_type = $1 and headers ->> 'saga-step' = $2 and headers ->> 'saga-attempt' = $3
             and status = 'pending' and next_attempt_at > now()";
        let what = format!("{event_type} of {step}, attempt {attempt}, waits for its time");
        until(&what, || async {
            let updated = sqlx::query(update)
                .bind(event_type)
                .bind(step)
                .bind(attempt.to_string())
                .execute(&self.pool);
            updated.await.unwrap().rows_affected() > 0
        })
        .await;
    }

    /// Removes the queues, the exchange, the database and the roles.
    pub(crate) async fn close(self) {
        let (connection, channel) = channel().await;
        for service in SERVICES {
            for queue in [
                format!("{}.{service}", self.name),
                format!("{}.{service}.dead", self.name),
            ] {
                channel
                    .queue_delete(queue.into(), QueueDeleteOptions::default())
                    .await
                    .unwrap();
            }
        }
        let exchange = format!("{}.events", self.name);
        channel
            .exchange_delete(exchange.into(), ExchangeDeleteOptions::default())
            .await
            .unwrap();
        connection.close(200, "done".into()).await.unwrap();
        self.pool.close().await;
        let roles = SERVICES
            .into_iter()
            .chain(["storefront"])
            .map(|who| self.role(who));
        let drop_roles = format!("drop role {}", roles.collect::<Vec<_>>().join(", "));
        let server = self.database.clone();
        self.database.drop().await;
        server.administer(&drop_roles).await;
    }
}

/// How the orders ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) confirmed: i64,
    pub(crate) cancelled: i64,
}

/// A running service. Killed when it is dropped.
pub(crate) struct Service(Process);

impl Service {
    /// `kill -9`.
    pub(crate) fn kill(self) {
        self.0.kill();
    }

    /// Closes its standard input, and waits until it has finished its work.
    pub(crate) async fn stop(mut self, name: &str) {
        self.0.close_stdin();
        let status = self.0.exit_within(DEADLINE).await;
        assert!(status.success(), "{name}: {status}: {}", self.0.stderr());
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        self.0.stderr()
    }

    /// Has it ended?
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_exit().is_some()
    }

    /// Asserts that it has aborted itself at the failpoint.
    pub(crate) async fn died_at(mut self, failpoint: &str) {
        let status = self.0.exit_within(DEADLINE).await;
        assert_aborted_at(failpoint, status, &self.0.stderr());
    }
}

/// A connection to the broker itself, not to a proxy.
pub(crate) async fn channel() -> (Connection, Channel) {
    let url = variable("PILLARBOX_TEST_AMQP_URL");
    let connection = Connection::connect(&url, ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}
