//! `pillarbox events show`

use clap::Args;
use pillarbox::internal::envelope::{COLUMNS, Value};
use pillarbox_store::operate::{Filter, Record};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::super::actor;
use super::super::database_args::DatabaseArgs;
use super::family;
use crate::failure::Failure;
use crate::output;

/// The maximum number of rows shown. There is one for each destination.
const MOST_ROWS: usize = 1000;

/// Shows one event.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name the event's id, or a row's id from `events ls`
    id: Uuid,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Show {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (database, actor) = (self.database.open().await?, actor::operator());
        let Some(record) = database.operate().show(&actor, self.id).await? else {
            return Err(Failure::failed(format!(
                "no event has the id {} (`events ls` lists them)",
                self.id
            )));
        };
        let filter = Filter {
            event: Some(record.event.id),
            limit: MOST_ROWS,
            ..Filter::default()
        };
        let family = database.operate().list(&actor, &filter).await?;
        if self.json {
            return output::json(&Shown {
                record: &record,
                family_status: family::status(&family),
                family: &family,
            });
        }
        for (name, value) in fields(&record) {
            output::line(&format!("{name:16}{}", output::escape(&value)))?;
        }
        if family.len() > 1 {
            print_family(&family)?;
        }
        if let Some(error) = &record.last_error {
            output::line(&format!("\nlast error:\n{}", indented(error)))?;
        }
        output::line(&format!("\npayload:\n{}", indented(&payload(&record))))
    }
}

/// A row and the other rows of its event.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    record: &'a Record,
    family_status: &'static str,
    family: &'a [Record],
}

fn print_family(family: &[Record]) -> Result<(), Failure> {
    output::line(&format!(
        "\nthe event goes to {} destinations and is {}:",
        family.len(),
        family::status(family)
    ))?;
    let rows: Vec<Vec<String>> = family
        .iter()
        .map(|row| {
            vec![
                output::cut(row.destination.as_deref().unwrap_or("-"), 24),
                row.status.clone(),
                row.attempts.to_string(),
                row.id.to_string(),
                output::cut(row.last_error.as_deref().unwrap_or("-"), 60),
            ]
        })
        .collect();
    output::table(&["DESTINATION", "STATUS", "TRIES", "ID", "ERROR"], &rows)
}

/// The fields, the most interesting first.
fn fields(record: &Record) -> Vec<(String, String)> {
    let time = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_default();
    let attempts = match record.max_attempts {
        Some(i32::MAX) => format!("{} (unlimited)", record.attempts),
        Some(most) => format!("{} of {most}", record.attempts),
        None => record.attempts.to_string(),
    };
    let before = [
        ("id", Some(record.id.to_string())),
        (
            "event id",
            (record.event.id != record.id).then(|| record.event.id.to_string()),
        ),
        ("seq", Some(record.seq.to_string())),
        ("status", Some(record.status.clone())),
        ("attempts", Some(attempts)),
    ];
    let event = COLUMNS.iter().zip(record.event.values()).map(|(column, value)| {
        let text = match value {
            Value::Text(text) => text.map(str::to_owned),
            Value::Number(number) => Some(number.to_string()),
            Value::Id(id) => id.map(|id| id.to_string()),
            Value::Json(json) => Some(json.into_owned()).filter(|text| text != "{}"),
        };
        (label(column.name), text)
    });
    let after = [
        (
            "order",
            record
                .unordered
                .then(|| "skipped: it neither waits for its key nor blocks it".to_owned()),
        ),
        ("destination", record.destination.clone()),
        ("created", Some(time(record.created_at))),
        ("updated", Some(time(record.updated_at))),
        (
            "next attempt",
            (record.status == "pending").then(|| time(record.next_attempt_at)),
        ),
        ("delivered", record.delivered_at.map(time)),
        ("locked by", record.locked_by.map(|worker| worker.to_string())),
        ("locked until", record.locked_until.map(time)),
    ];
    let own = |(name, value): (&'static str, Option<String>)| (name.to_owned(), value);
    let all = before
        .into_iter()
        .map(own)
        .chain(event)
        .chain(after.into_iter().map(own));
    all.filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A column's name as it is shown.
fn label(column: &str) -> String {
    match column {
        "event_type" => "type".to_owned(),
        "event_version" => "version".to_owned(),
        "tenant_id" => "tenant".to_owned(),
        "content_encoding" => "encoding".to_owned(),
        other => other.replace('_', " "),
    }
}

fn payload(record: &Record) -> String {
    match (record.body_bytes, &record.payload) {
        (Some(bytes), _) => format!("({bytes} bytes that are not JSON)"),
        (None, Some(value)) => serde_json::to_string_pretty(value).unwrap_or_default(),
        (None, None) => "(none)".to_owned(),
    }
}

fn indented(text: &str) -> String {
    let text = output::escape_text(text);
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}
