//! `pillarbox quota`

use clap::{Args, Subcommand};
use pillarbox_store::quotas::{Holder, MAX_PENDING, QuotaRecord};
use uuid::Uuid;

use super::actor::{self, Because};
use super::database_args::DatabaseArgs;
use super::grant;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Run it as the owner of the outbox. A worker counts every five seconds. Who has more pending events than
its quota cannot enqueue until some are delivered.

Examples:
  pillarbox quota set --each-tenant --max-pending 10000
  pillarbox quota set --tenant 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5a --max-pending 50000
  pillarbox quota set --role mailer --max-pending 1000
  pillarbox quota ls
  pillarbox quota rm --role mailer";

/// Limits how many pending events a role or a tenant may have (PostgreSQL).
#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// Limit the pending events of a role or a tenant
    Set(Set),
    /// List quotas with what counts against them
    Ls(Ls),
    /// Remove a quota
    Rm(Rm),
}

/// Whom it concerns.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct HolderArgs {
    /// Name a database role; its members count with it
    #[arg(long, value_name = "NAME")]
    role: Option<String>,

    /// Name a tenant
    #[arg(long, value_name = "ID")]
    tenant: Option<Uuid>,

    /// Mean each tenant without a quota of its own
    #[arg(long)]
    each_tenant: bool,
}

impl HolderArgs {
    fn holder(&self) -> Holder {
        match (&self.role, self.tenant) {
            (Some(role), _) => Holder::Role(role.clone()),
            (None, Some(id)) => Holder::Tenant(id),
            (None, None) => Holder::EachTenant,
        }
    }
}

/// Sets a quota.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Set {
    #[command(flatten)]
    holder: HolderArgs,

    /// Allow so many pending events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_PENDING))]
    max_pending: u64,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// Lists quotas.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// List at most so many
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// Removes a quota.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    #[command(flatten)]
    holder: HolderArgs,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Quota {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Set(set) => set.run().await,
            Self::Ls(ls) => ls.run().await,
            Self::Rm(rm) => rm.run().await,
        }
    }
}

impl Set {
    async fn run(self) -> Result<(), Failure> {
        let (holder, actor) = (self.holder.holder(), self.because.operator());
        let store = grant::open_owned(&self.database, "set a quota", "quotas").await?;
        let before = store.set_quota(&actor, &holder, self.max_pending).await?;
        if self.json {
            return output::json(&serde_json::json!({
                "holder": holder.to_string(), "max_pending": self.max_pending, "before": before,
            }));
        }
        let before = before.map_or("none".to_owned(), |before| before.to_string());
        output::line(&output::escape(&format!(
            "{holder}: at most {} pending events (before: {before})",
            self.max_pending
        )))
    }
}

impl Ls {
    async fn run(self) -> Result<(), Failure> {
        let store = grant::open(&self.database, "list quotas", "quotas").await?;
        let quotas = store.quotas(&actor::operator(), self.limit).await?;
        if self.json {
            return quotas.iter().try_for_each(output::json);
        }
        if quotas.is_empty() {
            return output::line("no quotas");
        }
        let headings = ["KIND", "NAME", "MAX PENDING", "PENDING", "STATE"];
        output::table(&headings, &quotas.iter().map(row).collect::<Vec<_>>())
    }
}

fn row(quota: &QuotaRecord) -> Vec<String> {
    let most = quota.max_pending;
    vec![
        quota.kind.clone(),
        quota.name.clone().unwrap_or_else(|| "each".to_owned()),
        if quota.own {
            most.to_string()
        } else {
            format!("{most} (each)")
        },
        match quota.pending {
            Some(pending) if pending > most => format!("over {most}"),
            Some(pending) => pending.to_string(),
            None => "–".to_owned(),
        },
        if quota.exceeded { "exceeded" } else { "within" }.to_owned(),
    ]
}

impl Rm {
    async fn run(self) -> Result<(), Failure> {
        let (holder, actor) = (self.holder.holder(), self.because.operator());
        let store = grant::open_owned(&self.database, "remove a quota", "quotas").await?;
        let Some(before) = store.remove_quota(&actor, &holder).await? else {
            return Err(Failure::failed(output::escape(&format!(
                "{holder} has no quota (`quota ls` lists them)"
            ))));
        };
        if self.json {
            return output::json(&serde_json::json!({ "holder": holder.to_string(), "before": before }));
        }
        output::line(&output::escape(&format!(
            "{holder}: no quota (before: {before} pending events)"
        )))
    }
}
