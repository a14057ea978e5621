//! `pillarbox destinations pause`

use clap::Args;
use pillarbox_store::store::UNROUTED;
use pillarbox_store::{Operate, Scope};

use super::super::target::{self, Target};
use crate::config;
use crate::failure::Failure;
use crate::output;

/// Why, if nobody says.
const REASON: &str = "paused by a person";

const EXAMPLES: &str = "\
What is under way is finished; nothing more is claimed. Events wait without using up attempts.

Examples:
  pillarbox destinations pause partner --reason 'they migrate until noon'
  pillarbox destinations resume partner";

/// Pauses a destination.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Pause {
    /// The destination's name
    name: String,

    /// Why, for whoever looks
    #[arg(long, default_value = REASON)]
    reason: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

impl Pause {
    pub(super) async fn run(self) -> Result<(), Failure> {
        if self.name == UNROUTED {
            return Err(Failure::usage(format!(
                "`{UNROUTED}` is no destination: what waits there is sent nowhere anyway"
            )));
        }
        let found = self.target.find()?;
        let database = target::open(&found.database).await?;
        let operate = database.operate();
        if let Some(configured) = &found.destinations {
            self.check_name(configured, operate.as_ref()).await?;
        }
        operate.pause(&self.name, &self.reason).await?;
        if self.json {
            return output::json(&serde_json::json!({ "paused": self.name, "reason": self.reason }));
        }
        output::line(&output::escape(&format!("{} paused: {}", self.name, self.reason)))
    }

    /// A misspelt name would pause nothing, and nobody would notice.
    async fn check_name(&self, configured: &[String], operate: &dyn Operate) -> Result<(), Failure> {
        if configured.contains(&self.name) {
            return Ok(());
        }
        let known = operate.destinations(&Scope::All).await?;
        if known.iter().any(|record| record.name == self.name) {
            return Ok(());
        }
        let names = configured.iter().map(String::as_str);
        let hint = match config::nearest(&self.name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`destinations ls` lists them".to_owned(),
        };
        Err(Failure::failed(format!(
            "there is no destination `{}`; {hint}",
            self.name
        )))
    }
}
