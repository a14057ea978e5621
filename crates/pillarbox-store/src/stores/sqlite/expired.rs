//! Chooses rows whose lease expired, for a claim, and for a sweep that reports whether there are any.

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::choose::Candidate;
use super::{column_limit, decode, row_limit, scope_json};
use crate::store::{ClaimRequest, Scope, SweepRequest};

/// How many of them are read.
const WINDOW: usize = 1_000;

/// Which expired rows, and for which worker.
pub(super) struct Search<'a> {
    worker: Uuid,
    scope: &'a Scope,
    excluded: &'a [String],
    max_attempts: u32,
}

impl<'a> From<&'a ClaimRequest> for Search<'a> {
    fn from(request: &'a ClaimRequest) -> Self {
        Self {
            worker: request.worker,
            scope: &request.scope,
            excluded: &request.excluded,
            max_attempts: request.max_attempts,
        }
    }
}

impl<'a> From<&'a SweepRequest> for Search<'a> {
    fn from(request: &'a SweepRequest) -> Self {
        Self {
            worker: request.worker,
            scope: &request.scope,
            excluded: &request.excluded,
            max_attempts: request.max_attempts,
        }
    }
}

/// Rows whose lease expired: lone suspects, or the others.
pub(super) async fn expired(
    tx: &mut SqliteConnection,
    search: &Search<'_>,
    alone: bool,
    limit: usize,
) -> Result<Vec<Candidate>, sqlx::Error> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(include_str!("sql/choose_expired.sql"))
        .bind(column_limit(search.max_attempts))
        .bind(scope_json(search.scope))
        .bind(json!(search.excluded).to_string())
        .bind(search.worker.to_string())
        .bind(row_limit(limit))
        .bind(row_limit(WINDOW.max(limit)))
        .bind(alone)
        .fetch_all(tx)
        .await?;
    let expired: Result<Vec<Expired>, _> = rows.iter().map(Expired::from_row).collect();
    Ok(in_turn(expired?, limit))
}

/// A row whose lease expired.
#[derive(Debug)]
struct Expired {
    candidate: Candidate,
    seq: i64,
    destination: String,
    namespace: String,
    /// Its key, if it keeps the order of it.
    key: Option<String>,
    /// How many rows of its key must be claimed before it.
    earlier: usize,
}

impl Expired {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            candidate: Candidate::from_row(row)?,
            seq: row.try_get("seq")?,
            destination: decode::text(row, "destination")?.unwrap_or_default(),
            namespace: decode::text(row, "namespace")?.unwrap_or_default(),
            key: decode::text(row, "key")?,
            earlier: usize::try_from(row.try_get::<i64, _>("earlier")?).unwrap_or(usize::MAX),
        })
    }

    fn waits_for(&self, other: &Self) -> bool {
        self.key.is_some()
            && self.key == other.key
            && self.namespace == other.namespace
            && other.seq < self.seq
            && (other.destination.is_empty() || other.destination == self.destination)
    }
}

/// The rows without an earlier row of their key that is left out, by `seq`.
fn in_turn(expired: Vec<Expired>, limit: usize) -> Vec<Candidate> {
    let mut taken: Vec<Expired> = Vec::new();
    for row in expired {
        let earlier = taken.iter().filter(|other| row.waits_for(other)).count();
        if taken.len() < limit && earlier == row.earlier {
            taken.push(row);
        }
    }
    taken.into_iter().map(|row| row.candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: i64, destination: &str, key: Option<&str>, earlier: usize) -> Expired {
        Expired {
            candidate: Candidate { rowno: seq, size: 0 },
            seq,
            destination: destination.to_owned(),
            namespace: "shop".to_owned(),
            key: key.map(str::to_owned),
            earlier,
        }
    }

    fn taken(rows: Vec<Expired>, limit: usize) -> Vec<i64> {
        in_turn(rows, limit).iter().map(|one| one.rowno).collect()
    }

    #[test]
    fn a_run_whose_lease_ran_out_is_taken_from_its_beginning() {
        let rows = || {
            vec![
                row(1, "a", Some("k"), 0),
                row(2, "a", Some("k"), 1),
                row(3, "a", Some("k"), 2),
            ]
        };
        assert_eq!(taken(rows(), 10), [1, 2, 3]);
        assert_eq!(taken(rows(), 2), [1, 2]);
    }

    #[test]
    fn what_stays_behind_holds_up_what_comes_after_it_and_nothing_else() {
        let rows = vec![
            row(2, "a", Some("k"), 1),
            row(3, "a", Some("k"), 2),
            row(4, "b", Some("k"), 0),
            row(5, "a", None, 0),
        ];
        assert_eq!(taken(rows, 10), [4, 5]);
    }

    #[test]
    fn a_row_that_knows_no_destination_yet_goes_before_all_of_its_key() {
        let rows = vec![row(1, "", Some("k"), 0), row(2, "a", Some("k"), 1)];
        assert_eq!(taken(rows, 10), [1, 2]);
    }
}
