//! The outbox in PostgreSQL: any number of workers on one database.
//!
//! Every operation is one short transaction with unnamed statements, so that it works unchanged behind
//! a pooler in transaction mode (PgBouncer), where a named statement may be somebody else's. Measured,
//! parsing anew costs about a hundredth of a claim of 1,000 rows.
//!
//! No transaction is open while an event is being sent.
//!
//! **If we die here** PostgreSQL rolls back what was not committed; what was is found by its lease.

pub mod adopt;
mod claim;
mod decode;
mod find;
mod grants;
mod lanes;
mod list;
mod migrate;
mod nodelay;
mod observer;
mod operate;
mod route;
mod sagas;
mod settle;
mod sql;
mod sweep;
mod workers;

use std::future::Future;
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use uuid::Uuid;

pub use self::grants::{Duty, create_role, grants};
pub use self::migrate::{migrations, script};
use self::observer::{Change, NoObserver, RowObserver};
use self::sql::Sql;
use crate::adopt::Import;
use crate::store::{
    Backlog, ClaimRequest, Found, Heartbeat, LaneRequest, Parked, Range, Routed, Routing, Scope, Settlement,
    Store, StoreError, Stub, SweepRequest, Swept,
};
use pillarbox::event::Delivery;
pub use pillarbox::internal::schema::SCHEMA;
use pillarbox::internal::schema::error_of;
use pillarbox::outbox::Outbox;

/// How a store connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema that holds the outbox: lower-case letters, digits and underscores.
    pub schema: String,
    /// How many connections at the most. A dispatcher keeps about four busy, and has one more for its heartbeat and its
    /// leases.
    pub max_connections: u32,
    /// How long to wait for the answer to anything asked. A third of it for a connection, and for rows that somebody
    /// holds locked. The server gives up a little earlier; also on us, if we fall silent in the middle of a transaction.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            max_connections: 8,
            timeout: Duration::from_secs(30),
        }
    }
}

/// An outbox in a PostgreSQL database. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connect: PgConnectOptions,
    options: Options,
    pool: RwLock<PgPool>,
    /// One connection apart, for what must not wait behind the rest: saying that we live, and keeping leases.
    apart: RwLock<PgPool>,
    /// What every transaction begins with.
    begin: Arc<str>,
    sql: Sql,
    /// The adopted tables.
    adoptions: OnceLock<Vec<Arc<adopt::Adoption>>>,
}

type Transaction = sqlx::Transaction<'static, sqlx::Postgres>;

impl Postgres {
    /// Prepares to use the database at `url`. Connects when something is asked of it.
    ///
    /// TLS, as in libpq: `?sslmode=verify-full&sslrootcert=/path/ca.pem`.
    ///
    /// # Errors
    /// When the URL or the schema's name cannot be right.
    pub fn new(url: &str, options: Options) -> Result<Self, StoreError> {
        let connect = PgConnectOptions::from_str(url)
            .map_err(|error| StoreError::Other(format!("the database URL cannot be read: {error}")))?
            .application_name("pillarbox");
        let sql = Sql::new(&options.schema)?;
        let pool = RwLock::new(open(&connect, &options));
        let apart = RwLock::new(open_apart(&connect, &options));
        let begin = begin(options.timeout).into();
        Ok(Self {
            inner: Arc::new(Inner {
                connect,
                options,
                pool,
                apart,
                begin,
                sql,
                adoptions: OnceLock::new(),
            }),
        })
    }

    /// The name of the schema that holds the outbox.
    pub fn schema(&self) -> &str {
        &self.inner.options.schema
    }

    /// What an application calls to enqueue into this outbox.
    pub fn outbox(&self) -> Outbox {
        Outbox::in_schema(self.schema()).expect("the name was checked")
    }

    /// Adopts tables: this outbox imports their rows and writes their state back. Call it once, before the first claim.
    ///
    /// # Errors
    /// When a layout does not fit its table.
    pub async fn adopt(&self, tables: &[adopt::Table]) -> Result<(), adopt::AdoptError> {
        let adoptions = adopt::prepare(&self.inner, tables).await?;
        self.inner
            .adoptions
            .set(adoptions)
            .map_err(|_| adopt::AdoptError::Twice)
    }

    /// Checks the role's permissions on the adopted tables.
    ///
    /// # Errors
    /// When a permission is missing, with the statement that grants it.
    pub async fn check_adopted(&self) -> Result<(), StoreError> {
        self.run(adopt::check_permissions(self.inner.clone())).await
    }

    /// The connections, for callers that want to share them.
    pub fn pool(&self) -> PgPool {
        self.inner.pool()
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.inner.pool().close().await;
        self.inner.apart().close().await;
    }

