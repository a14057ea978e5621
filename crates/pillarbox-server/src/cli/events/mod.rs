//! `pillarbox events`. One file per verb.

mod delete;
mod delete_old;
mod family;
mod ls;
mod retry;
mod show;
mod skip;

use clap::{Args, Subcommand};
use pillarbox_store::operate::Filter;
use pillarbox_store::{Scope, Status};
use uuid::Uuid;

use crate::failure::Failure;
use crate::output;

/// Lists, shows, retries, skips and deletes events.
#[derive(Debug, Subcommand)]
pub(crate) enum Events {
    /// List events, newest first
    Ls(ls::Ls),
    /// Show an event with payload, last error and other destinations
    Show(show::Show),
    /// Retry dead or waiting events now, with all attempts
    Retry(retry::Retry),
    /// Skip events, so that the others of their keys continue
    Skip(skip::Skip),
    /// Delete events that are not in flight
    Delete(delete::Delete),
}

impl Events {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
            Self::Show(show) => show.run().await,
            Self::Retry(retry) => retry.run().await,
            Self::Skip(skip) => skip.run().await,
            Self::Delete(delete) => delete.run().await,
        }
    }
}

/// The filter.
#[derive(Debug, Args)]
struct Which {
    /// Select only this namespace (repeatable)
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Select only this topic
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,

    /// Select only this destination, or `unrouted`
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
}

impl Which {
    fn filter(&self, status: Option<Status>) -> Filter {
        Filter {
            scope: Scope::configured(self.namespace.clone()),
            status,
            topic: self.topic.clone(),
            destination: self.destination.clone(),
            ..Filter::default()
        }
    }
}

/// Prints which events were changed. Fails with the ids of the others.
fn report(
    verb: &str,
    requested: &[Uuid],
    changed: &[Uuid],
    why_not: &str,
    json: bool,
) -> Result<(), Failure> {
    let left: Vec<&Uuid> = requested.iter().filter(|id| !changed.contains(id)).collect();
    if json {
        output::json(&serde_json::json!({ verb: changed, "unchanged": left }))?;
    } else {
        for id in changed {
            output::line(&format!("{id} {verb}"))?;
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let left: Vec<String> = left.iter().map(|id| id.to_string()).collect();
    Err(Failure::failed(format!(
        "not {verb}: {} ({why_not})",
        left.join(", ")
    )))
}
