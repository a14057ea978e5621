//! Deletes what was kept long enough, a bounded number of rows in a short transaction.
//!
//! Delivered rows are read namespace by namespace, the oldest first, from the index of their times. Dead rows are read in the
//! order of insertion. What was deleted leaves entries in the indexes until it is vacuumed, and a held snapshot keeps vacuum
//! from it. So only the first batch of a pass begins at the bottom. The others go on where the last one ended.
//!
//! **If we die here** the transaction rolls back. Another worker prunes when the lease has expired.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::postgres::types::PgInterval;
use sqlx::{AssertSqlSafe, Row};
use time::OffsetDateTime;
use time::macros::datetime;

use super::claim::ClaimQuery;
use super::sql::Statement;
use super::{Inner, Transaction, interval, store_error};
use crate::archive;
use crate::retention::{Place, PruneRequest, Pruned, Retention, What};
use crate::store::{Scope, StoreError};
use pillarbox::failpoint;

/// After how many namespaces a call stops.
const NAMESPACES: usize = 100;
/// Before every time that the column can have.
const BOTTOM: OffsetDateTime = datetime!(0001-01-01 00:00 UTC);

/// How long rows are kept, as arrays for the statements.
struct Rules {
    names: Vec<String>,
    delivered: Vec<Option<PgInterval>>,
    dead: Vec<Option<PgInterval>>,
    other_delivered: Option<PgInterval>,
    other_dead: Option<PgInterval>,
}

impl Rules {
    fn of(retention: &Retention) -> Self {
        let own = || retention.namespaces.values();
        Self {
            names: retention.namespaces.keys().cloned().collect(),
            delivered: own().map(|keep| keep.delivered().map(interval)).collect(),
            dead: own().map(|keep| keep.dead.map(interval)).collect(),
            other_delivered: retention.keep.delivered().map(interval),
            other_dead: retention.keep.dead.map(interval),
        }
    }
}

pub(super) async fn prune(inner: Arc<Inner>, request: PruneRequest) -> Result<Pruned, StoreError> {
    if !request.lease.is_zero() && !lease(&inner, &request).await? {
        return Ok(Pruned::default());
    }
    match request.what {
        What::Delivered => prune_delivered(&inner, &request).await,
        What::Dead => prune_dead(&inner, &request).await,
        What::Sagas => prune_sagas(&inner, &request).await,
        What::Marks => prune_marks(&inner, &request).await,
    }
}

/// Gets or renews the lease of the scope. False if another worker prunes it.
async fn lease(inner: &Inner, request: &PruneRequest) -> Result<bool, StoreError> {
    let mut transaction = inner.begin().await?;
    let leased = sqlx::query(inner.sql.lease_pruner.safe())
        .bind(request.scope.names())
        .bind(request.worker)
        .bind(interval(request.lease))
        .persistent(false)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(leased.is_some())
}

/// One namespace after the other, until a full batch was read.
async fn prune_delivered(inner: &Inner, request: &PruneRequest) -> Result<Pruned, StoreError> {
    let rules = Rules::of(&request.retention);
    let mut pruned = Pruned::default();
    let (namespaces, more) = namespaces(inner, request).await?;
    for name in &namespaces {
        let Some(age) = request.retention.of(name).delivered() else {
            continue;
        };
        let place = request.after.clone().filter(|place| place.name == *name);
        let chunk = Chunk::read(inner, request, &rules, name, age, place).await?;
        pruned.delivered += chunk.delivered;
        pruned.dead += chunk.dead;
        if chunk.is_full {
            pruned.after = Some(chunk.place);
            return Ok(pruned);
        }
    }
    pruned.after = namespaces.last().filter(|_| more).map(|name| Place {
        name: name.clone(),
        ..Place::default()
    });
    Ok(pruned)
}

