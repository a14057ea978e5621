//! The real binary from outside: output, exit codes and deliveries.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod adopt;
mod audit;
mod bench;
mod breaker;
mod cli;
mod command;
mod config;
mod confined;
mod crash;
mod daemon;
mod databases;
mod destinations;
mod dev;
mod duties;
mod events;
mod fixture;
mod grant;
mod http;
mod http_attacks;
mod keys;
mod latency;
mod logs;
mod messages;
mod metrics;
mod pages;
mod postgres;
mod quotas;
mod receiver;
mod routing;
mod row_security;
mod run;
mod sagas;
mod security;
