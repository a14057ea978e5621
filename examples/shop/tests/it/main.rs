//! The shop, on a real PostgreSQL and a real RabbitMQ: `scripts/test` starts them. Every test has a database and queues of its
//! own, and its services are processes that can be killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod away;
mod killed;
mod quiet;
mod random;
mod refused;
mod twice;
mod up;
mod world;
