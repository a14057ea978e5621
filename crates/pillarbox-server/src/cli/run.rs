//! `pillarbox run`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::config;
use crate::daemon;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  pillarbox run --config pillarbox.toml
  pillarbox run --migrate --listen 127.0.0.1:8080
  PILLARBOX_DATABASE_URL=postgres://… pillarbox run --log-format json

SIGTERM and SIGINT stop it: what is in flight is finished within `dispatch.grace`, the rest is
given back, and it exits with 0. A second signal exits at once with 130.
A database that is not there yet is waited for; /readyz says 503 meanwhile.
Several [[database]] tables are served side by side, each by a worker of its own.";

/// The daemon.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// The configuration
    #[arg(long, env = "PILLARBOX_CONFIG", value_name = "FILE", default_value = super::target::CONFIG)]
    config: PathBuf,

    /// Use this database instead of the configured one; not where several are configured
    #[arg(long, value_name = "URL")]
    database: Option<String>,

    /// Use this schema instead of the configured one
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,

    /// Listen here instead of where the configuration says; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Allow an address that other machines can reach. There is no authentication yet
    #[arg(long)]
    allow_remote: bool,

    /// Bring the outbox up to date before starting
    #[arg(long)]
    migrate: bool,
}

impl Run {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let flags = config::Flags {
            database: self.database,
            schema: self.schema,
            listen: self.listen.map(|address| address.to_string()),
            allow_remote: self.allow_remote,
            database_is_chosen: false,
        };
        let (config, warnings) = config::load(&self.config, &flags)?;
        for warning in warnings {
            tracing::warn!("{}", warning.line(&self.config.display().to_string()));
        }
        daemon::run(config, &self.config.display().to_string(), self.migrate).await
    }
}
