//! `pillarbox run`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::database_args::warn_of_password;
use crate::config;
use crate::daemon;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  pillarbox run --config pillarbox.toml
  pillarbox run --migrate --listen 127.0.0.1:8080
  PILLARBOX_DATABASE_URL=postgres://… pillarbox run --log-format json

SIGTERM and SIGINT stop the daemon. It finishes the events in flight within `dispatch.grace`,
releases the others and exits with 0. A second signal exits at once with 130.
The daemon waits for an unavailable database; /readyz answers 503 meanwhile.
With several [[database]] tables, each database has its own worker.";

/// Runs the daemon.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// Read this configuration
    #[arg(long, env = "PILLARBOX_CONFIG", value_name = "FILE", default_value = super::database_args::CONFIG)]
    config: PathBuf,

    /// Use this database instead of the only configured one
    #[arg(long, value_name = "URL")]
    database: Option<String>,

    /// Use this schema instead of the configured one
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,

    /// Listen on this address; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Allow an address that other machines can reach (no authentication)
    #[arg(long)]
    allow_remote: bool,

    /// Migrate the outbox schema before starting
    #[arg(long)]
    migrate: bool,
}

impl Run {
    pub(super) async fn run(self) -> Result<(), Failure> {
        if let Some(text) = &self.database {
            warn_of_password("--database", text);
        }
        let flags = config::Flags {
            database: self.database,
            schema: self.schema,
            listen: self.listen.map(|address| address.to_string()),
            allow_remote: self.allow_remote,
            database_is_chosen: false,
        };
        let file = self.config.display().to_string();
        let (config, warnings, destinations) = daemon::load(&self.config, &flags).await?;
        for warning in warnings {
            let reason = warning.line(&file);
            tracing::warn!(reason, "configuration warning");
        }
        daemon::run(config, destinations, &file, self.migrate).await
    }
}
