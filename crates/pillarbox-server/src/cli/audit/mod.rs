//! `pillarbox audit`. One file per verb.

mod export;
mod ls;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use pillarbox_store::audit::{Action, AuditFilter};
use time::OffsetDateTime;

use super::time_arg;
use crate::failure::Failure;

/// Lists and exports who changed what, and why.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// List lines of the audit, newest first
    Ls(ls::Ls),
    /// Print all lines as JSON, one object per line, newest first
    Export(export::Export),
}

impl Audit {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
            Self::Export(export) => export.run().await,
        }
    }
}

/// The filter.
#[derive(Debug, Args)]
struct Which {
    /// Select only what this actor did, as `audit ls` shows it
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Select only this action
    #[arg(long, value_parser = PossibleValuesParser::new(Action::ALL.map(Action::as_str)))]
    action: Option<String>,

    /// Select only what was done to this: an event's id, a destination, a role …
    #[arg(long, value_name = "ID|NAME")]
    object: Option<String>,

    /// Select only lines since this time, or this long ago (`24h`)
    #[arg(long, value_name = "TIME", value_parser = time_arg::parse_past)]
    since: Option<OffsetDateTime>,

    /// Select only lines before this time, or this long ago
    #[arg(long, value_name = "TIME", value_parser = time_arg::parse_past)]
    until: Option<OffsetDateTime>,
}

impl Which {
    fn filter(self) -> AuditFilter {
        AuditFilter {
            subject: self.actor,
            action: self.action,
            object: self.object,
            since: self.since,
            until: self.until,
            ..AuditFilter::default()
        }
    }
}
