//! The PostgreSQL store: the suite directly and with PgBouncer, and cases of PostgreSQL alone.

mod adopt;
mod audit;
mod boundaries;
mod counting;
mod denials;
mod fair_index;
mod functions;
mod harness;
mod inbox;
mod leases;
mod libraries;
mod migration;
mod modkit;
mod order;
mod plan;
mod privileges;
mod producer;
mod pruning;
mod quotas;
mod row_security;
mod timeouts;
mod tls;
mod trouble;
mod unreadable;
mod watch;

pub(crate) use harness::PostgresHarness;
pub(crate) use producer::request;

mod direct {
    pillarbox_testkit::store_suite!(super::harness::PostgresHarness::direct);
}

mod behind_pgbouncer {
    pillarbox_testkit::store_suite!(super::harness::PostgresHarness::behind_pgbouncer);
}