/// The next namespaces, and whether there may be more. The first is that in which the pass goes on.
async fn namespaces(inner: &Inner, request: &PruneRequest) -> Result<(Vec<String>, bool), StoreError> {
    let after = request.after.as_ref();
    let begun = after
        .filter(|place| place.at.is_some())
        .map(|place| place.name.clone());
    let mut names: Vec<String> = match &request.scope {
        Scope::Namespaces(all) => {
            let rest = all
                .iter()
                .rev()
                .filter(|name| after.is_none_or(|place| **name < place.name));
            rest.take(NAMESPACES).cloned().collect()
        }
        Scope::All => {
            let statement = inner
                .sql
                .delivered_namespaces(after.map(|place| place.name.as_str()), NAMESPACES);
            let mut transaction = inner.begin().await?;
            let rows = sqlx::raw_sql(statement.safe()).fetch_all(&mut *transaction).await;
            let rows = rows.map_err(store_error)?;
            transaction.commit().await.map_err(store_error)?;
            rows.iter()
                .map(|row| row.try_get(0))
                .collect::<Result<_, _>>()
                .map_err(store_error)?
        }
    };
    let more = names.len() == NAMESPACES;
    names.splice(..0, begun);
    Ok((names, more))
}

/// A chunk of one namespace.
struct Chunk {
    delivered: u64,
    dead: u64,
    /// May there be more?
    is_full: bool,
    place: Place,
}

impl Chunk {
    async fn read(
        inner: &Inner,
        request: &PruneRequest,
        rules: &Rules,
        namespace: &str,
        age: Duration,
        place: Option<Place>,
    ) -> Result<Self, StoreError> {
        let begun = place.and_then(|place| Some((place.at?, place.number)));
        let (at, passed) = begun.unwrap_or((BOTTOM, 0));
        let mut transaction = inner.begin().await?;
        let sizes = sqlx::query(inner.sql.prunable_delivered.safe())
            .bind(namespace.to_owned())
            .bind(interval(age))
            .bind(at)
            .bind(passed)
            .bind(i64::try_from(request.batch).unwrap_or(i64::MAX));
        let batch = fitting(&mut transaction, request, sizes).await?;
        let row = sqlx::query(statement(&inner.sql.prune_delivered, request))
            .bind(rules.names.clone())
            .bind(rules.delivered.clone())
            .bind(rules.dead.clone())
            .bind(rules.other_delivered)
            .bind(rules.other_dead)
            .bind(namespace.to_owned())
            .bind(interval(age))
            .bind(at)
            .bind(passed)
            .bind(batch)
            .bind(request.dry_run)
            .persistent(false)
            .fetch_one(&mut *transaction)
            .await
            .map_err(store_error)?;
        end(transaction, request, &row).await?;
        let count = |column| row.try_get::<i64, _>(column).map_err(store_error);
        let last: Option<OffsetDateTime> = row.try_get("at").map_err(store_error)?;
        let left = count("left")?;
        // Those that were passed over stay too.
        let (at, left) = match last {
            None => (at, passed),
            Some(last) if last == at => (at, passed + left),
            Some(last) => (last, left),
        };
        let (delivered, dead) = if request.dry_run {
            (count("over")?, 0)
        } else {
            (count("delivered")?, count("dead")?)
        };
        Ok(Self {
            delivered: delivered.unsigned_abs(),
            dead: dead.unsigned_abs(),
            is_full: count("read")? >= batch,
            place: Place {
                name: namespace.to_owned(),
                at: Some(at),
                number: left,
            },
        })
    }
}

/// A dry run only counts. Rows that are archived are returned.
fn statement(prune: &Statement, request: &PruneRequest) -> AssertSqlSafe<Arc<str>> {
    match &request.archive {
        _ if request.dry_run => prune.counting().safe(),
        Some(_) => prune.archiving().safe(),
        None => prune.safe(),
    }
}

