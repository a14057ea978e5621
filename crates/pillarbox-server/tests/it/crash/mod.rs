//! The real binary, killed at every step, on real PostgreSQL and RabbitMQ.
//!
//! Every test has its own database, exchange and durable queue. A producer commits orders, each with its event in one
//! transaction, and rolls some back. At the end the test reads the queue and compares it with the orders. Every committed
//! event was received at least once with its payload, no event that was rolled back was received, and there are no more
//! duplicates than the faults explain. The tables of Pillarbox only tell whether every row has ended.
//!
//! Tests that need a failpoint are ignored without the cargo feature `failpoints`.

mod fixture;
mod order_databases;
mod producer;
pub(crate) mod queue;
mod shop;
mod sqlite_fixture;
mod workers;

mod duties;
mod families;
mod kills;
mod lanes;
mod leases;
mod order;
mod outages;
mod poison;
mod pooler;
mod shutdown;
mod steps;
