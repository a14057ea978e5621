//! Lists rows for operators, without reading the whole of a large table where an index serves.

use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{Inner, Transaction, decode, store_error};
use crate::operate::{Filter, Record};
use crate::state::Status;
use crate::store::StoreError;

/// Up to this many pending rows are looked up by their partial indexes. With more of them, the newest rows are likely to be
/// pending, and are read one after another.
const FEW: i64 = 10_000;

pub(super) async fn list(inner: Arc<Inner>, filter: Filter) -> Result<Vec<Record>, StoreError> {
    let mut transaction = inner.begin().await?;
    let named = named(&inner, &mut transaction, &filter).await?;
    let order = match filter.status {
        _ if named.is_some() => "seq desc",
        // Without a partial index, the primary key returns the newest rows first, because ids grow with time.
        None | Some(Status::Delivered | Status::Pending) => "id desc",
        Some(Status::Processing | Status::Dead | Status::Unknown(_)) => "seq desc",
    };
    let which = if named.is_some() {
        "id = any($6)"
    } else {
        "$6::uuid[] is null"
    };
    let text = format!(
        "{} where {which} and {} and ($1::text[] is null or namespace = any($1)) \
         and ($2::text is null or topic = $2) and ($3::bigint is null or seq < $3) \
         and ($4::text is null or destination = $4) order by {order} limit $5",
        record_sql(&inner, "null::jsonb"),
        filter.status.as_ref().map_or("true", is_status),
    );
    let limit = if filter.limit == 0 { 50 } else { filter.limit };
    let query = sqlx::query(AssertSqlSafe(text))
        .bind(filter.scope.names())
        .bind(filter.topic)
        .bind(filter.before)
        .bind(filter.destination)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(named)
        .persistent(false);
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    let mut records = rows
        .iter()
        .map(record)
        .collect::<Result<Vec<_>, _>>()
        .map_err(store_error)?;
    records.sort_by_key(|record| std::cmp::Reverse(record.seq));
    Ok(records)
}

/// The status is a literal. A partial index does not serve a bound value.
fn is_status(status: &Status) -> &'static str {
    match status {
        Status::Pending => "status = 'pending'",
        Status::Processing => "status = 'processing'",
        Status::Delivered => "status = 'delivered'",
        Status::Dead => "status = 'dead'",
        Status::Unknown(_) => "status not in ('pending', 'processing', 'delivered', 'dead')",
    }
}

/// The ids to search, if there are few: a family, or the pending rows.
async fn named(
    inner: &Inner,
    transaction: &mut Transaction,
    filter: &Filter,
) -> Result<Option<Vec<Uuid>>, StoreError> {
    if let Some(event) = filter.event {
        let query = sqlx::query_scalar(inner.sql.family.safe()).bind(event);
        let family = query.persistent(false).fetch_all(&mut **transaction).await;
        return family.map(Some).map_err(store_error);
    }
    if filter.status != Some(Status::Pending) {
        return Ok(None);
    }
    let query = sqlx::query_scalar(inner.sql.pending.safe())
        .bind(filter.scope.names())
        .bind(FEW + 1);
    let pending: Vec<Uuid> = query
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let is_few = i64::try_from(pending.len()).is_ok_and(|count| count <= FEW);
    Ok(Some(pending).filter(|_| is_few))
}

pub(super) async fn show(inner: Arc<Inner>, id: Uuid) -> Result<Option<Record>, StoreError> {
    let text = record_sql(&inner, "payload") + " where id = $1";
    let mut transaction = inner.begin().await?;
    let query = sqlx::query(AssertSqlSafe(text)).bind(id).persistent(false);
    let row = query
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    row.as_ref().map(record).transpose().map_err(store_error)
}

fn record_sql(inner: &Inner, payload: &str) -> String {
    inner.sql.record.text().replace("/*payload*/", payload)
}

fn record(row: &PgRow) -> Result<Record, sqlx::Error> {
    let (id, seq, event) = decode::envelope(&mut decode::Cells::of(row))?;
    Ok(Record {
        id,
        seq,
        event,
        destination: row.try_get("destination")?,
        status: row.try_get("status")?,
        unordered: row.try_get("unordered")?,
        attempts: row.try_get("attempts")?,
        max_attempts: row.try_get("max_attempts")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        locked_by: row.try_get("locked_by")?,
        locked_until: row.try_get("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        delivered_at: row.try_get("delivered_at")?,
        payload: row.try_get("payload")?,
        body_bytes: row.try_get("body_bytes")?,
    })
}
