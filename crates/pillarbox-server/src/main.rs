//! The `pillarbox` command: the daemon, its HTTP API and the operator's commands.
//!
//! | module | what it does |
//! |---|---|
//! | `cli` | one file per command |
//! | `adopt` | proposes a layout for a table |
//! | `config` | reads and checks `pillarbox.toml` |
//! | `daemon`, `startup` | `run`: one dispatcher for each configured database |
//! | `trust` | who else can act as the daemon in its database |
//! | `dev` | `dev`: a dispatcher on a SQLite file with a sample shop |
//! | `http` | health, readiness, metrics, statistics |
//! | `exporter` | the metrics in the format of Prometheus |
//! | `database` | PostgreSQL and SQLite behind one type |
//! | `destinations` | joins configured destinations with those in the outbox |
//! | `signals`, `logs`, `failure`, `output` | shutdown, logging, exit codes, printing |

mod adopt;
mod archive;
mod bench;
mod cli;
mod config;
mod daemon;
mod database;
mod destinations;
mod dev;
mod exporter;
mod failure;
mod fair_index;
mod http;
mod logs;
mod output;
mod signals;
mod startup;
mod trust;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::Cli;
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && logs::wants_json(std::env::args_os()) => {
            logs::use_format(logs::Format::Json);
            let text = error.to_string();
            return Failure::usage(text.trim_start_matches("error: ").trim_end()).report();
        }
        Err(error) => error.exit(),
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    logs::start(&cli.logs, cli.command.default_log())?;
    // One TLS provider for the process. It fails only if the same one is installed already.
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start the async runtime: {error}")))?;
    let result = runtime.block_on(cli.command.run(cli.config));
    // Tasks that still run have no owner. Waiting for them would only delay the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}
