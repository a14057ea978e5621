//! The real binary, from the outside: what it prints, what it exits with, what it delivers.

mod binary;
mod cli;
mod config;
mod dev;
mod events;
mod postgres;
mod receiver;
mod run;
