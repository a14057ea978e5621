//! `pillarbox sagas show`

use clap::Args;
use pillarbox_store::sagas::{MOST_LINES, SagaLine, SagaRecord};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::actor;
use super::super::database_args::DatabaseArgs;
use super::Which;
use crate::failure::Failure;
use crate::output;

/// Shows one saga.
#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// A saga with its log.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    saga: &'a SagaRecord,
    log: &'a [SagaLine],
}

impl Show {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let (operate, actor) = (database.operate(), actor::operator());
        let found = self.which.find(operate.as_ref(), &actor).await?;
        let saga = operate.saga(&actor, &found.name, &found.id).await?;
        let saga = saga.ok_or_else(|| self.which.not_found())?; // deleted meanwhile
        let log = operate.saga_log(&actor, &saga.name, &saga.id).await?;
        if self.json {
            return output::json(&Shown {
                saga: &saga,
                log: &log,
            });
        }
        for (name, value) in fields(&saga) {
            output::line(&format!("{name:16}{}", output::escape(&value)))?;
        }
        if let Some(data) = &saga.data {
            let data = serde_json::to_string_pretty(data).unwrap_or_default();
            let lines: Vec<String> = data.lines().map(|line| format!("  {line}")).collect();
            output::line(&format!("\ndata:\n{}", output::escape_text(&lines.join("\n"))))?;
        }
        print_log(&log)
    }
}

/// The fields, the most interesting first.
fn fields(saga: &SagaRecord) -> Vec<(&'static str, String)> {
    let all = [
        ("name", Some(saga.name.clone())),
        ("id", Some(saga.id.clone())),
        ("seq", Some(saga.seq.to_string())),
        ("status", Some(saga.status.clone())),
        ("step", saga.step.clone()),
        ("attempt", saga.step.as_ref().map(|_| saga.attempt.to_string())),
        ("to undo", to_undo(saga)),
        ("waits until", saga.timeout_at.map(time)),
        ("last error", saga.last_error.clone()),
        ("address", Some(format!("{} / {}", saga.namespace, saga.topic))),
        ("started", Some(time(saga.created_at))),
        ("updated", Some(time(saga.updated_at))),
    ];
    all.into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// The steps that are left to undo, the last one first.
fn to_undo(saga: &SagaRecord) -> Option<String> {
    let left: Vec<&str> = saga.path.iter().rev().map(String::as_str).collect();
    (saga.status == "compensating").then(|| left.join(", "))
}

fn print_log(log: &[SagaLine]) -> Result<(), Failure> {
    output::line("\nlog:")?;
    let rows: Vec<Vec<String>> = log.iter().map(row).collect();
    output::table(&["AT", "WHAT", "STEP", "ACTION", "TRY", "DETAIL"], &rows)?;
    if u32::try_from(log.len()).is_ok_and(|lines| lines >= MOST_LINES) {
        output::line(&format!("(the last {MOST_LINES} lines)"))?;
    }
    Ok(())
}

fn row(line: &SagaLine) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        time(line.at),
        line.what.clone(),
        text(&line.step),
        text(&line.action),
        line.attempt
            .map_or_else(|| "-".to_owned(), |attempt| attempt.to_string()),
        output::cut(&text(&line.detail), 80),
    ]
}

fn time(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_default()
}
