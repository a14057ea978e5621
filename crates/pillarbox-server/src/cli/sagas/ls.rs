//! `pillarbox sagas ls`

use clap::{Args, ValueEnum};
use pillarbox::saga::Status;
use pillarbox_store::sagas::{SagaFilter, SagaRecord};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::actor;
use super::super::database_args::DatabaseArgs;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
WAITS UNTIL is when the current attempt times out. If that time is long past, the application does
not receive the saga's messages: check that a route matches the saga's address.

Examples:
  pillarbox sagas ls --status compensating
  pillarbox sagas ls --name order --limit 100 --before 4711   the next page
  pillarbox sagas ls --json | jq .id                          one JSON object per line";

/// Lists sagas.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// List only sagas with this status
    #[arg(long)]
    status: Option<State>,

    /// List only sagas with this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// List at most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// List only sagas before this SEQ (the next page)
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
    Running,
    Compensating,
    Completed,
    Compensated,
}

impl From<State> for Status {
    fn from(state: State) -> Self {
        match state {
            State::Running => Self::Running,
            State::Compensating => Self::Compensating,
            State::Completed => Self::Completed,
            State::Compensated => Self::Compensated,
        }
    }
}

impl Ls {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let filter = SagaFilter {
            status: self.status.map(Status::from),
            name: self.name,
            id: None,
            before: self.before,
            limit: usize::try_from(self.limit).unwrap_or(usize::MAX),
        };
        let sagas = database.operate().sagas(&actor::operator(), &filter).await?;
        if self.json {
            return sagas.iter().try_for_each(output::json);
        }
        if sagas.is_empty() {
            return output::line("no sagas");
        }
        let headings = [
            "SEQ",
            "NAME",
            "ID",
            "STATUS",
            "STEP",
            "TRIES",
            "WAITS UNTIL",
            "UPDATED",
            "ERROR",
        ];
        output::table(&headings, &sagas.iter().map(row).collect::<Vec<_>>())?;
        match sagas.last() {
            Some(last) if sagas.len() == filter.limit => {
                output::line(&format!("(there may be more: use --before {})", last.seq))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn row(saga: &SagaRecord) -> Vec<String> {
    let time = |at: OffsetDateTime| {
        let whole = at.replace_nanosecond(0).unwrap_or(at);
        whole.format(&Rfc3339).unwrap_or_default()
    };
    let tries = saga.step.as_ref().map(|_| saga.attempt.to_string());
    vec![
        saga.seq.to_string(),
        output::cut(&saga.name, 20),
        output::cut(&saga.id, 36),
        saga.status.clone(),
        output::cut(saga.step.as_deref().unwrap_or("-"), 20),
        tries.unwrap_or_else(|| "-".to_owned()),
        saga.timeout_at.map_or_else(|| "-".to_owned(), time),
        time(saga.updated_at),
        output::cut(saga.last_error.as_deref().unwrap_or("-"), 60),
    ]
}
