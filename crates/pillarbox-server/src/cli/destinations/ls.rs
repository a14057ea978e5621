//! `pillarbox destinations ls`

use clap::Args;
use pillarbox_store::Scope;
use pillarbox_store::operate::MOST_NAMES;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::actor;
use super::super::database_args::{self, DatabaseArgs};
use crate::destinations::{self, Listed};
use crate::failure::Failure;
use crate::logs;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox destinations ls
  pillarbox destinations ls --json | jq 'select(.state != \"closed\")'";

/// Lists destinations.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// Count only this namespace (repeatable)
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Ls {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let found = self.database.find()?;
        let database = database_args::open(&found.database).await?;
        let (operate, actor) = (database.operate(), actor::operator());
        let known = found.destinations.as_deref().unwrap_or_default();
        let records = operate
            .destinations(&actor, &Scope::configured(self.namespace), known)
            .await?;
        let is_cut = records.len() >= MOST_NAMES;
        let workers = operate.workers(&actor).await?;
        let live = workers.iter().filter(|worker| worker.alive).count();
        let mut listed = destinations::list(records, &workers, found.destinations.as_deref());
        for to in &mut listed {
            to.exposure = found.exposures.get(&to.name).cloned();
        }
        if self.json {
            return listed.iter().try_for_each(output::json);
        }
        if listed.is_empty() {
            return output::line("no destinations");
        }
        let rows: Vec<Vec<String>> = listed.iter().map(|to| row(to, live)).collect();
        output::table(
            &["NAME", "STATE", "SINCE", "PENDING", "DEAD", "REASON", "NOTE"],
            &rows,
        )?;
        if is_cut {
            logs::warning(&format!(
                "events name more destinations: configured and paused ones are listed, and the first {MOST_NAMES} by name"
            ));
        }
        Ok(())
    }
}

/// One line; `live` is the number of workers that are alive.
fn row(to: &Listed, live: usize) -> Vec<String> {
    // Of several workers, the one whose breaker opened first.
    let first = to.breakers.iter().min_by_key(|worker| worker.breaker.since);
    let why = match (&to.paused, first) {
        (Some(paused), _) => Some((paused.since, paused.reason.clone())),
        (None, Some(first)) => {
            let part = match to.breakers.len() {
                some if some < live => format!(" (on {some} of {live} workers)"),
                _ => String::new(),
            };
            let reason = output::cut(&first.breaker.reason, 120);
            Some((first.breaker.since, format!("{reason}{part}")))
        }
        (None, None) => None,
    };
    let (since, reason) = match why {
        Some((since, reason)) => (moment(since), output::cut(&reason, 150)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    vec![
        to.name.clone(),
        to.state.word().to_owned(),
        since,
        destinations::count(to.pending),
        destinations::count(to.dead),
        reason,
        note(to),
    ]
}

fn note(to: &Listed) -> String {
    let exposure = to
        .exposure
        .as_ref()
        .map(|exposure| format!("warning: {exposure}"));
    let notes: Vec<String> = to.note.map(str::to_owned).into_iter().chain(exposure).collect();
    if notes.is_empty() {
        "-".to_owned()
    } else {
        notes.join("; ")
    }
}

fn moment(at: OffsetDateTime) -> String {
    let at = at.replace_nanosecond(0).unwrap_or(at);
    at.format(&Rfc3339).unwrap_or_default()
}
