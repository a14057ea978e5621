//! Handles each event once, however often it is delivered.
//!
//! ```text
//! begin ─▶ once: mark ─▶ new: the handler's effects ─▶ commit ─▶ acknowledge
//!                  └───▶ known: nothing ──────────────────────────▶ acknowledge
//! ```
//!
//! Delivery is at least once: a broker, a dispatcher or an operator may send the same event again. An inbox marks the
//! events that a consumer has handled, in the transaction of the handler's effects: both commit, or neither. What the
//! handler [enqueues](crate::Outbox) is in that transaction as well, so that a chain of services passes each event on
//! once.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example(pool: sqlx::PgPool, event_id: uuid::Uuid) -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::inbox::{Handled, Inbox};
//!
//! let inbox = Inbox::default();
//! let mut transaction = pool.begin().await?;
//! let handled = inbox
//!     .once(&mut *transaction, "notifications", event_id, async |connection| {
//!         sqlx::query("insert into notifications (event) values ($1)")
//!             .bind(event_id)
//!             .execute(connection)
//!             .await
//!     })
//!     .await?;
//! transaction.commit().await?;
//! if let Handled::Before = handled {
//!     tracing::debug!(%event_id, "came again");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! If one event is delivered twice at the same time, the second delivery waits in the database until the first commits or
//! rolls back. Then it sees whether there is anything left to do.
//!
//! **If we die here** before the commit, neither the mark nor the effects are there, and the event is delivered again.
//! After it both are, and a second delivery finds the mark.

#[cfg(feature = "diesel")]
mod blocking;
mod key;
#[cfg_attr(
    not(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel")),
    allow(
        dead_code,
        reason = "only a library that talks to PostgreSQL runs its statements"
    )
)]
pub(crate) mod postgres;
mod retention;
mod table;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

pub use self::key::Key;
pub use self::retention::TooShort;
pub use self::table::Table;
use crate::error::StoreError;
use crate::outbox::sealed::Backend as _;
use crate::outbox::{Connection, SCHEMA};
use crate::schema::check_name;

/// How long a mark is kept, by default.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);

/// How many marks one call of [`prune`](Inbox::prune) removes at most, so that its transaction is short.
const CHUNK: i32 = 5_000;

/// A table of events already handled. Cheap to clone; make one and keep it.
#[derive(Debug, Clone)]
pub struct Inbox {
    #[cfg_attr(
        not(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel")),
        allow(dead_code, reason = "the others have one table each")
    )]
    sql: Arc<table::Statements>,
    keep: Duration,
    prepared: bool,
}

/// Whether the handler ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled<T> {
    /// The event was new. Holds what the handler returned.
    Now(T),
    /// The event was handled before, and the handler did not run.
    Before,
}

/// Why an event was not handled. Roll the transaction back.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<E> {
    /// The inbox could not be read or written.
    #[error("inbox failed: {0}")]
    Inbox(StoreError),
    /// The handler failed. The event has no mark.
    #[error(transparent)]
    Handler(E),
}

impl Default for Inbox {
    fn default() -> Self {
        Self::in_schema(SCHEMA).expect("the default schema has a sound name")
    }
}

impl Inbox {
    /// The inbox in another schema of PostgreSQL than `pillarbox`.
    ///
    /// # Errors
    /// When the name cannot be a schema's.
    pub fn in_schema(schema: &str) -> Result<Self, StoreError> {
        check_name(schema)?;
        Ok(Self::on(table::Statements::native(schema)))
    }

    /// An existing table of PostgreSQL. SQLite and the memory store have a table of their own.
    pub fn adopting(table: Table) -> Self {
        Self::on(table::Statements::from(&table))
    }

    fn on(statements: table::Statements) -> Self {
        Self {
            sql: Arc::new(statements),
            keep: KEEP,
            prepared: false,
        }
    }

    /// Sets how long a mark is kept before it is [pruned](Self::prune); 30 days by default. That must be longer than an
    /// event may be retried or replayed: [`outlasts`](Self::outlasts) checks it.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How long a mark is kept.
    pub fn kept(&self) -> Duration {
        self.keep
    }

    /// Keeps its statements prepared on the connection: [`Outbox::prepared`](crate::Outbox::prepared) says when.
    #[must_use]
    pub fn prepared(mut self) -> Self {
        self.prepared = true;
        self
    }

