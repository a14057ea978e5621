//! Deletes what was kept long enough, a bounded number of rows in a short transaction.
//!
//! There is no lease: only one worker can write at a time.
//!
//! **If we die here** SQLite rolls back, and the next pass finds the rows again.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqliteConnection, SqlitePool};

use super::{decode, earlier, row_limit, scope_json};
use crate::archive;
use crate::retention::{Keep, Place, PruneRequest, Pruned, What};
use crate::state::Status;
use crate::store::{Scope, StoreError};
use pillarbox::failpoint;
use pillarbox::internal::sqlite::timestamp;

/// After how many namespaces a call stops.
const NAMESPACES: usize = 100;

/// The rows of an archive are in one text each. Deleted first, archived then, committed at last.
pub(super) async fn prune(
    writer: SqlitePool,
    request: PruneRequest,
) -> Result<Result<Pruned, StoreError>, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let mut gone = Vec::new();
    let pruned = match request.what {
        What::Delivered => delivered(&mut tx, &request, &mut gone).await?,
        What::Dead => dead(&mut tx, &request, &mut gone).await?,
        What::Sagas => sagas(&mut tx, &request).await?,
        What::Marks => marks(&mut tx, &request).await?,
    };
    if let Some(archive) = request.archive.as_ref().filter(|_| !gone.is_empty())
        && let Err(error) = archive.write(gone).await
    {
        tx.rollback().await?;
        return Ok(Err(error));
    }
    failpoint::hit("in_prune");
    if request.dry_run {
        tx.rollback().await?;
    } else {
        tx.commit().await?;
    }
    Ok(Ok(pruned))
}

/// One namespace after the other, until a full batch was read.
async fn delivered(
    tx: &mut SqliteConnection,
    request: &PruneRequest,
    gone: &mut Vec<String>,
) -> Result<Pruned, sqlx::Error> {
    let mut pruned = Pruned::default();
    let (names, more) = namespaces(tx, request).await?;
    for name in &names {
        let Some(age) = request.retention.of(name).delivered() else {
            continue;
        };
        let place = request.after.as_ref().filter(|place| place.name == *name);
        let at = place.and_then(|place| place.at).map(timestamp);
        let rows = sqlx::query(include_str!("sql/seen_delivered.sql"))
            .bind(name)
            .bind(earlier(age))
            .bind(at.unwrap_or_default())
            .bind(place.map_or(0, |place| place.number))
            .bind(row_limit(request.batch))
            .fetch_all(&mut *tx)
            .await?;
        let (rows, is_full) = fitting(request, rows)?;
        let events: Vec<&SqliteRow> = rows.iter().collect();
        pruned.add(&delete(tx, request, &events, gone).await?);
        // After a full batch the next call goes on. With an archive a call has one batch, so that its rows fit.
        if let Some(last) = rows.last().filter(|_| is_full || request.archive.is_some()) {
            pruned.after = Some(Place {
                name: name.clone(),
                at: decode::moment(last, "at")?,
                number: last.try_get("number")?,
            });
            return Ok(pruned);
        }
    }
    pruned.after = names.last().filter(|_| more).map(|name| Place {
        name: name.clone(),
        ..Place::default()
    });
    Ok(pruned)
}

/// The next namespaces, and whether there may be more. The first is that in which the pass goes on.
async fn namespaces(
    tx: &mut SqliteConnection,
    request: &PruneRequest,
) -> Result<(Vec<String>, bool), sqlx::Error> {
    let after = request.after.as_ref();
    let begun = after
        .filter(|place| place.at.is_some())
        .map(|place| place.name.clone());
    let last = after.map(|place| place.name.clone()).unwrap_or_default();
    let mut names: Vec<String> = match &request.scope {
        Scope::Namespaces(all) => {
            let rest = all.iter().filter(|name| **name > last);
            rest.take(NAMESPACES).cloned().collect()
        }
        Scope::All => {
            let query = sqlx::query_scalar(include_str!("sql/delivered_namespaces.sql"));
            query.bind(last).bind(row_limit(NAMESPACES)).fetch_all(tx).await?
        }
    };
    let more = names.len() == NAMESPACES;
    names.splice(..0, begun);
    Ok((names, more))
}

async fn dead(
    tx: &mut SqliteConnection,
    request: &PruneRequest,
    gone: &mut Vec<String>,
) -> Result<Pruned, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/seen_dead.sql"))
        .bind(request.after.as_ref().map_or(i64::MIN, |place| place.number))
        .bind(scope_json(&request.scope))
        .bind(row_limit(request.batch))
        .fetch_all(&mut *tx)
        .await?;
    let (rows, is_full) = fitting(request, rows)?;
    let mut ours = Vec::new();
    for row in &rows {
        if row.try_get("is_ours")? {
            ours.push(row);
        }
    }
    let mut pruned = delete(tx, request, &ours, gone).await?;
    if let Some(last) = rows.last().filter(|_| is_full) {
        pruned.after = Some(Place {
            number: last.try_get("number")?,
            ..Place::default()
        });
    }
    Ok(pruned)
}

