//! `pillarbox archive`. One file per verb.

mod ls;
mod restore;

use clap::Subcommand;

use crate::failure::Failure;

/// Lists and restores archived events.
#[derive(Debug, Subcommand)]
pub(crate) enum Archive {
    /// List the files of an archive, oldest first
    Ls(ls::Ls),
    /// Put archived events back, as history that is not sent again
    Restore(restore::Restore),
}

impl Archive {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run(),
            Self::Restore(restore) => restore.run().await,
        }
    }
}
