//! The outbox in PostgreSQL: any number of workers on one database.
//!
//! Every operation is one short transaction with unnamed statements. So it works behind a pooler in transaction mode
//! (PgBouncer), where a named statement may belong to another client. Parsing each time costs about 1 % of a claim of 1,000
//! rows.
//!
//! No transaction is open while an event is sent.
//!
//! **If we die here** PostgreSQL rolls back uncommitted changes. The leases of claimed rows expire.

pub mod adopt;
mod audit;
mod by_hand;
mod chosen;
mod claim;
mod decode;
mod denied;
mod event_index;
mod fair;
mod fair_index;
mod families;
mod find;
mod grants;
mod keyed;
mod keys;
mod lanes;
mod leases;
mod list;
mod migrate;
mod nodelay;
mod observer;
mod operate;
mod owner;
mod pool;
mod prune;
mod quota_counts;
mod quotas;
mod route;
mod row_security;
mod sagas;
mod sample;
mod settle;
mod sql;
mod sweep;
mod unreadable;
mod url;
mod watch;
mod watermark;
mod workers;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;
use uuid::Uuid;

pub use self::grants::{Bounds, Duty, create_role, grant_script};
pub use self::migrate::{migrations, script};
use self::observer::{Change, NoObserver, RowObserver};
use self::pool::{Seen, begin, open, open_apart};
pub use self::row_security::row_security_script;
use self::sql::Sql;
pub use self::url::Url;
use crate::adopt::Import;
use crate::audit::Line;
use crate::quotas::{Counted, Holder};
use crate::retention::{PruneRequest, Pruned};
use crate::sample::{SampleRequest, Sampled};
use crate::store::{
    Backlog, ClaimRequest, Family, Found, Heartbeat, LaneRequest, Parked, Range, Routed, Routing, Scope,
    Settlement, Store, StoreError, Stub, SweepRequest, Swept, Watch,
};
use pillarbox::Delivery;
use pillarbox::Outbox;
pub use pillarbox::internal::schema::SCHEMA;
use pillarbox::internal::schema::error_of;

/// How a store connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema that holds the outbox: lower-case letters, digits and underscores.
    pub schema: String,
    /// How many connections at most. A dispatcher uses about four. One more is for its heartbeat and its leases, and one
    /// for its [watch](Store::watch).
    pub max_connections: u32,
    /// The timeout of an operation. A third of it is the timeout for a connection and for a lock. The server's timeouts, also
    /// for a silent client inside a transaction, are a little shorter.
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
#[derive(Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

/// Not derived: what sqlx connects with has the password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("url", &self.inner.url)
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

struct Inner {
    url: Url,
    options: Options,
    pool: RwLock<PgPool>,
    /// A separate connection for heartbeats and renewals, which must not wait for others.
    apart: RwLock<PgPool>,
    /// The statement that begins a transaction for no tenant.
    begin: Arc<str>,
    /// What the connections have shown so far.
    seen: Arc<Seen>,
    /// Is the index for fair shares there? Without it, a fair claim would read the whole backlog for each tenant.
    is_fair: AtomicBool,
    sql: Sql,
    /// The adopted tables.
    adoptions: OnceLock<Vec<Arc<adopt::Adoption>>>,
    /// Which claims of this worker have open rows.
    leases: leases::Leases,
    /// Whose turn it is in fair claims.
    turns: fair::Turns,
    /// Where claims of fresh rows with a key go on.
    keys: keys::Keys,
    /// Which numbers of the sequence are certain.
    watermark: Mutex<watermark::Watermark>,
    /// How often the limits of the next claim are halved, because an earlier one was too large.
    halvings: AtomicU32,
    /// Has a claim made unreadable rows dead that the dispatcher does not know of?
    has_unreadable: AtomicBool,
}

type Transaction = sqlx::Transaction<'static, sqlx::Postgres>;
type Connection = sqlx::pool::PoolConnection<sqlx::Postgres>;

impl Postgres {
    /// Creates a store for the database at `url`. It connects with the first operation.
    ///
    /// TLS, as in libpq: `?sslmode=verify-full&sslrootcert=/path/ca.pem`. [`Url`] says what is refused.
    ///
    /// # Errors
    /// When the URL or the name of the schema is invalid.
    pub fn new(url: &str, options: Options) -> Result<Self, StoreError> {
        Self::at(url.parse()?, options)
    }

