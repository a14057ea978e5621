//! The PostgreSQL store: the suite straight and through PgBouncer, and what only PostgreSQL has.

mod adopt;
mod database;
mod functions;
mod harness;
mod inbox;
mod libraries;
mod migration;
mod order;
mod plan;
mod producer;
mod rights;
mod trouble;

pub(crate) use database::OwnDatabase;
pub(crate) use harness::{PostgresHarness, address, service};
pub(crate) use producer::request;

mod direct {
    pillarbox_testkit::store_suite!(super::harness::PostgresHarness::direct);
}

mod behind_pgbouncer {
    pillarbox_testkit::store_suite!(super::harness::PostgresHarness::behind_pgbouncer);
}