    /// Runs an operation that answers within the timeout, or never: a connection that no longer does would hold its place
    /// in the pool for as long as TCP hopes, so the pool is replaced.
    async fn run<T, F>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let limit = self.inner.options.timeout;
        let result = tokio::time::timeout(limit, to_its_end(operation)).await;
        let result = result.unwrap_or_else(|_| Err(self.given_up(limit)));
        if result.as_ref().is_err_and(is_read_only) {
            // It was the primary once, and would keep our connections for half an hour.
            self.inner.replace_pool();
        }
        result
    }

    /// Runs an operation that may take longer, such as an index on a large table: for as long as the database answers
    /// somebody else.
    async fn run_long<T, F>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let limit = self.inner.options.timeout;
        let mut operation = pin!(to_its_end(operation));
        loop {
            if let Ok(result) = tokio::time::timeout(limit, &mut operation).await {
                return result;
            }
            if tokio::time::timeout(limit, self.inner.answers()).await.is_err() {
                return Err(self.given_up(limit));
            }
        }
    }

    fn given_up(&self, limit: Duration) -> StoreError {
        self.inner.replace_pool();
        StoreError::Unavailable(format!("no answer within {limit:?}"))
    }
}

/// Runs an operation to its end even if the caller is dropped: a connection that is dropped in the middle of a transaction
/// may carry it on to its next user.
#[expect(
    clippy::disallowed_methods,
    reason = "a statement ends even if its caller is dropped"
)]
async fn to_its_end<T, F>(operation: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    match tokio::spawn(operation).await {
        Ok(result) => result,
        Err(panic) => Err(StoreError::Other(panic.to_string())),
    }
}

fn open(connect: &PgConnectOptions, options: &Options) -> PgPool {
    open_with(options.max_connections.max(1), connect, options)
}

fn open_apart(connect: &PgConnectOptions, options: &Options) -> PgPool {
    open_with(1, connect, options)
}

fn open_with(connections: u32, connect: &PgConnectOptions, options: &Options) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(options.timeout / 3)
        .after_connect(nodelay::to_port(connect.get_port()))
        .connect_lazy_with(connect.clone())
}

/// Begins a transaction whose plans do not depend on what the statistics believe: a table that was empty at the last look
/// must not be read from end to end.
///
/// The server lets go of the rows of a worker that is no more, or that sleeps, though nobody told it: connections without
/// an end last for hours.
fn begin(timeout: Duration) -> String {
    let silence = silence(timeout);
    let lock = (timeout / 3).as_millis().max(1);
    // One statement for all settings: an idle worker is judged by the number of its queries too.
    format!(
        "begin isolation level read committed; \
         select set_config(name, value, true) from (values \
         ('statement_timeout', '{silence}ms'), ('idle_in_transaction_session_timeout', '{silence}ms'), \
         ('lock_timeout', '{lock}ms'), ('jit', 'off'), ('enable_seqscan', 'off'), \
         ('enable_bitmapscan', 'off'), ('enable_mergejoin', 'off')) as setting (name, value)"
    )
}

/// For so many milliseconds the server waits for one statement, and for the next one.
fn silence(timeout: Duration) -> u128 {
    (timeout * 5 / 6).as_millis().max(1)
}

