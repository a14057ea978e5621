//! `pillarbox adopt retry`

use clap::Args;
use pillarbox_store::operate::MOST_RETRIED;
use pillarbox_store::{Actor, Operate};

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use crate::config;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
The worker that imports the table tries them again within seconds.

Examples:
  pillarbox adopt retry outbox               every row that could not be imported
  pillarbox adopt retry outbox --id 4711 --id 4890";

/// Retries rows that could not be imported.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Retry {
    /// Name the adopted table, as in the configuration
    name: String,

    /// Retry only the row with this id (repeatable)
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,

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
        let (operate, actor) = (database.operate(), self.because.operator());
        self.check_name(operate.as_ref(), &actor).await?;
        if self.ids.is_empty() {
            return self.all(operate.as_ref(), &actor).await;
        }
        let retried = operate.retry_imports(&actor, &self.name, Some(&self.ids)).await?;
        let left: Vec<&str> = self
            .ids
            .iter()
            .filter(|id| !retried.contains(id))
            .map(String::as_str)
            .collect();
        if self.json {
            output::json(&serde_json::json!({ "retried": retried, "unchanged": left }))?;
        } else {
            for id in &retried {
                output::line(&output::escape(&format!("{id} retried")))?;
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "not retried: {} (the import of these rows did not fail)",
            left.join(", ")
        )))
    }

    async fn all(&self, operate: &dyn Operate, actor: &Actor) -> Result<(), Failure> {
        let mut retried = 0;
        loop {
            let page = operate.retry_imports(actor, &self.name, None).await?.len();
            retried += page;
            // Rows that fail again meanwhile are not retried twice.
            if page < MOST_RETRIED {
                break;
            }
        }
        if self.json {
            return output::json(&serde_json::json!({ "retried": retried }));
        }
        output::line(&format!("{retried} retried"))
    }

    async fn check_name(&self, operate: &dyn Operate, actor: &Actor) -> Result<(), Failure> {
        let tables = operate.adopted_tables(actor).await?;
        if tables.iter().any(|table| table.name == self.name) {
            return Ok(());
        }
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        let hint = if names.is_empty() {
            "no worker has imported a table in this database".to_owned()
        } else {
            format!("adopted: {}", config::list(&names))
        };
        Err(Failure::failed(format!(
            "adopted table `{}` not found ({hint})",
            self.name
        )))
    }
}
