//! Pillarbox is a transactional outbox. An application writes an [`Event`](struct@Event) in the same database
//! transaction as its business change; a dispatcher gets it to a broker, a webhook or a function,
//! at least once, and never loses one.
//!
//! This crate is what an application links: the event and how to enqueue it, the inbox of a consumer, aggregates, versions
//! and sagas, and the port [`Sink`] to places where events go.
//!
//! | module | what it holds |
//! |---|---|
//! | [`event`], [`payload`], [`validate`] | what an application says happened, and when it is refused |
//! | [`typed`] | an application's own types as events, by `#[derive(Event)]` |
//! | [`outbox`], [`enqueue`] | how it is enqueued in the caller's transaction, and what comes of it |
//! | [`aggregate`], [`unit_of_work`] | what aggregates say while they change, committed with them |
//! | [`sink`], [`outcome`], [`retry`] | where events go, how an attempt ends, when the next one is due |
//! | [`saga`] | work of several services that is done by all of them or undone |
//! | [`compress`], [`trace`] | large payloads made smaller; the trace that an event belongs to |
//! | [`clock`] | where time comes from |
//! | [`inbox`] | each event handled once |
//! | [`testing`] | for tests of the code that enqueues |
//! | [`failpoint`] | where a test may end the process |

pub mod aggregate;
pub mod clock;
pub mod compress;
#[cfg(feature = "postgres")]
mod connect;
pub mod enqueue;
mod envelope;
pub mod error;
pub mod event;
pub mod failpoint;
pub mod inbox;
#[doc(hidden)]
pub mod internal;
pub mod outbox;
pub mod outcome;
pub mod payload;
pub mod retry;
pub mod saga;
mod schema;
pub mod sink;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod testing;
pub mod text;
pub mod trace;
pub mod typed;
pub mod unit_of_work;
pub mod validate;
pub mod versions;
pub mod wake;
#[cfg(feature = "webhook")]
pub mod webhook;

pub use aggregate::{Aggregate, Recorded};
pub use clock::{Clock, SystemClock};
pub use enqueue::{EnqueueError, Enqueued};
pub use envelope::Envelope;
pub use error::StoreError;
pub use event::{Delivery, Event, ToEvent};
pub use inbox::Inbox;
pub use outbox::Outbox;
pub use outcome::Outcome;
pub use payload::Payload;
/// Makes a serde type an event: it implements [`ToEvent`], so that `outbox.enqueue(&mut transaction, &value)` takes it.
///
/// ```
/// use pillarbox::Event;
///
/// #[derive(serde::Serialize, Event)]
/// #[event(topic = "orders", type = "OrderCreated", version = 2)]
/// struct OrderCreated {
///     #[event(key, aggregate = "order")]
///     order: u64,
/// }
/// ```
///
/// [`typed`] says everything that `#[event(…)]` takes.
pub use pillarbox_macros::Event;
pub use retry::RetryPolicy;
pub use saga::Saga;
pub use sink::Sink;
pub use unit_of_work::{CommitError, UnitOfWork};
pub use validate::{InvalidEvent, Limits};
pub use wake::Wake;
