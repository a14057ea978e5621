//! Measures Pillarbox beside the barest thing that does the same work on the same servers.
//!
//! A figure alone says more about the machine than about the program. So each speed is a ratio: a peer
//! with nothing around it and Pillarbox take turns on the same server, and the medians are divided.
//! What has no peer (memory, queries when idle, latency) stands beside its limit.
//!
//! A missed target is printed, not an error: the exit code says whether the measuring worked.

mod backlog;
mod daemon;
mod database;
mod failure;
mod ours;
mod plain;
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

/// Measures Pillarbox beside the barest thing that does the same. Run by scripts/bench.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure; everything unless said otherwise
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// A few minutes instead of many
    #[arg(long)]
    quick: bool,

    /// A few seconds: shows that everything runs, and nothing else
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,

    /// Print an array of objects instead of a table
    #[arg(long)]
    json: bool,

    /// The PostgreSQL server to measure on
    #[arg(long, env = "PILLARBOX_TEST_POSTGRES_URL", value_name = "URL")]
    postgres: String,

    /// The RabbitMQ broker, for `rabbitmq`
    #[arg(long, env = "PILLARBOX_TEST_AMQP_URL", value_name = "URL")]
    amqp: Option<String>,

    /// The Kafka brokers, for `kafka`
    #[arg(long, env = "PILLARBOX_TEST_KAFKA_BROKERS", value_name = "HOST:PORT")]
    kafka: Option<String>,

    /// The daemon, for `memory` and `idle`; the `pillarbox` beside this program unless said otherwise
    #[arg(long, value_name = "FILE")]
    daemon: Option<std::path::PathBuf>,
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
    // Installed twice is installed.
    rustls::crypto::ring::default_provider().install_default().ok();
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
    } else {
        print!("{}", report::table(&measurements));
    }
    for (scenario, failure) in &failures {
        eprintln!("{scenario} could not be measured: {failure}");
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

type Failures = Vec<(Scenario, Failure)>;

/// One scenario that fails does not keep the others from being measured.
async fn measure(arguments: &Arguments) -> Result<(Vec<Measurement>, Failures), Failure> {
    let database = Database::create(&arguments.postgres).await?;
    let context = Context {
        database: &database,
        scale: arguments.scale(),
        amqp: arguments.amqp.as_deref(),
        kafka: arguments.kafka.as_deref(),
        daemon: arguments.daemon.as_deref(),
    };
    let (mut measurements, mut failures) = (Vec::new(), Vec::new());
    for scenario in arguments.scenarios() {
        eprintln!("{scenario}");
        match scenario.measure(&context).await {
            Ok(found) => measurements.extend(found),
            Err(failure) => failures.push((scenario, failure)),
        }
    }
    database.remove().await?;
    Ok((measurements, failures))
}
