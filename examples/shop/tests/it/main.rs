//! The shop with a real PostgreSQL and a real RabbitMQ, which `scripts/test` starts. Every test has its own database and
//! queues, and its services are processes that can be killed.

#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod duplicates;
mod fixture;
mod killed;
mod no_faults;
mod outage;
mod random;
mod refused;
mod up;
