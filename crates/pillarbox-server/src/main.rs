//! The `pillarbox` command: daemon, API and tools.
//!
//! | module | what it does |
//! |---|---|
//! | `cli` | one file per command |
//! | `adopt` | from a table to a layout, for `adopt` |
//! | `config` | what `pillarbox.toml` says and means |
//! | `daemon`, `waiting` | `run`: from a configuration to dispatchers that serve until they are told to stop |
//! | `dev` | `dev`: the same on a SQLite file, with a sample shop around it |
//! | `http` | health, readiness, the API |
//! | `database` | the stores behind one name |
//! | `destinations` | what is configured beside what the outbox knows |
//! | `signals`, `telemetry`, `failure`, `output` | how the process is stopped, logs, fails and prints |

mod adopt;
mod cli;
mod config;
mod daemon;
mod database;
mod destinations;
mod dev;
mod failure;
mod http;
mod output;
mod signals;
mod telemetry;
mod waiting;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::Cli;
use crate::failure::Failure;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    telemetry::start(&cli.telemetry, cli.command.default_log())?;
    // One TLS provider for everything in the process. Whoever installed one before us installed the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime cannot start: {error}")))?;
    let result = runtime.block_on(cli.command.run());
    // What is still running now is nobody's: a wait for it would only delay the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}
