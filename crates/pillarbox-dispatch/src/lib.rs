//! The engine: claims events from a [store](pillarbox_store::Store), gets each to its
//! [sink](pillarbox::Sink) and writes down what came of it. It knows no SQL, no HTTP and no broker.
//!
//! ```text
//!  store ▶ finder: where there is work
//!            ▼
//!  store ▶ claimer ▶ router ▶ lanes ▶ attempt ▶ settler ▶ store
//!            ▲         (one task per destination,   │
//!            │          with its gate)              │ room is free
//!            └──────────────────────────────────────┘
//!  aside: renewer, sweeper, steward, usher, heart
//! ```
//!
//! Why so many tasks: claim, send and settle overlap, so that neither the database nor a destination
//! waits for the other; a destination that hangs holds up its own task and no other; renewing and
//! sweeping go on whatever the rest does. Each task is a noun with one verb, and says when it wants
//! to be called again; only `task` loops and waits.
//!
//! | module | what it does | who it talks to |
//! |---|---|---|
//! | `finder` (with `poll_backoff`, `backlogs`) | sees where there is work, and what is paused | store |
//! | `claimer` (with `suspects`) | takes rows from open backlogs when there is room | store, router |
//! | [`router`], [`policy`] | which destinations, and how (pure) | – |
//! | `router` (with `entrance`) | families, what leads nowhere, what cannot go now | store, lanes, settler |
//! | `lanes` (with `queues`, `gate`, `rate`, `cuts`, `crowd`) | whose turn it is, and what follows from an outcome | sink, settler |
//! | `attempt` | one try | sink |
//! | `settler` | writes outcomes in batches | store |
//! | `renewer` | renews leases | store |
//! | `sweeper` | buries what is used up, finds what lost its worker | store, claimer |
//! | `lane_leases` | sees to it that our part of the lanes is ours | store |
//! | `usher` | brings back what was put aside | store |
//! | `heartbeat` | says that we live | store |
//! | `held` | what is claimed and not settled: the room that is left | all of them |
//! | [`dispatcher`] | starts them, and stops them in order | – |

mod claim;
mod counters;
mod dispatcher;
mod find;
mod policy;
mod route;
mod send;
mod settings;
mod settle;
mod side;
mod worker;

pub use counters::{Counters, Snapshot};
pub use dispatcher::{Builder, Destination, Dispatcher};
pub use policy::{OnDead, Overrides, Policy, Rate};
pub use route::route_table::{OneOf, Pattern, Route};
pub use settings::{Settings, SettingsError, Unrouted};
