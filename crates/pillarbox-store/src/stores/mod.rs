//! The databases that can hold an outbox. Each folder has the same file names.
//!
//! | store | for |
//! |---|---|
//! | [`memory`] | tests, and reading: the reference that the others are held to |
//! | `postgres` | production |
//! | `sqlite` | one machine: embedded, on a laptop, in `pillarbox dev` |

pub mod memory;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod migration;
#[cfg(feature = "postgres")]
pub mod postgres;
mod sharing;
#[cfg(feature = "sqlite")]
pub mod sqlite;
