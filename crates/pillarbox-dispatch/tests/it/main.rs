//! The engine on the memory store, in virtual time: its promises, and faults of every kind.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]

mod backpressure;
mod batches;
mod breaker;
mod delivery;
mod faults;
mod fixture;
mod idle;
mod isolation;
mod leases;
mod logging;
mod lost_connections;
mod metrics;
mod order_model;
mod ordering;
mod property;
mod routing;
mod shutdown;
mod suspects;
