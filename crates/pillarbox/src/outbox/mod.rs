//! Enqueues events in the caller's own transaction, with any of several database libraries.
//!
//! ```text
//! enqueue ─▶ prepare: checked, traced, compressed ─▶ connection: one statement ─▶ new, or already there
//! ```
//!
//! An [`Outbox`] holds the settings. A [`Connection`] is the caller's transaction: of sqlx (PostgreSQL and SQLite),
//! tokio-postgres, SeaORM or diesel, each behind the cargo feature of its name, or of the memory store. Only the caller
//! begins, commits and rolls back.
//!
//! **If we die here** the caller's transaction rolls back: neither the business change nor the event happened.

#[cfg(feature = "diesel")]
pub(crate) mod diesel;
pub(crate) mod enqueued;
#[cfg_attr(
    not(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel")),
    allow(
        dead_code,
        reason = "only a library that talks to PostgreSQL runs its statements"
    )
)]
pub(crate) mod postgres;
mod prepare;
mod recorded;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "sqlite")]
#[doc(hidden)]
pub mod sqlite;
#[cfg(feature = "postgres")]
mod sqlx;
#[cfg_attr(
    not(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel")),
    allow(dead_code, reason = "only a library that talks to PostgreSQL reads its rows")
)]
mod stored;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::future::Future;
use std::sync::Arc;

use crate::compress::THRESHOLD;
use crate::enqueue::{EnqueueError, Enqueued};
use crate::error::StoreError;
use crate::event::ToEvent;
use crate::saga;
pub(crate) use crate::schema::SCHEMA;
use crate::schema::check_name;
use crate::validate::Limits;
use crate::wake::Wake;

use self::sealed::Backend as _;

/// Enqueues events. Cheap to clone; make one and keep it.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use pillarbox::{Event, Outbox};
///
/// let outbox = Outbox::default();
/// let mut transaction = pool.begin().await?;
/// sqlx::query("insert into orders (id) values (42)").execute(&mut *transaction).await?;
/// let event = Event::new("shop", "orders").json(&serde_json::json!({"order": 42}))?;
/// outbox.enqueue(&mut transaction, &event).await?;
/// transaction.commit().await?; // both, or neither
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Outbox {
    schema: Arc<str>,
    sql: Arc<postgres::Statements>,
    sagas: Arc<saga::postgres::Statements>,
    limits: Limits,
    compress_over: Option<usize>,
    prepared: bool,
    serialised: bool,
    by_function: bool,
    wake: Option<Wake>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::in_schema(SCHEMA).expect("the default schema has a valid name")
    }
}

impl Outbox {
    /// The outbox in another schema of PostgreSQL than `pillarbox`.
    ///
    /// # Errors
    /// When the name is not a valid schema name.
    pub fn in_schema(schema: &str) -> Result<Self, StoreError> {
        check_name(schema)?;
        Ok(Self {
            schema: schema.into(),
            sql: Arc::new(postgres::Statements::in_schema(schema)),
            sagas: Arc::new(saga::postgres::Statements::in_schema(schema)),
            limits: Limits::default(),
            compress_over: Some(THRESHOLD),
            prepared: false,
            serialised: false,
            by_function: false,
            wake: None,
        })
    }

    /// The schema that holds the outbox in PostgreSQL.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Sets the limits of an event.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long a payload may be, in bytes, before it is compressed with zstd; `None` is never.
    #[must_use]
    pub fn compress_over(mut self, threshold: Option<usize>) -> Self {
        self.compress_over = threshold;
        self
    }

    /// Keeps its statements prepared on the connection, under a name. Saves one round trip per call. Only sqlx on
    /// PostgreSQL uses this setting; other libraries have their own.
    ///
    /// Do not use it behind a pooler in transaction mode: in the next transaction the name may be another program's
    /// statement.
    #[must_use]
    pub fn prepared(mut self) -> Self {
        self.prepared = true;
        self
    }

    /// Makes writers of the same ordering key wait for each other. The second gets its place in the order after the first
    /// has committed, so that the order of commits is the order of delivery.
    ///
    /// Needed only if writers of one key share no lock of their own, such as the row that they change. A key is locked
    /// from the call to the end of the caller's transaction. All calls lock their keys in the same order, so that two
    /// calls cannot deadlock. Two transactions with several calls each can: enqueue all events of a transaction in one
    /// call, or in the order of their keys. Events without a key do not wait. SQLite has one writer at a time and needs
    /// none of this.
    #[must_use]
    pub fn serialised(mut self) -> Self {
        self.serialised = true;
        self
    }

    /// Enqueues by the SQL function `enqueue_many` instead of an INSERT, so that a role with the duty `producer` is enough: it
    /// is confined to its namespaces, tenants and destinations, and reads nothing. An INSERT needs the duty `writer`. Each
    /// call passes its events as one JSON array. SQLite has no roles and ignores this.
    #[must_use]
    pub fn by_function(mut self) -> Self {
        self.by_function = true;
        self
    }

    /// Wakes the dispatcher in this process whenever a [`UnitOfWork`](crate::UnitOfWork) has committed events. Without
    /// it, the dispatcher finds them at its next poll.
    #[must_use]
    pub fn wakes(mut self, wake: &Wake) -> Self {
        self.wake = Some(wake.clone());
        self
    }

    /// Rings the wake, if there is one. To be called after a commit.
    pub(crate) fn wake(&self) {
        if let Some(wake) = &self.wake {
            wake.notify();
        }
    }

