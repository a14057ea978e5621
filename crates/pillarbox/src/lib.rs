//! Pillarbox is a transactional outbox. An application writes an [`Event`](struct@Event) in the same database
//! transaction as its business change. A dispatcher delivers it to a broker, a webhook or a function, at least once.
//!
//! This crate is what an application links.
//!
//! | to | use |
//! |---|---|
//! | enqueue an event in the caller's transaction | [`Event`](struct@Event), [`Outbox`], [`Connection`], [`Enqueued`] |
//! | make a type of the application's own an event | [`typed`], by `#[derive(Event)]` |
//! | commit aggregates with what they recorded | [`Aggregate`], [`Recorded`], [`UnitOfWork`] |
//! | handle each event once | [`inbox`] |
//! | do or undo the work of several services | [`saga`] |
//! | change the shape of a payload | [`versions`] |
//! | carry a trace along | [`trace`] |
//! | verify a webhook | [`webhook`] |
//! | test the code that enqueues | [`testing`] |
//! | deliver to a place of one's own | [`Sink`], [`Delivery`], [`Outcome`], [`Outcomes`], [`RetryPolicy`] |

mod aggregate;
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod compress;
#[cfg(feature = "postgres")]
mod connect;
mod derived_id;
#[cfg(feature = "diesel")]
pub mod diesel;
mod enqueue;
mod envelope;
mod error;
mod event;
#[doc(hidden)]
pub mod failpoint;
pub mod inbox;
#[doc(hidden)]
pub mod internal;
mod line_limit;
mod network;
mod outbox;
mod outcome;
mod payload;
mod retry;
pub mod saga;
mod schema;
mod sink;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod testing;
#[doc(hidden)]
pub mod text;
pub mod trace;
pub mod typed;
mod unit_of_work;
mod validate;
pub mod versions;
mod wake;
#[cfg(feature = "webhook")]
pub mod webhook;

pub use aggregate::{Aggregate, Recorded};
pub use clock::{Clock, SystemClock};
pub use enqueue::{EnqueueError, Enqueued};
pub use envelope::Envelope;
pub use error::StoreError;
pub use event::{Delivery, Event, ToEvent, UNROUTED};
pub use outbox::{Connection, Outbox, Transaction};
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
pub use retry::{Jitter, RetryPolicy, Schedule};
pub use sink::{Outcomes, Sink};
pub use unit_of_work::{CommitError, UnitOfWork};
pub use validate::{InvalidEvent, Limits};
pub use wake::Wake;