/// The rows of a batch, and whether there may be more. If they are archived, only as many as fit into the memory of a batch.
fn fitting(request: &PruneRequest, mut rows: Vec<SqliteRow>) -> Result<(Vec<SqliteRow>, bool), sqlx::Error> {
    let mut is_full = rows.len() >= request.batch;
    if request.archive.is_some() {
        let sizes: Vec<i64> = rows
            .iter()
            .map(|row| row.try_get("size"))
            .collect::<Result<_, _>>()?;
        let fitting = archive::fitting(&sizes);
        is_full |= fitting < rows.len();
        rows.truncate(fitting);
    }
    Ok((rows, is_full))
}

/// Deletes the events of these rows that are over. Adds what is to be archived.
async fn delete(
    tx: &mut SqliteConnection,
    request: &PruneRequest,
    rows: &[&SqliteRow],
    archived: &mut Vec<String>,
) -> Result<Pruned, sqlx::Error> {
    let retention = &request.retention;
    let mut pruned = Pruned::default();
    if rows.is_empty() {
        return Ok(pruned);
    }
    let mut events: Vec<String> = Vec::new();
    for row in rows {
        events.extend(decode::text(row, "event")?);
    }
    events.sort();
    events.dedup();
    let own = retention
        .namespaces
        .iter()
        .map(|(name, keep)| (name.clone(), ages(*keep)));
    let sql = match &request.archive {
        Some(_) => {
            include_str!("sql/prune.sql").replace("/*archived*/null", include_str!("sql/archived.sql"))
        }
        None => include_str!("sql/prune.sql").to_owned(),
    };
    let gone = sqlx::query(AssertSqlSafe(sql))
        .bind(json!(events).to_string())
        .bind(Value::Object(own.collect()).to_string())
        .bind(ages(retention.keep).to_string())
        .fetch_all(tx)
        .await?;
    if request.dry_run {
        let mut over = HashSet::new();
        for row in &gone {
            over.insert(decode::text(row, "event")?);
        }
        let mut count = 0;
        for row in rows {
            count += u64::from(over.contains(&decode::text(row, "event")?));
        }
        match request.what {
            What::Delivered => pruned.delivered = count,
            What::Dead | What::Sagas | What::Marks => pruned.dead = count,
        }
        return Ok(pruned);
    }
    for row in &gone {
        archived.extend(decode::text(row, "row")?);
        if decode::text(row, "status")?.as_deref() == Some(Status::Delivered.as_str()) {
            pruned.delivered += 1;
        } else {
            pruned.dead += 1;
        }
    }
    Ok(pruned)
}

/// How long delivered and dead rows are kept, for `prune.sql`.
fn ages(keep: Keep) -> Value {
    json!([keep.delivered().map(earlier), keep.dead.map(earlier)])
}

async fn sagas(tx: &mut SqliteConnection, request: &PruneRequest) -> Result<Pruned, sqlx::Error> {
    let Some(age) = request.retention.sagas else {
        return Ok(Pruned::default());
    };
    let gone = sqlx::query(include_str!("sql/prune_sagas.sql"))
        .bind(earlier(age))
        .bind(scope_json(&request.scope))
        .bind(row_limit(request.batch))
        .fetch_all(&mut *tx)
        .await?;
    let mut seqs: Vec<i64> = Vec::new();
    for row in &gone {
        seqs.push(row.try_get("seq")?);
    }
    // Where foreign keys are off, the log is not deleted with its saga.
    sqlx::query("delete from pillarbox_saga_log where saga in (select value from json_each(?1))")
        .bind(json!(seqs).to_string())
        .execute(tx)
        .await?;
    Ok(Pruned {
        sagas: gone.len() as u64,
        after: (gone.len() >= request.batch).then(Place::default),
        ..Pruned::default()
    })
}

async fn marks(tx: &mut SqliteConnection, request: &PruneRequest) -> Result<Pruned, sqlx::Error> {
    let Some(age): Option<Duration> = request.retention.inbox else {
        return Ok(Pruned::default());
    };
    let done = sqlx::query(include_str!("sql/prune_marks.sql"))
        .bind(earlier(age))
        .bind(row_limit(request.batch))
        .execute(tx)
        .await?;
    let marks = done.rows_affected();
    Ok(Pruned {
        marks,
        after: (marks >= request.batch as u64).then(Place::default),
        ..Pruned::default()
    })
}
