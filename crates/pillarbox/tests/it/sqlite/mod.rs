//! The SQLite store: the suite, and what only SQLite has.

mod clock;
mod counting;
mod enqueueing;
mod harness;
mod journal;
mod schema;

use harness::SqliteHarness;

mod suite {
    pillarbox_testkit::store_suite!(super::SqliteHarness::fresh);
}
