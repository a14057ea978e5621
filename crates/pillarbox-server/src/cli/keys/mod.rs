//! `pillarbox keys`: ordering keys that do not go on. One file per verb.

mod ls;
mod mend;

use clap::Subcommand;

use crate::failure::Failure;

/// Looks at blocked keys, and lets them go on.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List keys that wait behind an event that failed or is dead, the longest blocked first
    Ls(ls::Ls),
    /// Give up on the event that blocks a key, and let the others go on without it
    Skip(mend::Mend),
    /// Make the event that blocks a key due now, with all its attempts
    Retry(mend::Mend),
}

impl Keys {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
            Self::Skip(mend) => mend.run(mend::Verb::Skip).await,
            Self::Retry(mend) => mend.run(mend::Verb::Retry).await,
        }
    }
}
