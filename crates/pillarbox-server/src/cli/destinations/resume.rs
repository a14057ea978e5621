//! `pillarbox destinations resume`

use clap::Args;

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use crate::failure::Failure;
use crate::output;

/// Resumes a destination that an operator paused or that was disabled by its own answer.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Name the destination
    name: String,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Resume {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        if !database
            .operate()
            .resume(&self.because.operator(), &self.name)
            .await?
        {
            return Err(Failure::failed(format!(
                "destination `{}` is not paused (`destinations ls` shows paused ones)",
                self.name
            )));
        }
        if self.json {
            return output::json(&serde_json::json!({ "resumed": self.name }));
        }
        output::line(&output::escape(&format!("{} resumed", self.name)))
    }
}
