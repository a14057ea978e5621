//! Every sink against the place that it is for: `scripts/test` starts those that need a server.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod callback;
mod cloudevents;
mod environment;
mod kafka;
mod log;
mod nats;
mod rabbitmq;
mod rabbitmq_alarm;
mod rabbitmq_late_confirms;
mod rabbitmq_window;
mod redis;
mod secrets;
mod tls;
mod webhook;
