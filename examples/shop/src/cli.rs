//! What can be said on the command line.

use clap::{Args, Parser, Subcommand};

use crate::faults::Mode;
use crate::order::Wanted;
use crate::places::Places;
use crate::services::Service;

/// A shop of six services with a fault switch.
#[derive(Debug, Parser)]
#[command(name = "shop")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything, keep it running and say what happens, until Ctrl-C
    Up,
    /// Create the tables (`up` does so by itself)
    Migrate,
    /// Run one service
    Serve(Serve),
    /// Place orders
    Order(Wanted),
    /// Let a service misbehave, or behave again
    Fault(Fault),
    /// Show how things stand
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    pub(crate) service: Service,
    /// End when standard input does: a service that `up` started does not outlive it
    #[arg(long, hide = true)]
    pub(crate) until_stdin_ends: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Fault {
    pub(crate) service: Service,
    pub(crate) mode: Mode,
}
