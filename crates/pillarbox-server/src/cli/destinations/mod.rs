//! `pillarbox destinations`. One file per verb.

mod ls;
mod pause;
mod resume;

use clap::Subcommand;

use crate::failure::Failure;

/// Lists, pauses and resumes destinations.
#[derive(Debug, Subcommand)]
pub(crate) enum Destinations {
    /// List destinations that are configured, paused or have events
    Ls(ls::Ls),
    /// Pause a destination for all workers until it is resumed
    Pause(pause::Pause),
    /// Resume a paused or disabled destination
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
