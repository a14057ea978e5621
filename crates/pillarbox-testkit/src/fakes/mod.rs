//! Stand-ins that do what a test tells them, and write down what they saw.
//!
//! | fake | for |
//! |---|---|
//! | [`FakeSink`] | a destination that says what a test wants, with a ledger of what it was given |
//! | [`FlakyStore`] | a store in front of another, which fails before or after the fact, or is slow |
//! | [`JumpingClock`] | a machine that was suspended |

mod clock;
mod sink;
mod store;

pub use clock::JumpingClock;
pub use sink::{Entry, FakeSink};
pub use store::{Calls, Fault, FlakyStore};