    /// Runs `handler` if `consumer` has not handled this event before, in the transaction that `connection` is in, and
    /// marks it. Costs one statement.
    ///
    /// Commit afterwards, and acknowledge the event after that. If the handler fails, the mark is removed.
    ///
    /// With sqlx, pass the transaction's connection: `&mut *transaction`. The compiler does not accept in a spawned task a
    /// closure that takes the transaction itself, because of the lifetime in its type. Other libraries have
    /// [`mark`](Self::mark), which needs no closure.
    ///
    /// # Errors
    /// When the handler fails, or the database does. Roll the transaction back.
    pub async fn once<C, K, H, T, E>(
        &self,
        connection: &mut C,
        consumer: &str,
        event: K,
        handler: H,
    ) -> Result<Handled<T>, OnceError<E>>
    where
        C: Connection + ?Sized,
        K: Into<Key>,
        H: AsyncFnOnce(&mut C) -> Result<T, E>,
    {
        let key = event.into();
        let new = self.mark(connection, consumer, key).await;
        if !new.map_err(OnceError::Inbox)? {
            return Ok(Handled::Before);
        }
        let done = handler(connection).await;
        self.kept_if_done(connection, consumer, &[key], done).await
    }

    /// The same for many events in one transaction: `handler` gets those that are new, in their order, and is not
    /// called if none is. Costs one statement for all of them.
    ///
    /// # Errors
    /// As for [`once`](Self::once). If the handler fails, none of them is marked.
    pub async fn once_all<'a, C, V, H, T, E>(
        &self,
        connection: &mut C,
        consumer: &str,
        events: &'a [V],
        key: impl Fn(&V) -> Key,
        handler: H,
    ) -> Result<Handled<T>, OnceError<E>>
    where
        C: Connection + ?Sized,
        H: AsyncFnOnce(&mut C, Vec<&'a V>) -> Result<T, E>,
    {
        let keys: Vec<Key> = events.iter().map(key).collect();
        let new = self.mark_all(connection, consumer, &keys).await;
        let marked = new.map_err(OnceError::Inbox)?;
        let (events, keys): (Vec<&V>, Vec<Key>) = events
            .iter()
            .zip(keys)
            .zip(marked)
            .filter_map(|(event, new)| new.then_some(event))
            .unzip();
        if keys.is_empty() {
            return Ok(Handled::Before);
        }
        let done = handler(connection, events).await;
        self.kept_if_done(connection, consumer, &keys, done).await
    }

    /// Marks an event as handled, in the transaction that `connection` is in. Returns whether it is new: then handle it,
    /// and roll back if that fails. [`once`](Self::once) does both.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn mark<C>(
        &self,
        connection: &mut C,
        consumer: &str,
        event: impl Into<Key>,
    ) -> Result<bool, StoreError>
    where
        C: Connection + ?Sized,
    {
        let new = connection
            .backend()
            .mark(self, consumer, &[event.into().id()])
            .await?;
        Ok(!new.is_empty())
    }

    /// Marks many events, with one statement. Returns for each whether it is new. The second of two equal keys is not.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn mark_all<C>(
        &self,
        connection: &mut C,
        consumer: &str,
        events: &[Key],
    ) -> Result<Vec<bool>, StoreError>
    where
        C: Connection + ?Sized,
    {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = events.iter().map(|key| key.id()).collect();
        let new = connection.backend().mark(self, consumer, &ids).await?;
        Ok(new_ones(&ids, new))
    }

    /// Removes marks, so that these events are new again. For an operator who wants an event handled once more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unmark<C>(
        &self,
        connection: &mut C,
        consumer: &str,
        events: &[Key],
    ) -> Result<(), StoreError>
    where
        C: Connection + ?Sized,
    {
        let ids: Vec<Uuid> = events.iter().map(|key| key.id()).collect();
        connection.backend().unmark(self, consumer, &ids).await
    }

    /// Removes the consumer's marks that are older than they are [kept](Self::keep), a few thousand at most. Returns how
    /// many. Call it again until that is zero.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn prune<C>(&self, connection: &mut C, consumer: &str) -> Result<u64, StoreError>
    where
        C: Connection + ?Sized,
    {
        connection.backend().prune(self, consumer, CHUNK).await
    }

    /// Keeps the marks if the handler succeeded. Otherwise removes them, even if the caller commits nevertheless.
    async fn kept_if_done<C, T, E>(
        &self,
        connection: &mut C,
        consumer: &str,
        keys: &[Key],
        done: Result<T, E>,
    ) -> Result<Handled<T>, OnceError<E>>
    where
        C: Connection + ?Sized,
    {
        match done {
            Ok(done) => Ok(Handled::Now(done)),
            Err(error) => {
                // If even this fails, so will the commit: the transaction is aborted or its connection lost.
                self.unmark(connection, consumer, keys).await.ok();
                Err(OnceError::Handler(error))
            }
        }
    }
}

/// Which of the ids are new: of two that are equal, the first.
fn new_ones(ids: &[Uuid], new: Vec<Uuid>) -> Vec<bool> {
    let mut new: HashSet<Uuid> = new.into_iter().collect();
    ids.iter().map(|id| new.remove(id)).collect()
}
