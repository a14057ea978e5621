//! One attempt to handle one event.
//!
//! ```text
//! memory ─▶ begin ─▶ mark ─▶ duplicate: roll back
//!                      └───▶ new: decompress ─▶ upcast ─▶ decode ─▶ handler ─▶ commit
//! ```
//!
//! The mark comes first. It blocks every other process that received the same event until this attempt commits or rolls
//! back, and a duplicate costs no decoding. Memory for a compressed payload is reserved before, so that no transaction waits
//! for it.
//!
//! **If we die here** before the commit, nothing happened and the broker delivers the event again. After the commit it delivers
//! the event again too, and the mark is found.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use pillarbox::Transaction;
use pillarbox::compress::{self, ZSTD};
use pillarbox::inbox::Inbox;
use pillarbox::versions::{Upcast, UpcastError};
use pillarbox::{Outcome, StoreError, failpoint, trace};
use pillarbox_sinks::message::{Memory, Reserved};
use tokio::time::timeout;

use crate::database::Database;
use crate::handler_error::HandlerError;
use crate::received::Received;
use crate::registry::{Entry, Registry};
use crate::settings::{Newer, Settings, Unknown};

/// How long the database may take to begin a transaction and mark the event, and to commit, even if handlers get less.
/// SQLite lets a writer wait for its turn for 30 seconds.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(60);

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The effects are committed.
    Handled,
    /// It was handled before.
    Duplicate,
    /// Its type has no handler.
    Ignored,
    /// The handler failed.
    Failed(Outcome),
    /// The handler does not understand its version yet, and it may wait for one that does.
    Newer(String),
    /// The handler took longer than this.
    TimedOut(Duration),
    /// A database call failed.
    Store(StoreError),
}

/// What every attempt needs.
pub(crate) struct Attempts<D: Database> {
    pub(crate) consumer: String,
    pub(crate) database: D,
    pub(crate) inbox: Inbox,
    pub(crate) registry: Registry<D::Transaction>,
    pub(crate) settings: Settings,
    /// For decompressed payloads of all attempts.
    pub(crate) memory: Memory,
}

/// Why an event was not handled.
enum Failed {
    Handler(HandlerError),
    Newer(String),
}

impl From<HandlerError> for Failed {
    fn from(error: HandlerError) -> Self {
        Self::Handler(error)
    }
}

impl<D: Database> Attempts<D> {
    /// Makes an attempt. It ends even if the handler or the database never answers. Drop it only when the consumer ends:
    /// the pool has to clean up a dropped transaction.
    pub(crate) async fn make(&self, event: Received<Bytes>) -> Ended {
        let Some(entry) = self.registry.find(event.event_type.as_deref()) else {
            return self.unknown(&event);
        };
        let limit = self.settings.timeout;
        let memory = self.reserve(&event).await;
        let mut transaction = match timeout(limit.max(DATABASE_TIMEOUT), self.begin(&event)).await {
            Ok(Ok(Some(transaction))) => transaction,
            Ok(Ok(None)) => return Ended::Duplicate,
            Ok(Err(error)) => return Ended::Store(unavailable(error)),
            Err(_) => return Ended::Store(silent(limit)),
        };
        failpoint::hit("consume_marked");
        match timeout(limit, self.handle(&mut transaction, entry, event, memory)).await {
            Ok(Ok(())) => {}
            Ok(Err(Failed::Handler(error))) => return Ended::Failed(error.outcome()),
            Ok(Err(Failed::Newer(reason))) => return Ended::Newer(reason),
            Err(_) => return Ended::TimedOut(limit),
        }
        failpoint::hit("consume_handled");
        // Whether a commit without an answer took effect, the mark shows at the next attempt.
        let committed = timeout(limit.max(DATABASE_TIMEOUT), self.commit(transaction)).await;
        committed.unwrap_or_else(|_| Ended::Store(silent(limit)))
    }

    /// A transaction that marks the event; none if it was handled before.
    async fn begin(&self, event: &Received<Bytes>) -> Result<Option<D::Transaction>, StoreError> {
        let mut transaction = self.database.begin(self.settings.timeout).await?;
        let key = event.inbox_key(self.settings.by_dedupe_key);
        let is_new = (self.inbox).mark(&mut transaction, &self.consumer, key).await?;
        Ok(is_new.then_some(transaction))
    }

    fn unknown(&self, event: &Received<Bytes>) -> Ended {
        match self.settings.unknown {
            Unknown::Ignore => Ended::Ignored,
            Unknown::Reject => Ended::Failed(Outcome::reject(match &event.event_type {
                Some(event_type) => {
                    format!("no handler is registered for the event type `{event_type}`")
                }
                None => "the message has no event type, and no handler accepts such messages".to_owned(),
            })),
        }
    }

