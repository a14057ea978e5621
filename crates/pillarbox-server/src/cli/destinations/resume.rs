//! `pillarbox destinations resume`

use clap::Args;

use super::super::target::Target;
use crate::failure::Failure;
use crate::output;

/// Ends a pause, whoever began it: a person, or a destination that asked not to be called again.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The destination's name
    name: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Resume {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.target.open().await?;
        if !database.operate().resume(&self.name).await? {
            return Err(Failure::failed(format!(
                "`{}` is not paused; `destinations ls` lists what is",
                self.name
            )));
        }
        if self.json {
            return output::json(&serde_json::json!({ "resumed": self.name }));
        }
        output::line(&output::escape(&format!("{} resumed", self.name)))
    }
}
