//! The real binary, killed at every step, on real PostgreSQL and RabbitMQ.
//!
//! Every test has a database, an exchange and a durable queue of its own. A producer commits orders, each
//! with its event in one transaction, and rolls some back. At the end the queue is read from outside and
//! held against the orders: every committed event is there at least once with its payload, none that
//! rolled back is, and there are no more duplicates than the faults explain. Our own tables are asked only
//! whether everything has ended.
//!
//! Tests that need a failpoint want the cargo feature `failpoints`; without it they say so and are ignored.

mod books;
pub(crate) mod broker;
mod crew;
pub(crate) mod daemon;
mod door;
mod folder;
mod ledger;
pub(crate) mod patience;
mod producer;
pub(crate) mod services;
mod shop;
mod world;

mod families;
mod kills;
mod lanes;
mod leases;
mod order;
mod outages;
mod poison;
mod pooler;
mod rights;
mod shutdown;
mod steps;
