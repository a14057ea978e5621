//! A shop of six services on PostgreSQL and RabbitMQ. Each service is a process.
//!
//! ```text
//! shop order ─▶ shop.orders + saga + OrderPlaced        one transaction
//!                    │
//!               dispatcher ─▶ RabbitMQ ─┬▶ payment ──┐
//!                    ▲                  ├▶ stock     │ work + reply in one transaction
//!                    │                  ├▶ shipping  │
//!                    └──────────────────┼────────────┘
//!                                       ├▶ orders          continues the saga
//!                                       └▶ notifications   notifies the customer
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `cli`, `environment` | the command line, connections and timeouts |
//! | `roles` | the database role of each process |
//! | `messages` | the messages between services |
//! | `saga` | payment, stock, shipping, and their compensations |
//! | `order` | places an order |
//! | `services` | one file per service |
//! | `task` | the part that payment, stock and shipping share: a command, the work, the reply |
//! | `faults` | the fault switch |
//! | `up`, `watch` | starts every service, restarts those that die, prints what happens |
//! | `status`, `consistency` | shows the state of everything, and checks the tables against each other |

mod cli;
mod consistency;
mod environment;
mod faults;
mod messages;
mod order;
mod roles;
mod saga;
mod services;
mod signals;
mod status;
mod task;
mod up;
mod watch;

use std::error::Error;
use std::io::stderr;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};
use crate::roles::STOREFRONT;

/// This program is an example: it prints any error and exits.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let cli = Cli::parse();
    // Consumers and the dispatcher log the errors of the RabbitMQ client themselves.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,lapin=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .init();
    // One TLS provider for the whole process. An error means that the same one is installed already.
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(cli));
    // A task may still wait for the end of standard input.
    runtime.shutdown_background();
    result
}

async fn run(cli: Cli) -> Result<()> {
    let environment = cli.environment;
    match cli.command {
        Command::Up => up::up(&environment).await,
        Command::Migrate => environment.migrate().await,
        Command::Serve(serve) => {
            let environment = environment.log_in_as(serve.service.as_str());
            services::serve(serve.service, &environment, serve.until_stdin_ends).await
        }
        Command::Order(wanted) => order::place_all(&environment.log_in_as(STOREFRONT), &wanted).await,
        Command::Fault(fault) => faults::set(&environment, fault.service, fault.mode).await,
        Command::Status { json } => status::print(&environment, json).await,
    }
}
