//! `pillarbox events delete --older-than …`
//!
//! **If we die here** what was deleted is gone, and the line of the audit says that the deletion began.

use std::time::Duration;

use clap::{Args, ValueEnum};
use pillarbox_store::retention::{DeleteOld, Pruned, What};
use pillarbox_store::{Actor, Operate, Scope};

use super::delete::confirm;
use crate::config::in_days;
use crate::database::Database;
use crate::failure::Failure;
use crate::logs;
use crate::output;

/// How many rows are read in one transaction.
const BATCH: usize = 1000;
/// After how many deleted rows the progress is shown.
const PROGRESS: u64 = 100_000;

/// Which events.
#[derive(Debug, Clone, Args)]
pub(super) struct Old {
    /// Delete events with this status; needs --older-than
    #[arg(long, requires = "older_than")]
    status: Option<Ended>,

    /// Delete events that ended so long ago, such as 30d
    #[arg(long, value_name = "AGE", requires = "status", value_parser = age)]
    older_than: Option<Duration>,

    /// Delete only events of this namespace (repeatable)
    #[arg(long, value_name = "NAME", requires = "older_than")]
    namespace: Vec<String>,

    /// Only count the events
    #[arg(long, requires = "older_than")]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ended {
    Delivered,
    Dead,
}

/// What the options say.
pub(super) struct Which {
    what: What,
    older_than: Duration,
    scope: Scope,
    dry_run: bool,
}

impl Old {
    /// `None` without the options: events are named by their ids.
    pub(super) fn which(&self) -> Option<Which> {
        Some(Which {
            what: match self.status? {
                Ended::Delivered => What::Delivered,
                Ended::Dead => What::Dead,
            },
            older_than: self.older_than?,
            scope: Scope::configured(self.namespace.clone()),
            dry_run: self.dry_run,
        })
    }
}

fn age(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(age) if !age.is_zero() => Ok(age),
        Ok(_) | Err(_) => Err("use an age such as 12h, 30d or 90d".to_owned()),
    }
}

/// One run of the command.
pub(super) struct Run {
    pub(super) which: Which,
    pub(super) yes: bool,
    pub(super) json: bool,
    pub(super) actor: Actor,
}

impl Run {
    pub(super) async fn delete(self, database: &Database) -> Result<(), Failure> {
        let operate = database.operate();
        let found = self.pass(&*operate, true, 0).await?;
        let (count, status) = match self.which.what {
            What::Dead => (found.dead, "dead"),
            What::Delivered | What::Sagas | What::Marks => (found.delivered, "delivered"),
        };
        let age = in_days(self.which.older_than);
        if self.which.dry_run {
            if self.json {
                return output::json(&serde_json::json!({ "status": status, "found": count }));
            }
            return output::line(&format!(
                "{count} {status} rows would be deleted: their events ended {age} ago or earlier"
            ));
        }
        if count > 0 && !self.yes {
            confirm(usize::try_from(count).unwrap_or(usize::MAX))?;
        }
        let deleted = if count > 0 {
            self.pass(&*operate, false, count).await?
        } else {
            Pruned::default()
        };
        if self.json {
            return output::json(
                &serde_json::json!({ "delivered": deleted.delivered, "dead": deleted.dead }),
            );
        }
        output::line(&format!(
            "{} rows deleted: {} delivered, {} dead",
            deleted.total(),
            deleted.delivered,
            deleted.dead
        ))
    }

    async fn pass(&self, operate: &dyn Operate, dry_run: bool, expected: u64) -> Result<Pruned, Failure> {
        let mut request = DeleteOld {
            what: self.which.what,
            older_than: self.which.older_than,
            scope: self.which.scope.clone(),
            batch: BATCH,
            after: None,
            dry_run,
            expected,
        };
        let mut all = Pruned::default();
        loop {
            let before = all.total() / PROGRESS;
            let deleted = operate.delete_old(&self.actor, &request).await?;
            all.add(&deleted);
            if !dry_run && all.total() / PROGRESS > before {
                logs::progress(&format!("{} of about {expected} rows deleted", all.total()));
            }
            request.after = deleted.after;
            if request.after.is_none() {
                return Ok(all);
            }
        }
    }
}
