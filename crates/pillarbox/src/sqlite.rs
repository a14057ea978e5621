//! Begins transactions on SQLite that may write from their first moment on.

pub use crate::outbox::sqlite::{begin, begin_on};
