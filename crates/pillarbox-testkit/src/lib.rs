//! What proves that a store is a store and a sink a sink: the suites that every one of them runs, and
//! the fakes for faults.
//!
//! The case lists live here, so that no backend can forget a case.

pub mod clock;
pub mod fakes;
pub mod store_suite;

pub use clock::ManualClock;
pub use store_suite::{Capability, Harness, MemoryHarness, Skipped, Tx};
