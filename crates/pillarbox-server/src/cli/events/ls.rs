//! `pillarbox events ls`

use clap::{Args, ValueEnum};
use pillarbox_store::Status;
use pillarbox_store::operate::{Filter, Record};
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::super::actor;
use super::super::database_args::DatabaseArgs;
use super::Which;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox events ls --database outbox.db
  pillarbox events ls --status dead --topic orders
  pillarbox events ls --destination unrouted         events that no route matches
  pillarbox events ls --event 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55   one row per destination
  pillarbox events ls --limit 100 --before 4711      the next page
  pillarbox events ls --json | jq .id                one JSON object per line";

/// Lists events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    #[command(flatten)]
    which: Which,

    /// Select only this status
    #[arg(long)]
    status: Option<State>,

    /// Select only the rows of this event, one for each destination
    #[arg(long, value_name = "ID")]
    event: Option<Uuid>,

    /// List at most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// List only rows before this SEQ (the next page)
    #[arg(long, value_name = "SEQ")]
    before: Option<i64>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// A status to filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    Pending,
    Processing,
    Delivered,
    Dead,
    /// A status that Pillarbox does not know
    Unknown,
}

impl From<State> for Status {
    fn from(state: State) -> Self {
        match state {
            State::Pending => Self::Pending,
            State::Processing => Self::Processing,
            State::Delivered => Self::Delivered,
            State::Dead => Self::Dead,
            State::Unknown => Self::Unknown(String::new()),
        }
    }
}

impl Ls {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let filter = Filter {
            event: self.event,
            before: self.before,
            limit: usize::try_from(self.limit).unwrap_or(usize::MAX),
            ..self.which.filter(self.status.map(Status::from))
        };
        let records = database.operate().list(&actor::operator(), &filter).await?;
        if self.json {
            return records.iter().try_for_each(output::json);
        }
        if records.is_empty() {
            return output::line("no events");
        }
        let rows: Vec<Vec<String>> = records.iter().map(row).collect();
        output::table(
            &[
                "SEQ",
                "ID",
                "STATUS",
                "TRIES",
                "NAMESPACE",
                "TOPIC",
                "TYPE",
                "DESTINATION",
                "CREATED",
                "ERROR",
            ],
            &rows,
        )?;
        match records.last() {
            Some(last) if records.len() == filter.limit => {
                output::line(&format!("(there may be more: use --before {})", last.seq))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn row(record: &Record) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let created = record
        .created_at
        .replace_nanosecond(0)
        .unwrap_or(record.created_at);
    vec![
        record.seq.to_string(),
        record.id.to_string(),
        record.status.clone(),
        record.attempts.to_string(),
        output::cut(&record.namespace, 20),
        output::cut(&record.topic, 24),
        output::cut(&text(&record.event_type), 24),
        output::cut(&text(&record.destination), 20),
        created.format(&Rfc3339).unwrap_or_default(),
        output::cut(&text(&record.last_error), 60),
    ]
}
