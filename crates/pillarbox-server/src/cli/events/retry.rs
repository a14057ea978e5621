//! `pillarbox events retry`

use clap::Args;
use pillarbox_store::Status;
use pillarbox_store::operate::Filter;
use uuid::Uuid;

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use super::{Which, report};
use crate::database::Database;
use crate::failure::Failure;
use crate::output;

/// The number of rows in one statement.
const BATCH: usize = 500;

const EXAMPLES: &str = "\
Examples:
  pillarbox events retry 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55
  pillarbox events retry --dead --topic orders        every dead event of a topic";

/// Retries events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Retry {
    /// Name the events' ids
    #[arg(required_unless_present = "dead", conflicts_with = "dead")]
    ids: Vec<Uuid>,

    /// Retry every dead event that the filters select
    #[arg(long)]
    dead: bool,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Retry {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        if self.dead {
            return self.all_dead(&database).await;
        }
        let changed = database
            .operate()
            .retry(&self.because.operator(), &self.ids)
            .await?;
        let why_not = "not found, delivered, or in flight";
        report("retried", &self.ids, &changed, why_not, self.json)
    }

    /// Goes from the newest to the oldest, so that an event that dies again is not retried twice.
    async fn all_dead(&self, database: &Database) -> Result<(), Failure> {
        let mut filter = Filter {
            limit: BATCH,
            ..self.which.filter(Some(Status::Dead))
        };
        let actor = self.because.operator();
        let mut retried = 0;
        loop {
            let page = database.operate().list(&actor, &filter).await?;
            let Some(last) = page.last() else { break };
            filter.before = Some(last.seq);
            let ids: Vec<Uuid> = page.iter().map(|record| record.id).collect();
            retried += database.operate().retry(&actor, &ids).await?.len();
        }
        if self.json {
            return output::json(&serde_json::json!({ "retried": retried }));
        }
        output::line(&format!("{retried} retried"))
    }
}
