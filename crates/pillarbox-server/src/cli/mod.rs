//! The command line. One file per command, with its arguments and its code.

mod adopt;
mod config;
mod database_args;
mod destinations;
mod dev;
mod enqueue;
mod events;
mod grant;
mod init;
mod keys;
mod migrate;
mod run;
mod sagas;
mod stats;
mod time_arg;
mod version;
mod workers;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::logs::LogArgs;

const EXAMPLES: &str = "\
Start here:
  pillarbox dev                              run a sample shop and watch its events
  pillarbox init                             write a commented pillarbox.toml
  pillarbox migrate --database postgres://app@localhost/shop
  pillarbox grant producer shop              allow a role to enqueue and no more
  pillarbox adopt --table outbox             propose a layout for your own outbox table
  pillarbox run --config pillarbox.toml      run the daemon

Operate:
  pillarbox enqueue shop orders '{\"order\": 42}' --type OrderCreated
  pillarbox events ls --status dead
  pillarbox events retry --dead
  pillarbox keys ls                          list blocked ordering keys
  pillarbox sagas ls --status compensating
  pillarbox destinations pause partner
  pillarbox workers ls
  pillarbox stats --json

Database: --database URL, PILLARBOX_DATABASE_URL, or the one in pillarbox.toml;
--database NAME if the file has several.
Exit codes: 0 done, 1 failed, 2 invalid command line or configuration,
130 ended at once by a second signal.";

/// Deliver events from a transactional outbox at least once, in order
#[derive(Debug, Parser)]
#[command(name = "pillarbox", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) logs: LogArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a sample shop on SQLite and watch its events
    Dev(dev::Dev),
    /// Run the daemon, which claims and delivers events
    Run(run::Run),
    /// Create or upgrade the outbox schema in a database
    Migrate(migrate::Migrate),
    /// Grant a database role the permissions of one duty (PostgreSQL)
    #[command(subcommand)]
    Grant(grant::Grant),
    /// Enqueue events by hand
    Enqueue(Box<enqueue::Enqueue>),
    /// List, show, retry, skip and delete events
    #[command(subcommand)]
    Events(events::Events),
    /// List and unblock ordering keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// List, show, resume and compensate sagas
    #[command(subcommand)]
    Sagas(sagas::Sagas),
    /// List, pause and resume destinations
    #[command(subcommand)]
    Destinations(destinations::Destinations),
    /// List the workers of an outbox
    #[command(subcommand)]
    Workers(workers::Workers),
    /// Count events by status
    Stats(stats::Stats),
    /// Inspect an existing outbox table and propose a layout (PostgreSQL)
    Adopt(adopt::Adopt),
    /// Check a configuration
    #[command(subcommand)]
    Config(config::Config),
    /// Write a commented pillarbox.toml
    Init(init::Init),
    /// Print the version; --verbose adds the commit, the schema and the sinks
    Version(version::Version),
}

impl Command {
    /// The default log filter: the daemon logs its progress, other commands only warnings.
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
            | Self::Init(_)
            | Self::Version(_) => "warn",
        }
    }

    /// Runs the command.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            // These futures are large, so they live on the heap.
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
            Self::Version(version) => version.run(),
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
