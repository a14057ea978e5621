//! `pillarbox revoke`

use clap::{Args, ValueEnum};
use pillarbox_store::stores::postgres;

use super::actor::Because;
use super::database_args::DatabaseArgs;
use super::grant;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Run it as the owner of the outbox. The role keeps its other duties.

Example:
  pillarbox revoke producer shop --database postgres://owner@localhost/shop";

/// Takes a duty from a database role (PostgreSQL).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Revoke {
    /// Name the duty
    duty: Duty,

    /// Name the role
    role: String,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Duty {
    Producer,
    Writer,
    Consumer,
    Orchestrator,
    Dispatcher,
    Api,
    #[value(name = "api_any_tenant")]
    ApiAnyTenant,
}

impl From<Duty> for postgres::Duty {
    fn from(duty: Duty) -> Self {
        match duty {
            Duty::Producer => Self::Producer,
            Duty::Writer => Self::Writer,
            Duty::Consumer => Self::Consumer,
            Duty::Orchestrator => Self::Orchestrator,
            Duty::Dispatcher => Self::Dispatcher,
            Duty::Api => Self::Api,
            Duty::ApiAnyTenant => Self::ApiAnyTenant,
        }
    }
}

impl Revoke {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let store = grant::open_owned(&self.database, "revoke", "roles").await?;
        let duty = postgres::Duty::from(self.duty);
        let revoked = store.revoke(&self.because.operator(), duty, &self.role).await?;
        let (name, schema) = (duty.name(), store.schema());
        if !revoked {
            return Err(Failure::failed(output::escape(&format!(
                "role {} does not have the duty {name} in the schema {schema} (`select * from {schema}.role_bounds` lists duties)",
                self.role
            ))));
        }
        if self.json {
            return output::json(&serde_json::json!({ "role": self.role, "duty": name, "schema": schema }));
        }
        output::line(&output::escape(&format!(
            "{}: revoked the duty {name} in the schema {schema}",
            self.role
        )))
    }
}
