//! Five systems and their tables, exactly as their documents have them, worked on by the real binary.
//!
//! Every test has a database of its own in which the system's table stands under its own name, in a time zone that is
//! not UTC. Rows come from another process, by plain SQL, each in one transaction with a business change; some are rolled
//! back. What was committed is what the business table says. Afterwards the broker, or the webhook, is read from
//! outside, and the system's own columns are read by plain SQL. `proposals` is about the command `adopt`, and about what
//! the other commands say of adopted tables.

mod hook;
#[path = "../../../../pillarbox-store/tests/it/postgres/adopt/seeds.rs"]
mod seeds;
mod system;

mod arap;
mod compressed;
mod debezium;
mod family_hub;
mod faults;
mod modkit;
mod order;
#[cfg(feature = "test-kafka")]
mod order_service;
mod proposals;
mod rediver;
mod together;
mod workers;
