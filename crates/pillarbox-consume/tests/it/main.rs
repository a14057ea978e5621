//! Consumers with real brokers and a real database, which `scripts/test` starts.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod aborted_transaction;
mod connection_logs;
mod hung_handler;
mod idle_transaction;
#[cfg(feature = "kafka")]
mod kafka;
mod killed;
mod ledger;
#[cfg(feature = "rabbitmq")]
mod memory_alarm;
#[cfg(feature = "rabbitmq")]
mod outage;
#[cfg(feature = "rabbitmq")]
mod prefetch;
mod process;
mod proof;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod running;
#[cfg(feature = "rabbitmq")]
mod silent_broker;
#[cfg(all(feature = "rabbitmq", feature = "sqlite"))]
mod sqlite;
mod tls;