    #[cfg_attr(
        not(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel")),
        allow(
            dead_code,
            reason = "only a library that talks to PostgreSQL runs its statements"
        )
    )]
    pub(crate) fn saga_statements(&self) -> (&saga::postgres::Statements, bool) {
        (&self.sagas, self.prepared)
    }

    /// Enqueues one event in the transaction that `connection` is in.
    ///
    /// # Errors
    /// When the event is invalid, which leaves the transaction as it was, or the database rejects it, which aborts a
    /// transaction of PostgreSQL.
    pub async fn enqueue<C, E>(&self, connection: &mut C, event: &E) -> Result<Enqueued, EnqueueError>
    where
        C: Connection + ?Sized,
        E: ToEvent + ?Sized,
    {
        let event = prepare::one(self, event).await?;
        let enqueued = connection
            .backend()
            .write(self, std::slice::from_ref(&event))
            .await?;
        Ok(enqueued[0])
    }

    /// Enqueues many events in the transaction that `connection` is in, in their order, with one statement.
    /// If one is rejected, none is enqueued.
    ///
    /// # Errors
    /// As for [`enqueue`](Self::enqueue).
    pub async fn enqueue_all<C, E>(
        &self,
        connection: &mut C,
        events: &[E],
    ) -> Result<Vec<Enqueued>, EnqueueError>
    where
        C: Connection + ?Sized,
        E: ToEvent,
    {
        let events = prepare::all(self, events).await?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        connection.backend().write(self, &events).await
    }
}

/// A connection of a database library, in the caller's transaction. Outside one, each call is a transaction of its own,
/// and the outbox guarantees nothing.
///
/// Implemented for the types below only. `pillarbox_testkit::producer_suite!` tests each of them.
///
/// | library | feature | types |
/// |---|---|---|
/// | sqlx | `postgres`, `sqlite` | `PgConnection`, `SqliteConnection`, and the `Transaction` and `PoolConnection` of both |
/// | tokio-postgres | `tokio-postgres` | `Transaction`, `Client` |
/// | SeaORM | `sea-orm` | `DatabaseTransaction`, `DatabaseConnection` |
/// | diesel-async | `diesel-async` | `AsyncPgConnection` |
/// | diesel | `diesel` | by [`Outbox::enqueue_blocking`], since it blocks |
/// | – | – | `memory::Transaction` of `pillarbox-store` |
pub trait Connection: Send + sealed::Sealed {
    /// The connection that runs the statements.
    #[doc(hidden)]
    type Backend: sealed::Backend;

    /// Lends it.
    #[doc(hidden)]
    fn backend(&mut self) -> &mut Self::Backend;
}

/// A transaction that a unit of work can commit.
///
/// Implemented for the transactions of sqlx, tokio-postgres and SeaORM, for that of the memory store, and for the one of
/// diesel-async that `pillarbox::diesel` begins.
pub trait Transaction: Connection + Sized {
    /// Commits it.
    #[doc(hidden)]
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

#[doc(hidden)]
pub mod sealed {
    //! What a database does for an outbox, an inbox and a saga. Not for applications: it changes without notice.

    use std::borrow::Cow;
    use std::future::Future;

    use uuid::Uuid;

    use super::Outbox;
    use crate::enqueue::{EnqueueError, Enqueued};
    use crate::error::StoreError;
    use crate::event::Event;
    use crate::inbox::Inbox;
    use crate::saga;

    /// Keeps other crates from implementing a trait, so that it can change.
    pub trait Sealed {}

    /// Runs our statements in the caller's transaction.
    pub trait Backend: Send {
        /// Writes events that were checked; there is at least one. Returns as many, in their order.
        fn write(
            &mut self,
            outbox: &Outbox,
            events: &[Cow<'_, Event>],
        ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send;

        /// Reads the events that the transaction sees, without siblings, in the order of `seq`: those of this
        /// namespace, or all.
        fn read(
            &mut self,
            outbox: &Outbox,
            namespace: Option<&str>,
        ) -> impl Future<Output = Result<Vec<Event>, StoreError>> + Send;

        /// Returns those of these ids that the transaction sees in the outbox.
        fn taken(
            &mut self,
            outbox: &Outbox,
            ids: &[Uuid],
        ) -> impl Future<Output = Result<Vec<Uuid>, StoreError>> + Send;

        /// Marks events as handled by a consumer. Returns those that were not.
        fn mark(
            &mut self,
            inbox: &Inbox,
            consumer: &str,
            ids: &[Uuid],
        ) -> impl Future<Output = Result<Vec<Uuid>, StoreError>> + Send;

        /// Removes marks.
        fn unmark(
            &mut self,
            inbox: &Inbox,
            consumer: &str,
            ids: &[Uuid],
        ) -> impl Future<Output = Result<(), StoreError>> + Send;

        /// Prunes at most `limit` marks that are older than the inbox keeps them. Returns how many.
        fn prune(
            &mut self,
            inbox: &Inbox,
            consumer: &str,
            limit: i32,
        ) -> impl Future<Output = Result<u64, StoreError>> + Send;

        /// Reads or writes a saga.
        fn saga(
            &mut self,
            outbox: &Outbox,
            request: saga::Request<'_>,
        ) -> impl Future<Output = Result<saga::Response, StoreError>> + Send;
    }
}
