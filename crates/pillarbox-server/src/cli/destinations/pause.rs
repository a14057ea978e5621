//! `pillarbox destinations pause`

use clap::Args;
use pillarbox_store::store::UNROUTED;
use pillarbox_store::{Actor, Operate, Scope};

use super::super::actor;
use super::super::database_args::{self, DatabaseArgs};
use crate::config;
use crate::failure::Failure;
use crate::output;

/// The default reason.
const REASON: &str = "paused by an operator";

const EXAMPLES: &str = "\
Attempts in flight finish, and no more events are claimed. Waiting events use no attempts.
The pause survives restarts.

Examples:
  pillarbox destinations pause partner --reason 'they migrate until noon'
  pillarbox destinations resume partner";

/// Pauses a destination.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Pause {
    /// Name the destination
    name: String,

    /// Record a reason, which `destinations ls` and the audit show
    #[arg(long, default_value = REASON)]
    reason: String,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Pause {
    pub(super) async fn run(self) -> Result<(), Failure> {
        if self.name == UNROUTED {
            return Err(Failure::usage(format!(
                "cannot pause `{UNROUTED}`: it is not a destination, and its events are not sent"
            )));
        }
        let found = self.database.find()?;
        let database = database_args::open(&found.database).await?;
        let (operate, actor) = (database.operate(), actor::operator());
        if let Some(configured) = &found.destinations {
            self.check_name(configured, operate.as_ref(), &actor).await?;
        }
        operate.pause(&actor, &self.name, &self.reason).await?;
        if self.json {
            return output::json(&serde_json::json!({ "paused": self.name, "reason": self.reason }));
        }
        output::line(&output::escape(&format!("{} paused: {}", self.name, self.reason)))
    }

    /// Rejects an unknown name: a misspelt one would pause nothing.
    async fn check_name(
        &self,
        configured: &[String],
        operate: &dyn Operate,
        actor: &Actor,
    ) -> Result<(), Failure> {
        if configured.contains(&self.name) {
            return Ok(());
        }
        let known = operate
            .destinations(actor, &Scope::All, std::slice::from_ref(&self.name))
            .await?;
        if known.iter().any(|record| record.name == self.name) {
            return Ok(());
        }
        let names = configured.iter().map(String::as_str);
        let hint = match config::nearest(&self.name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`destinations ls` lists them".to_owned(),
        };
        Err(Failure::failed(format!(
            "unknown destination `{}` ({hint})",
            self.name
        )))
    }
}
