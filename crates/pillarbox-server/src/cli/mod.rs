//! The command line. One file per command; each says what it takes and does it.

mod adopt;
mod config;
mod destinations;
mod dev;
mod enqueue;
mod events;
mod grant;
mod init;
mod keys;
mod migrate;
mod moment;
mod run;
mod sagas;
mod stats;
mod target;
mod workers;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::telemetry::Telemetry;

const EXAMPLES: &str = "\
Start here:
  pillarbox dev                              a sample shop, its events, and what becomes of them
  pillarbox init                             write a commented pillarbox.toml
  pillarbox migrate --database postgres://app@localhost/shop
  pillarbox grant producer shop              a database role that may only enqueue
  pillarbox adopt --table outbox             work on the outbox table that you already have
  pillarbox run --config pillarbox.toml      the daemon

Look and help:
  pillarbox enqueue shop orders '{\"order\": 42}' --type OrderCreated
  pillarbox events ls --status dead
  pillarbox events retry --dead
  pillarbox keys ls                          what waits behind an event that failed
  pillarbox sagas ls --status compensating   what is being undone
  pillarbox destinations pause partner
  pillarbox workers ls
  pillarbox stats --json

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 ended at once by a second signal.
Commands that touch a database take --database URL, PILLARBOX_DATABASE_URL, or pillarbox.toml;
--database NAME where that has several.";

/// A transactional outbox: what commits is delivered, at least once, and never lost
#[derive(Debug, Parser)]
#[command(name = "pillarbox", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) telemetry: Telemetry,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Try it: a sample shop on a SQLite file, with everything that can happen to an event
    Dev(dev::Dev),
    /// Run the daemon: claim events and deliver them until told to stop
    Run(run::Run),
    /// Create the outbox in a database, or bring it up to date
    Migrate(migrate::Migrate),
    /// Let a database role enqueue or deliver, and no more (PostgreSQL)
    #[command(subcommand)]
    Grant(grant::Grant),
    /// Put events into the outbox by hand
    Enqueue(Box<enqueue::Enqueue>),
    /// Look at events, retry, skip or delete them
    #[command(subcommand)]
    Events(events::Events),
    /// Look at ordering keys that do not go on, and let them
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Look at sagas, resume or compensate them
    #[command(subcommand)]
    Sagas(sagas::Sagas),
    /// Look at destinations, pause and resume them
    #[command(subcommand)]
    Destinations(destinations::Destinations),
    /// Look at who works on an outbox
    #[command(subcommand)]
    Workers(workers::Workers),
    /// Count events by their state
    Stats(stats::Stats),
    /// Look at a table that somebody else designed, and propose how to work on it as it is (PostgreSQL)
    Adopt(adopt::Adopt),
    /// Look at a configuration
    #[command(subcommand)]
    Config(config::Config),
    /// Write a commented pillarbox.toml
    Init(init::Init),
}

impl Command {
    /// What is logged unless somebody says otherwise: a daemon tells its story, a tool only its troubles.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Run(_) => "info",
            Self::Dev(_) => "error",
            Self::Migrate(_)
            | Self::Grant(_)
            | Self::Enqueue(_)
            | Self::Events(_)
            | Self::Keys(_)
            | Self::Sagas(_)
            | Self::Destinations(_)
            | Self::Workers(_)
            | Self::Stats(_)
            | Self::Adopt(_)
            | Self::Config(_)
            | Self::Init(_) => "warn",
        }
    }

    /// Does it.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            // The two long ones are large futures; on the heap they cost nothing while they wait.
            Self::Dev(dev) => Box::pin(dev.run()).await,
            Self::Run(run) => Box::pin(run.run()).await,
            Self::Migrate(migrate) => migrate.run().await,
            Self::Grant(grant) => grant.run().await,
            Self::Enqueue(enqueue) => enqueue.run().await,
            Self::Events(events) => events.run().await,
            Self::Keys(keys) => keys.run().await,
            Self::Sagas(sagas) => sagas.run().await,
            Self::Destinations(destinations) => destinations.run().await,
            Self::Workers(workers) => workers.run().await,
            Self::Stats(stats) => stats.run().await,
            Self::Adopt(adopt) => Box::pin(adopt.run()).await,
            Self::Config(config) => config.run().await,
            Self::Init(init) => init.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
