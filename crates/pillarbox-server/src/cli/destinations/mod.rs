//! `pillarbox destinations`: who gets anything at all. One file per verb.

mod ls;
mod pause;
mod resume;

use clap::Subcommand;

use crate::failure::Failure;

/// Looks at destinations, pauses and resumes them.
#[derive(Debug, Subcommand)]
pub(crate) enum Destinations {
    /// List destinations: those that are configured, paused, or that events wait for
    Ls(ls::Ls),
    /// Send nothing to a destination until it is resumed; holds for all workers and survives restarts
    Pause(pause::Pause),
    /// Send again
    Resume(resume::Resume),
}

impl Destinations {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
            Self::Pause(pause) => pause.run().await,
            Self::Resume(resume) => resume.run().await,
        }
    }
}
