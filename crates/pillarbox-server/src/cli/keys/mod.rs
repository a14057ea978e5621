//! `pillarbox keys`: blocked ordering keys. One file per verb.

mod ls;
mod unblock;

use clap::Subcommand;

use crate::failure::Failure;

/// Lists and unblocks ordering keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List keys blocked by a failed or dead event, oldest first
    Ls(ls::Ls),
    /// Skip the event that blocks a key: it is dead, the others continue
    Skip(unblock::Unblock),
    /// Retry the event that blocks a key now, with all attempts
    Retry(unblock::Unblock),
}

impl Keys {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
            Self::Skip(unblock) => unblock.run(unblock::Verb::Skip).await,
            Self::Retry(unblock) => unblock.run(unblock::Verb::Retry).await,
        }
    }
}
