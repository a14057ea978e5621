//! `pillarbox keys ls`

use clap::Args;
use pillarbox_store::Scope;
use pillarbox_store::operate::{BlockedKey, MOST_BEHIND};

use super::super::actor;
use super::super::database_args::DatabaseArgs;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
A key is blocked by its first unfinished event: one that failed and waits for its next attempt,
or a dead one if `on_dead = \"block\"`. Keys that no live worker serves are listed too. BEHIND counts the events behind it, up to 1000.

Examples:
  pillarbox keys ls
  pillarbox keys ls --namespace shop --json | jq .ordering_key
  pillarbox keys skip shop order-42";

/// Lists blocked keys.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// List only this namespace (repeatable)
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// List at most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Ls {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let keys = database
            .operate()
            .blocked(&actor::operator(), &Scope::configured(self.namespace), limit)
            .await?;
        if self.json {
            return keys.iter().try_for_each(output::json);
        }
        if keys.is_empty() {
            return output::line("no blocked keys");
        }
        let headings = [
            "NAMESPACE",
            "KEY",
            "DESTINATION",
            "HEAD",
            "STATUS",
            "TRIES",
            "AGE",
            "BEHIND",
            "REASON",
        ];
        output::table(&headings, &keys.iter().map(row).collect::<Vec<_>>())?;
        if keys.len() == limit {
            output::line("(there may be more: --limit)")?;
        }
        Ok(())
    }
}

fn row(key: &BlockedKey) -> Vec<String> {
    let behind = if key.behind >= MOST_BEHIND {
        format!("{MOST_BEHIND}+")
    } else {
        key.behind.to_string()
    };
    vec![
        output::cut(&key.namespace, 20),
        output::cut(&key.ordering_key, 32),
        output::cut(key.destination.as_deref().unwrap_or("-"), 20),
        key.head.to_string(),
        key.status.clone(),
        key.attempts.to_string(),
        output::age(key.age_seconds),
        behind,
        output::cut(key.reason.as_deref().unwrap_or("-"), 60),
    ]
}