impl Inner {
    fn pool(&self) -> PgPool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn apart(&self) -> PgPool {
        self.apart.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks until there is an answer.
    #[expect(clippy::disallowed_methods, reason = "the wait between two probes")]
    async fn answers(&self) {
        while sqlx::raw_sql("select 1").execute(&self.apart()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn replace_pool(&self) {
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = open(&self.connect, &self.options);
        *self.apart.write().unwrap_or_else(PoisonError::into_inner) =
            open_apart(&self.connect, &self.options);
    }

    async fn begin(&self) -> Result<Transaction, StoreError> {
        self.begin_on(self.pool()).await
    }

    /// The same on the connection apart.
    async fn begin_apart(&self) -> Result<Transaction, StoreError> {
        self.begin_on(self.apart()).await
    }

    async fn begin_on(&self, pool: PgPool) -> Result<Transaction, StoreError> {
        let begin = AssertSqlSafe(self.begin.clone());
        pool.begin_with(begin).await.map_err(store_error)
    }

    fn adoption(&self, name: &str) -> Option<Arc<adopt::Adoption>> {
        let all = self.adoptions.get()?;
        all.iter().find(|adoption| adoption.name() == name).cloned()
    }

    /// Observes the dispatcher's changes of rows.
    fn observer(&self) -> Box<dyn RowObserver + '_> {
        if self.adoptions.get().is_some_and(|all| !all.is_empty()) {
            Box::new(adopt::WriteBack::new(self))
        } else {
            Box::new(NoObserver)
        }
    }

    /// Observes an operator's changes of rows. A command knows no layouts, and another process may have adopted tables. So
    /// this observer always looks for mapping rows, and defers write-backs to the importer.
    fn operator_observer(&self) -> impl RowObserver {
        adopt::WriteBack::new(self)
    }

    /// Runs an operator's change of these rows, and returns those that it changed.
    async fn change(
        &self,
        statement: AssertSqlSafe<Arc<str>>,
        ids: Vec<Uuid>,
    ) -> Result<Vec<Uuid>, StoreError> {
        let mut transaction = self.begin().await?;
        let observer = self.operator_observer();
        let locked = observer.lock(&mut transaction, &ids).await?;
        let query = sqlx::query_scalar(statement).bind(ids).persistent(false);
        let changed = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
        observer
            .changed(&mut transaction, locked, Change::default())
            .await?;
        transaction.commit().await.map_err(store_error)?;
        Ok(changed)
    }
}

#[async_trait]
impl Store for Postgres {
    async fn find(&self, scope: &Scope, after: Option<&Backlog>, limit: usize) -> Result<Found, StoreError> {
        self.run(find::find(
            self.inner.clone(),
            scope.clone(),
            after.cloned(),
            limit,
        ))
        .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        self.run(claim::claim(self.inner.clone(), request.clone())).await
    }

    async fn route(&self, worker: Uuid, routings: &[Routing]) -> Result<Routed, StoreError> {
        if routings.is_empty() {
            return Ok(Routed::default());
        }
        let columns = route::Columns::of(routings);
        self.run(route::route(self.inner.clone(), worker, columns)).await
    }

    async fn settle(&self, worker: Uuid, settlements: &[Settlement]) -> Result<Vec<Uuid>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        self.run(settle::settle(
            self.inner.clone(),
            worker,
            settle::Columns::of(settlements),
        ))
        .await
    }

    async fn renew(
        &self,
        worker: Uuid,
        held: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        self.run(settle::renew(self.inner.clone(), worker, held.to_vec(), lease))
            .await
    }

    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError> {
        self.run(sweep::sweep(self.inner.clone(), request.clone())).await
    }

    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError> {
        if request.namespaces.is_empty() {
            return Ok(Vec::new());
        }
        self.run(workers::lease_lanes(self.inner.clone(), request.clone()))
            .await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        let statement = self.inner.sql.heartbeat(heartbeat);
        self.run(workers::say(self.inner.clone(), statement)).await
    }

    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError> {
        let statement = self.inner.sql.deregister(worker);
        self.run(workers::say(self.inner.clone(), statement)).await
    }

    async fn disable(&self, destination: &str, reason: &str) -> Result<(), StoreError> {
        self.run(workers::pause(
            self.inner.clone(),
            destination.to_owned(),
            reason.to_owned(),
        ))
        .await
    }

    async fn parked(
        &self,
        what: Parked,
        scope: &Scope,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Stub>, StoreError> {
        self.run(find::parked(
            self.inner.clone(),
            what,
            scope.clone(),
            after,
            limit,
        ))
        .await
    }

    async fn unpark(&self, what: Parked, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        self.run(find::unpark(self.inner.clone(), what, ids.to_vec()))
            .await
    }

    fn importers(&self) -> Vec<Arc<dyn Import>> {
        let importer = |adoption: &Arc<adopt::Adoption>| -> Arc<dyn Import> {
            Arc::new(adopt::Importer::new(self.clone(), Arc::clone(adoption)))
        };
        let all = self.inner.adoptions.get().into_iter().flatten();
        all.map(importer).collect()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.run(migrate::check(self.inner.clone())).await
    }
}

/// What a database error means for us.
fn store_error(error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::Database(answer) => error_of(&answer.code().unwrap_or_default(), answer.message()),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Other(error.to_string()),
    }
}

/// Was it said by a server that only reads, such as one that another took the place of?
fn is_read_only(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(reason) if reason.ends_with("(25006)"))
}

/// A duration as PostgreSQL's interval. What is longer than it can hold is as long as it can hold.
fn interval(duration: Duration) -> sqlx::postgres::types::PgInterval {
    // Three hundred years: past every sane wait, and far below the end of `timestamptz`.
    let most = Duration::from_secs(300 * 365 * 86_400);
    let microseconds = i64::try_from(duration.min(most).as_micros()).unwrap_or(i64::MAX);
    sqlx::postgres::types::PgInterval {
        months: 0,
        days: 0,
        microseconds,
    }
}

/// Attempts as the database counts them; `u32::MAX` means for ever.
fn attempts(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
