//! `pillarbox dev`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::config;
use crate::dev;
use crate::failure::Failure;

const EXAMPLES: &str = "\
It needs no services: the outbox is a SQLite file, and the receiver runs in the same process.
Progress goes to standard error. The `log` destination writes JSON lines to standard output.

Examples:
  pillarbox dev
  pillarbox dev --file shop.db --listen 127.0.0.1:8080
  pillarbox dev --orders 10 --exit-when-done 2>/dev/null | head -1";

/// Runs the sample shop.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Dev {
    /// Keep the shop in this file instead of a temporary one
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// Listen on this address; port 0 takes any free port
    #[arg(long, env = "PILLARBOX_HTTP_LISTEN", value_name = "ADDRESS", default_value = config::LISTEN)]
    listen: SocketAddr,

    /// Allow an address that other machines can reach (no authentication)
    #[arg(long)]
    allow_remote: bool,

    /// Stop taking orders after this many
    #[arg(long, value_name = "N")]
    orders: Option<u64>,

    /// Exit when all events of --orders are delivered or dead
    #[arg(long, requires = "orders")]
    exit_when_done: bool,
}

impl Dev {
    pub(super) async fn run(self) -> Result<(), Failure> {
        dev::run(dev::Options {
            file: self.file,
            http: config::Http {
                listen: self.listen,
                allow_remote: self.allow_remote,
                ..config::Http::default()
            },
            orders: self.orders,
            exit_when_done: self.exit_when_done,
        })
        .await
    }
}
