//! The suites that every store and every sink runs, and what tests of all crates share.
//!
//! | module | for |
//! |---|---|
//! | [`mod@store_suite`], [`mod@sink_suite`] | the cases that every store, producer and sink has to pass |
//! | [`fakes`], [`clock`] | faults on purpose: a sink, a store and clocks that a test controls |
//! | [`proxy`] | a network that a test disturbs |
//! | [`services`] | a server that a test may kill |
//! | [`tls`] | servers whose certificates a client must refuse |
//! | [`process`] | child processes that a test stops, freezes and kills |
//! | [`captured_logs`] | the log lines that a test causes |
//! | [`recorder`] | the metrics that a test causes |
//! | [`wait`] | waiting for a fact, and taking turns on the machine |
//! | [`environment`] | addresses of the shared services, unique names |
//! | [`fixture`] | a database for one test (feature `postgres`) |
//! | [`duties`] | database roles with one duty each (feature `postgres`) |
//! | [`ledger`] | compares what was received with what was committed |
//!
//! The case lists live here, so that no backend can miss a case.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]

pub mod captured_logs;
mod cases;
pub mod clock;
#[cfg(feature = "postgres")]
pub mod duties;
pub mod environment;
pub mod fakes;
#[cfg(feature = "postgres")]
pub mod fixture;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod ledger;
mod operator;
pub mod process;
pub mod proxy;
pub mod recorder;
pub mod services;
pub mod sink_suite;
pub mod store_suite;
pub mod tls;
pub mod wait;

pub use captured_logs::CapturedLogs;
pub use cases::cases;
pub use clock::ManualClock;
pub use operator::{OPERATOR, operator_of, store_error};
pub use proxy::Proxy;
pub use recorder::Recorder;
pub use services::Private;
pub use store_suite::{Capability, Harness, MemoryHarness, Skipped, Tx};
