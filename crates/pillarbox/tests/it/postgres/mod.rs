//! The PostgreSQL store: the suite straight and through PgBouncer, and what only PostgreSQL has.

mod harness;
mod migration;
mod plan;
mod producer;
mod rights;
mod trouble;

use harness::PostgresHarness;

mod direct {
    use super::PostgresHarness;
    pillarbox_testkit::store_suite!(PostgresHarness::direct());
}

mod behind_pgbouncer {
    use super::PostgresHarness;
    pillarbox_testkit::store_suite!(PostgresHarness::behind_pgbouncer());
}
