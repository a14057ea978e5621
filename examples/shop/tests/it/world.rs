//! A shop of the test's own, and what is in its tables.

use std::collections::BTreeMap;
use std::future::Future;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Channel, Connection, ConnectionProperties};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Everybody.
pub(crate) const SERVICES: [&str; 6] = [
    "orders",
    "payment",
    "stock",
    "shipping",
    "notifications",
    "dispatcher",
];

/// Longer than any test: what ends in time does so without a timeout's help. So is a twentieth of it, the shortest wait before
/// a second try.
pub(crate) const PATIENT: &str = "1h";

/// An attempt may take half of a lease: more than the longest stall of a busy machine, so that nothing is sent twice by chance.
const LEASE: &str = "1m";

/// Where dispatchers are killed, each of their successors waits for a lease to end.
const SHORT_LEASE: &str = "2s";

/// Long enough for anything on a busy machine: it costs time only where something is broken.
const DEADLINE: Duration = Duration::from_secs(300);

/// The value of a variable that `scripts/services env` prints.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run scripts/test, or eval \"$(scripts/services start)\" first")
    })
}

/// Asks until the answer is yes.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let started = Instant::now();
    while !ask().await {
        assert!(started.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many shops there are at once: each has six processes with some connections to the database.
static ROOM: Semaphore = Semaphore::const_new(4);

/// A shop.
pub(crate) struct World {
    _room: SemaphorePermit<'static>,
    pub(crate) pool: PgPool,
    /// The name of its database, and what its queues begin with.
    pub(crate) name: String,
    environment: Vec<(&'static str, String)>,
}

impl World {
    pub(crate) async fn open(patience: &str) -> Self {
        Self::open_at(&variable("PILLARBOX_TEST_AMQP_URL"), patience).await
    }

    /// With RabbitMQ at another address than the usual one.
    pub(crate) async fn open_at(amqp: &str, patience: &str) -> Self {
        Self::open_with(amqp, patience, LEASE).await
    }

    /// Where a dispatcher that is killed is soon missed.
    pub(crate) async fn open_to_kill(patience: &str) -> Self {
        Self::open_with(&variable("PILLARBOX_TEST_AMQP_URL"), patience, SHORT_LEASE).await
    }

    async fn open_with(amqp: &str, patience: &str, lease: &str) -> Self {
        let room = ROOM.acquire().await.unwrap();
        let server = variable("PILLARBOX_TEST_POSTGRES_URL");
        let name = format!("shop_{}", uuid::Uuid::new_v4().simple());
        administer(&server, format!("create database {name} template template0")).await;
        let (base, _) = server.rsplit_once('/').expect("a database in the URL");
        let database = format!("{base}/{name}");
        let world = Self {
            _room: room,
            pool: PgPoolOptions::new()
                .max_connections(3)
                .connect_lazy(&database)
                .unwrap(),
            environment: vec![
                ("DATABASE_URL", database),
                ("AMQP_URL", amqp.to_owned()),
                ("SHOP_PREFIX", name.clone()),
                ("SHOP_PATIENCE", patience.to_owned()),
                ("SHOP_LEASE", lease.to_owned()),
            ],
            name,
        };
        world.run(&["migrate"]).await;
        world
    }

    /// The program, about to be run in this world.
    pub(crate) fn shop(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        command
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env_remove("PILLARBOX_ABORT_AT")
            .env_remove("RUST_LOG")
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end, and returns what it printed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.shop(arguments).output().await.unwrap();
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

    pub(crate) fn start(&self, service: &str) -> Process {
        let mut command = self.shop(&["serve", service, "--until-stdin-ends"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Process(command.spawn().unwrap())
    }

    /// Starts a service that ends at a failpoint.
    pub(crate) fn start_to_die(&self, service: &str, failpoint: &str) -> Process {
        let mut command = self.shop(&["serve", service, "--until-stdin-ends"]);
        command
            .env("PILLARBOX_ABORT_AT", failpoint)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Process(command.spawn().unwrap())
    }

    pub(crate) fn start_all(&self) -> BTreeMap<&'static str, Process> {
        SERVICES
            .into_iter()
            .map(|service| (service, self.start(service)))
            .collect()
    }

    pub(crate) async fn count(&self, query: &str) -> i64 {
        let count = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
        count.fetch_one(&self.pool).await.unwrap()
    }

    /// Waits until every saga has ended, every customer has been told, and nothing is on its way.
    pub(crate) async fn at_rest(&self) {
        let open = "select (select count(*) from shop.orders where status = 'placed')
             + (select count(*) from pillarbox.outbox_events where status <> 'delivered' and event_type <> 'SagaTimeout')
             + (select count(*) from shop.orders o where (select count(*) from notifications.sent n
                  where n.order_id = o.id) < 2)";
        until("everything ends", || async { self.count(open).await == 0 }).await;
    }

    /// Waits for the end, lets every service finish, and looks at all tables: every order is done by everybody or by nobody.
    pub(crate) async fn reckon(&self, services: BTreeMap<&'static str, Process>) -> Reckoning {
        self.at_rest().await;
        for (name, process) in services {
            process.stop(name).await;
        }
        let mistakes = self.status().await["mistakes"].clone();
        assert_eq!(mistakes, serde_json::json!([]));
        let told: Vec<(i64, Vec<String>, String)> = sqlx::query_as(
            "select o.id, array_agg(n.what order by n.position), o.status from shop.orders o
             left join notifications.sent n on n.order_id = o.id group by o.id",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        for (order, told, status) in told {
            assert_eq!(
                told,
                ["placed", &status],
                "what the customer of order {order} was told"
            );
        }
        let between = "select count(*) from pillarbox.sagas where status not in ('completed', 'compensated')";
        assert_eq!(self.count(between).await, 0, "sagas are between");
        Reckoning {
            confirmed: self
                .count("select count(*) from shop.orders where status = 'confirmed'")
                .await,
            cancelled: self
                .count("select count(*) from shop.orders where status = 'cancelled'")
                .await,
        }
    }

    /// The commands that the saga of an order has sent, undoing ones with a minus, repeated ones once for each attempt.
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

    /// Lets the time come that a message of the order's saga waits for, as soon as there is such a message.
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

    /// Leaves nothing behind.
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
        connection.close(200, "goodbye".into()).await.unwrap();
        self.pool.close().await;
        let server = variable("PILLARBOX_TEST_POSTGRES_URL");
        administer(&server, format!("drop database {} with (force)", self.name)).await;
    }
}

/// How the orders ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reckoning {
    pub(crate) confirmed: i64,
    pub(crate) cancelled: i64,
}

/// A running service. Killed when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    /// `kill -9`.
    pub(crate) async fn kill(&mut self) {
        self.0.kill().await.unwrap();
    }

    /// Lets it finish what it does.
    pub(crate) async fn stop(mut self, name: &str) {
        drop(self.0.stdin.take());
        let status = tokio::time::timeout(DEADLINE, self.0.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("{name} does not end")).unwrap();
        assert!(status.success(), "{name}: {status}");
    }

    /// Waits until it has ended at the failpoint.
    pub(crate) async fn dies_at(mut self, failpoint: &str) {
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        let ended = async {
            stderr.read_to_string(&mut said).await.unwrap();
            self.0.wait().await.unwrap()
        };
        let ended = tokio::time::timeout(DEADLINE, ended).await;
        let status = ended.unwrap_or_else(|_| panic!("it does not come to {failpoint}"));
        let name = failpoint.split(':').next().unwrap();
        assert!(said.contains(&format!("failpoint {name}: ")), "{status}: {said}");
    }
}

/// The broker itself, past whatever stands before it.
pub(crate) async fn channel() -> (Connection, Channel) {
    let url = variable("PILLARBOX_TEST_AMQP_URL");
    let connection = Connection::connect(&url, ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// Runs a statement about a whole database. PostgreSQL waits five seconds for others to leave it, and then refuses: asked again.
async fn administer(server: &str, statement: String) {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect(server)
        .await
        .unwrap();
    until(&statement, || async {
        let done = sqlx::raw_sql(AssertSqlSafe(statement.clone()))
            .execute(&pool)
            .await;
        match done {
            Ok(_) => true,
            Err(error) if is_in_use(&error) => false,
            Err(error) => panic!("{statement}: {error}"),
        }
    })
    .await;
    pool.close().await;
}

/// Are others still in the database?
fn is_in_use(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some("55006")
}
