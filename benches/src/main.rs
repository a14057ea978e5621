//! Measures Pillarbox against the simplest program that does the same work on the same servers.
//!
//! A figure alone says more about the machine than about the program. So each speed is a ratio: the simple program (the *peer*) and
//! Pillarbox run alternately on the same server, and the medians are divided. Memory, idle queries and latency have no peer and are
//! compared with a limit.
//!
//! A missed target is printed and is not an error. The exit code tells whether every measurement could be made.

mod backlog;
mod cost;
mod daemon;
mod database;
mod failure;
mod latency;
mod markdown;
mod ours;
mod plain;
mod plot;
mod processor;
mod receiver;
mod report;
mod scale;
mod scenario;

use std::process::ExitCode;

use clap::Parser;

use crate::database::Database;
use crate::failure::Failure;
use crate::report::Measurement;
use crate::scale::Scale;
use crate::scenario::{Context, Scenario};

/// Measure Pillarbox against the simplest program that does the same (run by scripts/bench)
#[derive(Debug, Parser)]
struct Arguments {
    /// Scenarios to measure [default: all]
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// Take a few minutes instead of many
    #[arg(long)]
    quick: bool,

    /// Take a few seconds; shows only that every scenario runs
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,

    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,

    /// Print the tables of docs/benchmarks.md instead of a table
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Also draw the ratios into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<std::path::PathBuf>,

    /// PostgreSQL server to measure on
    #[arg(long, env = "PILLARBOX_TEST_POSTGRES_URL", value_name = "URL")]
    postgres: String,

    /// RabbitMQ broker, for `rabbitmq`
    #[arg(long, env = "PILLARBOX_TEST_AMQP_URL", value_name = "URL")]
    amqp: Option<String>,

    /// Kafka brokers, for `kafka`
    #[arg(long, env = "PILLARBOX_TEST_KAFKA_BROKERS", value_name = "HOST:PORT")]
    kafka: Option<String>,

    /// Daemon, for `memory`, `idle` and `latency` [default: the `pillarbox` beside this program]
    #[arg(long, value_name = "FILE")]
    daemon: Option<std::path::PathBuf>,

    /// Installed peers, for `peers` (scripts/bench installs them)
    #[arg(long, value_name = "FOLDER")]
    peers: Option<std::path::PathBuf>,

    /// PostgreSQL server with `wal_level = replica`, for `wal-level` (scripts/bench starts one)
    #[arg(long, value_name = "URL")]
    second_postgres: Option<String>,

    /// Delivered rows in the table of `drain-large-table` [default: a million]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    table_rows: Option<u32>,
}

impl Arguments {
    fn scale(&self) -> Scale {
        if self.smoke {
            Scale::Smoke
        } else if self.quick {
            Scale::Quick
        } else {
            Scale::Full
        }
    }

    fn scenarios(&self) -> Vec<Scenario> {
        if self.scenarios.is_empty() {
            Scenario::all()
        } else {
            self.scenarios.clone()
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // An error means that a provider is installed already.
    rustls::crypto::ring::default_provider().install_default().ok();
    // They tell why a run was rejected, for instance an alarm of the broker.
    tracing_subscriber::fmt()
        .with_env_filter("error,pillarbox_dispatch=warn,pillarbox_sinks=warn")
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let arguments = Arguments::parse();
    let (measurements, failures) = match measure(&arguments).await {
        Ok(done) => done,
        Err(failure) => {
            eprintln!("pillarbox-bench: {failure}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.json {
        println!("{}", report::json(&measurements));
    } else if arguments.markdown {
        print!("{}", markdown::tables(&measurements));
    } else {
        print!("{}", report::table(&measurements));
    }
    let drawn = arguments.svg.as_ref().map_or(Ok(()), |file| {
        std::fs::write(file, plot::svg(&measurements))
            .inspect_err(|error| eprintln!("pillarbox-bench: cannot write {}: {error}", file.display()))
    });
    for (scenario, failure) in &failures {
        eprintln!("{scenario} could not be measured: {failure}");
    }
    if failures.is_empty() && drawn.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

type Failures = Vec<(Scenario, Failure)>;

/// Measures every scenario, even if one of them fails.
async fn measure(arguments: &Arguments) -> Result<(Vec<Measurement>, Failures), Failure> {
    let database = Database::create(&arguments.postgres).await?;
    let context = Context {
        database: &database,
        scale: arguments.scale(),
        amqp: arguments.amqp.as_deref(),
        kafka: arguments.kafka.as_deref(),
        daemon: arguments.daemon.as_deref(),
        peers: arguments.peers.as_deref(),
        second_postgres: arguments.second_postgres.as_deref(),
        table_rows: arguments.table_rows,
    };
    let (mut measurements, mut failures) = (Vec::new(), Vec::new());
    for scenario in arguments.scenarios() {
        eprintln!("{scenario}");
        match Box::pin(scenario.measure(&context)).await {
            Ok(found) => measurements.extend(found),
            Err(failure) => failures.push((scenario, failure)),
        }
    }
    database.remove().await?;
    Ok((measurements, failures))
}