    /// [`new`](Self::new), with a URL that was read before.
    ///
    /// # Errors
    /// When the name of the schema is invalid.
    pub fn at(url: Url, options: Options) -> Result<Self, StoreError> {
        let sql = Sql::new(&options.schema)?;
        let seen = Arc::new(Seen::default());
        let pool = RwLock::new(open(&url, &options, &seen));
        let apart = RwLock::new(open_apart(&url, &options, &seen));
        let begin = begin(options.timeout, None).into();
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                options,
                pool,
                apart,
                begin,
                seen,
                is_fair: AtomicBool::new(true),
                sql,
                adoptions: OnceLock::new(),
                leases: leases::Leases::default(),
                turns: fair::Turns::default(),
                keys: keys::Keys::default(),
                watermark: Mutex::default(),
                halvings: AtomicU32::new(0),
                has_unreadable: AtomicBool::new(false),
            }),
        })
    }

    /// The same outbox with the same adopted tables, on connections of its own. Callers that may wait, such as an HTTP API,
    /// do not take those of the dispatcher then.
    ///
    /// # Errors
    /// Never, because the options were checked before.
    pub fn with_own_connections(&self, max_connections: u32, timeout: Duration) -> Result<Self, StoreError> {
        let options = Options {
            max_connections,
            timeout,
            ..self.inner.options.clone()
        };
        let store = Self::at(self.inner.url.clone(), options)?;
        if let Some(adoptions) = self.inner.adoptions.get() {
            store.inner.adoptions.set(adoptions.clone()).ok(); // it is new
        }
        Ok(store)
    }

    /// The schema of the outbox.
    pub fn schema(&self) -> &str {
        &self.inner.options.schema
    }

    /// The outbox that an application enqueues into.
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

    /// Checks the role's permissions on the adopted tables, and that each name has the events of its own table only.
    ///
    /// # Errors
    /// When a permission is missing, with the statement that grants it. When a name was moved to a table with other ids.
    pub async fn check_adopted(&self) -> Result<(), StoreError> {
        self.run(adopt::check_all(self.inner.clone())).await
    }

    /// A connection of the pool.
    ///
    /// # Errors
    /// When the database is unavailable, with the root cause.
    pub async fn connection(&self) -> Result<Connection, StoreError> {
        self.inner.connection().await
    }

    /// The connection pool, for callers that share it. Its direct connections have the server's timeouts of [`Options`].
    pub fn pool(&self) -> PgPool {
        self.inner.pool()
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.inner.pool().close().await;
        self.inner.apart().close().await;
    }
}

impl Inner {
    fn adoption(&self, name: &str) -> Option<Arc<adopt::Adoption>> {
        let all = self.adoptions.get()?;
        all.iter().find(|adoption| adoption.name() == name).cloned()
    }

    fn watermark(&self) -> MutexGuard<'_, watermark::Watermark> {
        // A panic elsewhere does not make it wrong.
        self.watermark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection was lost: the next server may lack the last commits, and number rows again.
    fn forget_progress(&self) {
        self.watermark().forget();
        self.keys.forget();
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
        adopt::WriteBack::of_few(self)
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
    async fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Result<Found, StoreError> {
        self.run(find::find(
            self.inner.clone(),
            scope.clone(),
            served.map(<[String]>::to_vec),
            after.cloned(),
            limit,
        ))
        .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Delivery>, StoreError> {
        self.run(claim::claim(self.inner.clone(), request.clone())).await
    }

    fn take_unreadable(&self) -> bool {
        self.inner.has_unreadable.swap(false, Ordering::AcqRel)
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
        rows: &[(Uuid, Uuid)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.run(leases::renew(self.inner.clone(), worker, rows.to_vec(), lease))
            .await
    }

    async fn sweep(&self, request: &SweepRequest) -> Result<Swept, StoreError> {
        self.run(sweep::sweep(self.inner.clone(), request.clone())).await
    }

    async fn lease_lanes(&self, request: &LaneRequest) -> Result<Vec<Range>, StoreError> {
        if request.backlogs.is_empty() {
            return Ok(Vec::new());
        }
        self.run(workers::lease_lanes(self.inner.clone(), request.clone()))
            .await
    }

    async fn prune_lanes(&self) -> Result<usize, StoreError> {
        self.run(workers::prune_lanes(self.inner.clone())).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        let statement = self.inner.sql.heartbeat(heartbeat);
        self.run(workers::execute(self.inner.clone(), statement)).await
    }

    async fn deregister(&self, worker: Uuid) -> Result<(), StoreError> {
        let statement = self.inner.sql.deregister(worker);
        self.run(workers::execute(self.inner.clone(), statement)).await
    }

    async fn disable(&self, worker: Uuid, destination: &str, reason: &str) -> Result<(), StoreError> {
        self.run(workers::pause(
            self.inner.clone(),
            destination.to_owned(),
            reason.to_owned(),
            true,
            Line::disabled(worker, destination),
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

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, StoreError> {
        self.run(prune::prune(self.inner.clone(), request.clone())).await
    }

    async fn count_quotas(
        &self,
        worker: Uuid,
        after: Option<&Holder>,
    ) -> Result<Option<Counted>, StoreError> {
        let counted = quota_counts::count(self.inner.clone(), worker, after.cloned());
        Ok(Some(self.run(counted).await?))
    }

    async fn sample(&self, request: &SampleRequest) -> Result<Option<Sampled>, StoreError> {
        let sampled = sample::sample(self.inner.clone(), request.clone());
        Ok(Some(self.run(sampled).await?))
    }

    async fn families(&self, events: &[Uuid]) -> Result<Vec<Family>, StoreError> {
        self.run(families::families(self.inner.clone(), events.to_vec()))
            .await
    }

    async fn pending(&self, scope: &Scope) -> Result<Option<u64>, StoreError> {
        let counted = operate::stats(self.inner.clone(), None, scope.clone());
        Ok(Some(self.run(counted).await?.pending))
    }

    async fn watch(&self) -> Result<Option<Box<dyn Watch>>, StoreError> {
        watch::watch(self.inner.clone()).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.run(migrate::check(self.inner.clone())).await
    }
}

/// The store's error for a database error.
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

/// A duration as an interval of PostgreSQL, capped at its maximum.
fn interval(duration: Duration) -> sqlx::postgres::types::PgInterval {
    // Three hundred years: longer than every sane wait, and far below the end of `timestamptz`.
    let most = Duration::from_secs(300 * 365 * 86_400);
    let microseconds = i64::try_from(duration.min(most).as_micros()).unwrap_or(i64::MAX);
    sqlx::postgres::types::PgInterval {
        months: 0,
        days: 0,
        microseconds,
    }
}

/// Attempts for their column. `u32::MAX` means no limit.
fn attempts(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
