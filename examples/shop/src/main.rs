//! A shop of six services, each a process of its own, on PostgreSQL and RabbitMQ.
//!
//! ```text
//! shop order ─▶ shop.orders + saga + OrderPlaced        one transaction
//!                    │
//!               dispatcher ─▶ RabbitMQ ─┬▶ payment ──┐
//!                    ▲                  ├▶ stock     │ work + answer in one transaction
//!                    │                  ├▶ shipping  │
//!                    └──────────────────┼────────────┘
//!                                       ├▶ orders          the saga goes on
//!                                       └▶ notifications   tells the customer
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `cli`, `places` | commands, and where everything is |
//! | `messages` | what the services say to each other |
//! | `saga` | payment, stock, shipping, and how each is undone |
//! | `order` | an order is placed |
//! | `services` | one file for each |
//! | `duty` | what payment, stock and shipping have in common: a command, the work, its answer |
//! | `faults` | the fault switch |
//! | `up`, `watch` | starts everything, keeps it running, says what happens |
//! | `status`, `books` | how things stand, and whether the sums are right |

mod books;
mod cli;
mod duty;
mod faults;
mod messages;
mod order;
mod places;
mod saga;
mod services;
mod signals;
mod status;
mod up;
mod watch;

use std::error::Error;
use std::io::stderr;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};

/// The program is an example: whatever goes wrong is said, and that is the end.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let cli = Cli::parse();
    // What the client of RabbitMQ has to say, consumers and the dispatcher say in their own words.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,lapin=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .init();
    // One TLS provider for everything in the process. Whoever installed one before us installed the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(cli));
    // Somebody may still wait for the end of standard input.
    runtime.shutdown_background();
    result
}

async fn run(cli: Cli) -> Result<()> {
    let places = cli.places;
    match cli.command {
        Command::Up => up::up(&places).await,
        Command::Migrate => places.migrate().await,
        Command::Serve(serve) => services::serve(serve.service, &places, serve.until_stdin_ends).await,
        Command::Order(wanted) => order::place_all(&places, &wanted).await,
        Command::Fault(fault) => faults::set(&places, fault.service, fault.mode).await,
        Command::Status { json } => status::print(&places, json).await,
    }
}
