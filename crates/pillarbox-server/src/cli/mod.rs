//! The command line. One file per command, with its arguments and its code.

mod actor;
mod adopt;
mod archive;
mod audit;
mod bench;
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
mod quota;
mod revoke;
mod run;
mod sagas;
mod stats;
mod time_arg;
mod version;
mod workers;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::logs::LogArgs;

const EXAMPLES: &str = "\
Start here:
  pillarbox dev                              run a sample shop and watch its events
  pillarbox init --database postgres://localhost/shop --destination rabbitmq
  pillarbox migrate                          create the outbox in that database
  pillarbox config check --connect           try every connection
  pillarbox run                              run the daemon

Then perhaps:
  pillarbox grant producer shop --namespace shop   allow a role to enqueue and no more
  pillarbox adopt --table outbox             propose a layout for your own outbox table

Operate:
  pillarbox enqueue shop orders '{\"order\": 42}' --type OrderCreated
  pillarbox events ls --status dead
  pillarbox events retry --dead
  pillarbox keys ls                          list blocked ordering keys
  pillarbox sagas ls --status compensating
  pillarbox destinations pause partner
  pillarbox workers ls
  pillarbox audit ls                         list who changed what, and why
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

    /// Read this configuration [default: pillarbox.toml]
    #[arg(long, global = true, env = "PILLARBOX_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

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
    /// Take a duty from a database role (PostgreSQL)
    Revoke(revoke::Revoke),
    /// Limit the pending events of roles and tenants (PostgreSQL)
    #[command(subcommand)]
    Quota(quota::Quota),
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
    /// List and export who changed what, and why
    #[command(subcommand)]
    Audit(audit::Audit),
    /// List and restore events that retention has archived
    #[command(subcommand)]
    Archive(archive::Archive),
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
    /// Write a configuration to start from
    Init(init::Init),
    /// Measure throughput and latency on this machine and database
    Bench(bench::Bench),
    /// Print the version; --verbose adds the commit, the schema and the sinks
    Version(version::Version),
}

impl Command {
    /// The default log filter: the daemon logs its progress, other commands only warnings.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Run(_) => "info",
            // It prints what happens to its events itself.
            Self::Dev(_) => "error,pillarbox_dispatch::send::delivery_log=off",
            // It reports every connection itself. The Kafka client connects in the background, also without `--connect`.
            Self::Config(_) => "off",
            Self::Migrate(_)
            | Self::Grant(_)
            | Self::Revoke(_)
            | Self::Quota(_)
            | Self::Enqueue(_)
            | Self::Events(_)
            | Self::Keys(_)
            | Self::Sagas(_)
            | Self::Destinations(_)
            | Self::Archive(_)
            | Self::Audit(_)
            | Self::Workers(_)
            | Self::Stats(_)
            | Self::Adopt(_)
            | Self::Init(_)
            | Self::Bench(_)
            | Self::Version(_) => "warn",
        }
    }

    /// Runs the command. `config` is the value of `--config`, for the commands that take the file by position too.
    pub(crate) async fn run(self, config: Option<PathBuf>) -> Result<(), Failure> {
        match self {
            // These futures are large, so they live on the heap.
            Self::Dev(dev) => Box::pin(dev.run()).await,
            Self::Run(run) => Box::pin(run.run()).await,
            Self::Migrate(migrate) => migrate.run().await,
            Self::Grant(grant) => grant.run().await,
            Self::Revoke(revoke) => revoke.run().await,
            Self::Quota(quota) => quota.run().await,
            Self::Enqueue(enqueue) => enqueue.run().await,
            Self::Events(events) => events.run().await,
            Self::Keys(keys) => keys.run().await,
            Self::Sagas(sagas) => sagas.run().await,
            Self::Destinations(destinations) => destinations.run().await,
            Self::Archive(archive) => archive.run().await,
            Self::Audit(audit) => audit.run().await,
            Self::Workers(workers) => workers.run().await,
            Self::Stats(stats) => stats.run().await,
            Self::Adopt(adopt) => Box::pin(adopt.run()).await,
            Self::Config(check) => check.run(config).await,
            Self::Init(init) => init.run(config),
            Self::Bench(bench) => Box::pin(bench.run()).await,
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

    /// The commands without subcommands, by their names.
    fn leaves(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        let mut subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
        for sub in subcommands.by_ref() {
            leaves(sub, format!("{name} {}", sub.get_name()).trim(), found);
        }
        if !command.has_subcommands() {
            found.push(name.to_owned());
        }
    }

    #[test]
    fn every_command_takes_a_configuration() {
        let mut commands = Vec::new();
        leaves(&Cli::command(), "", &mut commands);
        assert!(commands.contains(&"events ls".to_owned()), "{commands:?}");
        for command in commands {
            let mut found = Cli::command();
            found.build();
            let found = command.split(' ').fold(&found, |found, name| {
                found.find_subcommand(name).expect("just listed")
            });
            let long = |argument: &clap::Arg| argument.get_long() == Some("config");
            assert!(found.get_arguments().any(long), "{command}");
        }
    }

    #[test]
    fn the_configuration_may_stand_before_and_after_a_command() {
        for arguments in [
            ["pillarbox", "--config", "p.toml", "config", "check"],
            ["pillarbox", "config", "check", "--config", "p.toml"],
        ] {
            assert_eq!(Cli::parse_from(arguments).config, Some("p.toml".into()));
        }
        let stats = Cli::parse_from(["pillarbox", "--config", "p.toml", "stats"]);
        let Command::Stats(stats) = stats.command else {
            panic!("stats");
        };
        assert!(format!("{stats:?}").contains("p.toml"), "{stats:?}");
    }
}
