//! What proves that a store is a store: the suite that every one of them runs, and the clock for it.
//!
//! The case lists live here, so that no backend can forget a case.

pub mod clock;
pub mod store_suite;

pub use clock::ManualClock;
pub use store_suite::{Capability, Harness, MemoryHarness, Skipped, Tx};