/// Archives what the statement has deleted, and commits it only then.
async fn end(transaction: Transaction, request: &PruneRequest, row: &PgRow) -> Result<(), StoreError> {
    let rows: Option<Vec<String>> = row.try_get("rows").map_err(store_error)?;
    if let (Some(archive), Some(rows)) = (&request.archive, rows)
        && let Err(error) = archive.write(rows).await
    {
        // Now and not at some time: a row that stays locked is passed over.
        transaction.rollback().await.map_err(store_error)?;
        return Err(error);
    }
    failpoint::hit("in_prune");
    transaction.commit().await.map_err(store_error)
}

/// How many of these rows fit into a batch, if it is archived. Their sizes are read from the headers of their values.
async fn fitting(
    transaction: &mut Transaction,
    request: &PruneRequest,
    sizes: ClaimQuery,
) -> Result<i64, StoreError> {
    if request.archive.is_none() {
        return Ok(i64::try_from(request.batch).unwrap_or(i64::MAX));
    }
    let rows = sizes.persistent(false).fetch_all(&mut **transaction).await;
    let rows = rows.map_err(store_error)?;
    let sizes: Vec<i64> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()
        .map_err(store_error)?;
    Ok(i64::try_from(archive::fitting(&sizes)).unwrap_or(1))
}

async fn prune_dead(inner: &Inner, request: &PruneRequest) -> Result<Pruned, StoreError> {
    let rules = Rules::of(&request.retention);
    let after = request.after.as_ref().map_or(i64::MIN, |place| place.number);
    let mut transaction = inner.begin().await?;
    let sizes = sqlx::query(inner.sql.prunable_dead.safe())
        .bind(after)
        .bind(i64::try_from(request.batch).unwrap_or(i64::MAX));
    let batch = fitting(&mut transaction, request, sizes).await?;
    let row = sqlx::query(statement(&inner.sql.prune_dead, request))
        .bind(rules.names)
        .bind(rules.delivered)
        .bind(rules.dead)
        .bind(rules.other_delivered)
        .bind(rules.other_dead)
        .bind(request.scope.names())
        .bind(after)
        .bind(batch)
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    end(transaction, request, &row).await?;
    let count = |column| row.try_get::<i64, _>(column).map_err(store_error);
    let last: Option<i64> = row.try_get("seq").map_err(store_error)?;
    let is_full = count("read")? >= batch;
    let (delivered, dead) = if request.dry_run {
        (0, count("over")?)
    } else {
        (count("delivered")?, count("dead")?)
    };
    Ok(Pruned {
        delivered: delivered.unsigned_abs(),
        dead: dead.unsigned_abs(),
        after: last.filter(|_| is_full).map(|number| Place {
            number,
            ..Place::default()
        }),
        ..Pruned::default()
    })
}

async fn prune_sagas(inner: &Inner, request: &PruneRequest) -> Result<Pruned, StoreError> {
    let Some(age) = request.retention.sagas else {
        return Ok(Pruned::default());
    };
    let batch = i32::try_from(request.batch).unwrap_or(i32::MAX);
    let mut transaction = inner.begin().await?;
    let sagas: i64 = sqlx::query_scalar(inner.sql.prune_sagas.safe())
        .bind(request.scope.names())
        .bind(interval(age))
        .bind(batch)
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(Pruned {
        sagas: sagas.unsigned_abs(),
        after: (sagas >= i64::from(batch)).then(Place::default),
        ..Pruned::default()
    })
}

async fn prune_marks(inner: &Inner, request: &PruneRequest) -> Result<Pruned, StoreError> {
    let Some(age) = request.retention.inbox else {
        return Ok(Pruned::default());
    };
    let before = request.after.as_ref().map(|place| place.name.clone());
    let mut transaction = inner.begin().await?;
    let (before, marks, more): (Option<String>, i64, bool) = sqlx::query_as(inner.sql.prune_marks.safe())
        .bind(before.filter(|name| !name.is_empty()))
        .bind(interval(age))
        .bind(i32::try_from(request.batch).unwrap_or(i32::MAX))
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(Pruned {
        marks: marks.unsigned_abs(),
        after: more.then(|| Place {
            name: before.unwrap_or_default(),
            ..Place::default()
        }),
        ..Pruned::default()
    })
}
