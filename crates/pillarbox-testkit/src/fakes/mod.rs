//! Fakes that a test controls, with a record of their calls.
//!
//! | fake | for |
//! |---|---|
//! | [`FakeSink`] | a destination whose outcomes a test sets, with a ledger of its attempts |
//! | [`FlakyStore`] | a store that passes calls on, and fails before or after the call, or is slow |
//! | [`JumpingClock`] | a machine that was suspended |

mod clock;
mod sink;
mod store;

pub use clock::JumpingClock;
pub use sink::{Entry, FakeSink};
pub use store::{Calls, Fault, FlakyStore};
