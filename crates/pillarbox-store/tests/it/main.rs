//! The stores, which all run the same suite, and the libraries of an application on them.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]

#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod application;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod domain;
mod inbox;
mod memory;
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
