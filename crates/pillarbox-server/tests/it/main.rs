//! The real binary, from the outside: what it prints, what it exits with, what it delivers.

#![allow(clippy::disallowed_methods, reason = "tests spawn and wait as they like")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod adopt;
mod binary;
mod cli;
mod config;
mod crash;
mod databases;
mod destinations;
mod dev;
mod events;
mod grant;
mod keys;
mod messages;
mod place;
mod postgres;
mod receiver;
mod routing;
mod run;
mod sagas;
