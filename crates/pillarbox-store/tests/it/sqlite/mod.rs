//! The SQLite store: the suite, and what only SQLite has.

mod audit;
mod clock;
mod counting;
mod enqueueing;
mod finding;
mod harness;
mod journal;
mod keys;
mod schema;

pub(crate) use harness::{SqliteHarness, pool};

mod suite {
    pillarbox_testkit::store_suite!(super::SqliteHarness::fresh);
}
