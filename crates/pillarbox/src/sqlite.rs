//! Begins transactions on SQLite that hold the write lock from their start.

pub use crate::outbox::sqlite::{begin, begin_on};
