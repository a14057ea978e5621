//! The command line.

use clap::{Args, Parser, Subcommand};

use crate::environment::Environment;
use crate::faults::Mode;
use crate::order::OrderArgs;
use crate::services::Service;

/// A shop of six services with a fault switch.
#[derive(Debug, Parser)]
#[command(name = "shop")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) environment: Environment,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start every service, restart those that die, and print what happens, until Ctrl-C
    Up,
    /// Create the tables (`up` does this too)
    Migrate,
    /// Run one service
    Serve(Serve),
    /// Place orders
    Order(OrderArgs),
    /// Set the fault switch of a service
    Fault(Fault),
    /// Show orders, stock, queues and violations
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    pub(crate) service: Service,
    /// Exit at the end of standard input, so that a service does not outlive `up`
    #[arg(long, hide = true)]
    pub(crate) until_stdin_ends: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Fault {
    pub(crate) service: Service,
    pub(crate) mode: Mode,
}
