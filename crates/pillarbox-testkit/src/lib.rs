//! What proves that a store is a store and a sink a sink: the suites that every one of them runs, and
//! the fakes for faults: a clock, a store and a network that can be disturbed.
//!
//! The case lists live here, so that no backend can forget a case.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]

mod cases;
pub mod clock;
pub mod fakes;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod proxy;
pub mod services;
pub mod sink_suite;
pub mod store_suite;

pub use cases::cases;
pub use clock::ManualClock;
pub use proxy::Proxy;
pub use services::Private;
pub use store_suite::{Capability, Harness, MemoryHarness, Skipped, Tx};
