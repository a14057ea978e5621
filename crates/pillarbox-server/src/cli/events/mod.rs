//! `pillarbox events`: what a person does with events. One file per verb.

mod delete;
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

/// Looks at events, retries, skips or deletes them.
#[derive(Debug, Subcommand)]
pub(crate) enum Events {
    /// List events, newest first
    Ls(ls::Ls),
    /// Show one event with its payload, its last error and where else it goes
    Show(show::Show),
    /// Make dead or waiting events due now, with all their attempts
    Retry(retry::Retry),
    /// Let the other events of their keys go past these
    Skip(skip::Skip),
    /// Delete events that nobody is working on
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

/// Which events.
#[derive(Debug, Args)]
struct Which {
    /// Only this namespace; may be given again
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Only this topic
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,

    /// Only events on their way to this destination; `unrouted` for those that lead nowhere
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
}

impl Which {
    fn filter(&self, status: Option<Status>) -> Filter {
        Filter {
            scope: Scope::of(self.namespace.clone()),
            status,
            topic: self.topic.clone(),
            destination: self.destination.clone(),
            ..Filter::default()
        }
    }
}

/// Says which of the ids were changed. Some that were not are a failure, and each is named.
fn report(verb: &str, asked: &[Uuid], changed: &[Uuid], why_not: &str, json: bool) -> Result<(), Failure> {
    let left: Vec<&Uuid> = asked.iter().filter(|id| !changed.contains(id)).collect();
    if json {
        output::json(&serde_json::json!({ verb: changed, "left_alone": left }))?;
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
        "left alone: {} ({why_not})",
        left.join(", ")
    )))
}
