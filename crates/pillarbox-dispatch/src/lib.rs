//! The engine: claims events from a [store](pillarbox_store::Store), sends each to its [sinks](pillarbox::Sink) and
//! settles the result. It knows no SQL, no HTTP and no broker.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # async fn run(store: impl pillarbox_store::Store, sink: impl pillarbox::Sink)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox_dispatch::{Destination, Dispatcher};
//! use tokio_util::sync::CancellationToken;
//!
//! let dispatcher = Dispatcher::builder(Arc::new(store))
//!     .destination(Destination::new("mailer", sink))
//!     .build()?;
//! let shutdown = CancellationToken::new();
//! dispatcher.run(shutdown).await;
//! # Ok(())
//! # }
//! ```
//!
//! The folders follow the event:
//!
//! | folder | what it does | calls |
//! |---|---|---|
//! | `find` | finds the backlogs that have due rows | store |
//! | `claim` | claims rows from them when there is room; suspects apart from the others | store |
//! | `route` | finds the destinations of each row; several make a family | store |
//! | `send` | one sender per destination: key order, concurrency, rate, breaker, attempts | sink |
//! | `settle` | writes verdicts in batches | store |
//! | `side` | renews leases, sweeps, leases lanes, reroutes, unblocks keys, writes heartbeats, imports, prunes | store |
//! | `metrics` | what a worker exports | the `metrics` facade |
//! | `worker` | what all tasks share: the loop, rows in flight, the health of the store | – |
//!
//! Why so many tasks: claim, send and settle overlap, so that neither the database nor a destination waits for the other.
//! A destination that hangs delays its own sender and nothing else. Leases are renewed and rows swept whatever the others
//! do. Each task is a noun with one verb and returns when it wants to be called again. Only `worker::task` loops and
//! waits.

mod builder;
mod claim;
mod counters;
mod destination;
mod dispatcher;
mod find;
mod metrics;
mod policy;
mod route;
mod send;
mod settings;
mod settle;
mod side;
mod worker;

pub use builder::Builder;
pub use counters::{Counters, Snapshot};
pub use destination::Destination;
pub use dispatcher::Dispatcher;
pub use policy::{OnDead, Overrides, Policy, Rate};
pub use route::route_table::{OneOf, Pattern, Route};
pub use settings::{Settings, SettingsError, Unrouted, WakeBy};
