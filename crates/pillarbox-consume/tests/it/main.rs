//! Consumers against real brokers and a real database: `scripts/test` starts them.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[cfg(feature = "rabbitmq")]
mod alarm;
mod books;
mod children;
mod environment;
#[cfg(feature = "kafka")]
mod kafka;
mod killed;
#[cfg(feature = "rabbitmq")]
mod outage;
mod proof;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod running;
mod silence;
#[cfg(feature = "rabbitmq")]
mod speechless;
#[cfg(all(feature = "rabbitmq", feature = "sqlite"))]
mod sqlite;
mod swallowed;