    async fn handle(
        &self,
        transaction: &mut D::Transaction,
        entry: &Entry<D::Transaction>,
        event: Received<Bytes>,
        memory: Option<Reserved>,
    ) -> Result<(), Failed> {
        let context = event.trace();
        let handled = async {
            let (event, _memory) = self.decompressed(event, memory).await?;
            let event = self.upcast(entry, event)?;
            Ok(entry.handler.handle(transaction, event).await?)
        };
        // Unwind safe: a panicking handler leaves its changes in the transaction, which rolls back.
        let handled = AssertUnwindSafe(handled).catch_unwind();
        let handled = match context {
            Some(context) => trace::within(context, handled).await,
            None => handled.await,
        };
        handled.unwrap_or_else(|panic| {
            let panic = panic_text(&*panic);
            Err(HandlerError::retry(format!("handler panicked: {panic}")).into())
        })
    }

    /// The event in the version that the handler declared.
    fn upcast(
        &self,
        entry: &Entry<D::Transaction>,
        event: Received<Bytes>,
    ) -> Result<Received<Bytes>, Failed> {
        let (Some(version), Some(event_type)) = (entry.version, &event.event_type) else {
            return Ok(event);
        };
        let upcasters = &self.registry.upcasters;
        match upcasters.upcast(event_type, event.event_version, version, &event.body) {
            Ok(Upcast::Same) => Ok(event),
            Ok(Upcast::Changed(body)) => Ok(event.with_body(body)),
            Err(error @ UpcastError::Newer { .. }) => Err(match self.settings.newer {
                Newer::Reject => HandlerError::reject(error.to_string()).into(),
                Newer::Hold => Failed::Newer(error.to_string()),
            }),
            Err(
                error @ (UpcastError::Older { .. } | UpcastError::Refused { .. } | UpcastError::NotJson(_)),
            ) => Err(HandlerError::reject(error.to_string()).into()),
        }
    }

    /// Memory for the decompressed body, if it is compressed. Waits for other attempts, each of which ends.
    async fn reserve(&self, event: &Received<Bytes>) -> Option<Reserved> {
        if !is_compressed(event) {
            return None;
        }
        Some(self.memory.reserve(self.decompressed_size(event)).await)
    }

    /// What the frame declares, or the limit: no more is decompressed.
    fn decompressed_size(&self, event: &Received<Bytes>) -> usize {
        let limit = self.settings.max_decompressed;
        let declared = compress::decompressed_size(&event.body);
        declared.map_or(limit, |size| {
            usize::try_from(size).unwrap_or(usize::MAX).min(limit)
        })
    }

    /// Decompresses the body in this memory, which it takes until it is dropped.
    async fn decompressed(
        &self,
        event: Received<Bytes>,
        memory: Option<Reserved>,
    ) -> Result<(Received<Bytes>, Option<Reserved>), HandlerError> {
        let Some(memory) = memory else {
            return Ok((event, None));
        };
        let (compressed, limit) = (event.body.clone(), self.settings.max_decompressed);
        let work = move || compress::decompress(&compressed, limit);
        let worked = memory.work(self.decompressed_size(&event), work).await;
        let (body, memory) = worked
            .map_err(|error| HandlerError::retry(format!("decompressing the payload failed: {error}")))?;
        let body = body.map_err(|error| HandlerError::reject(error.to_string()))?;
        let mut event = event.with_body(body);
        event.content_encoding = None;
        Ok((event, Some(memory)))
    }

    async fn commit(&self, mut transaction: D::Transaction) -> Ended {
        if let Err(error) = self.database.check(&mut transaction).await {
            return Ended::Store(error);
        }
        match transaction.commit().await {
            Ok(()) => {
                failpoint::hit("consume_committed");
                Ended::Handled
            }
            Err(error) => Ended::Store(error),
        }
    }
}

/// The database did not answer in time.
fn silent(limit: Duration) -> StoreError {
    let limit = limit.max(DATABASE_TIMEOUT);
    StoreError::Unavailable(format!("no answer from the database within {limit:?}"))
}

/// Before the handler runs, only the event's id was used. An error there is about the database and not about the event: a
/// changed password, a database that is being restored.
fn unavailable(error: StoreError) -> StoreError {
    match error {
        StoreError::Other(text) | StoreError::Invalid(text) => StoreError::Unavailable(text),
        known @ (StoreError::Unavailable(_)
        | StoreError::Missing(_)
        | StoreError::Outdated { .. }
        | StoreError::Newer { .. }
        | StoreError::OtherBuild { .. }
        | StoreError::Denied(_)
        | StoreError::Unsafe(_)) => known,
    }
}

fn is_compressed(event: &Received<Bytes>) -> bool {
    let encoding = event.content_encoding.as_deref();
    encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case(ZSTD))
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> Cow<'static, str> {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        return Cow::Borrowed(text);
    }
    match panic.downcast_ref::<String>() {
        Some(text) => Cow::Owned(text.clone()),
        None => Cow::Borrowed("(no message)"),
    }
}
