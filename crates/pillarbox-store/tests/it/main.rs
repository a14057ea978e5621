//! The stores, each held to the same suite, and what an application sees of the crate.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]

#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod application;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod domain;
mod inbox;
mod memory;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod patience;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod readme;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod saga;
#[cfg(feature = "sqlite")]
mod sqlite;
mod typed;
mod unit_of_work;
