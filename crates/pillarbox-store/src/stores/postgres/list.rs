//! Lists rows for operators, without reading the whole of a large table where an index serves.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::sql::Statement;
use super::unreadable::{ReadError, read_in_order};
use super::{Inner, Transaction, decode, store_error};
use crate::operate::{Filter, Record};
use crate::state::Status;
use crate::store::StoreError;

/// Up to this many pending rows are looked up by their partial indexes. With more of them, the newest rows are likely to be
/// pending, and are read one after another.
const FEW: i64 = 10_000;
/// Up to this many rows in processing are looked up by their leases. Workers hold fewer.
const MOST_HELD: i64 = 1_000_000;

pub(super) async fn list(
    inner: Arc<Inner>,
    tenant: Option<Uuid>,
    filter: Filter,
) -> Result<Vec<Record>, StoreError> {
    let mut transaction = inner.begin_for(tenant).await?;
    let named = named(&inner, &mut transaction, tenant, &filter).await?;
    let order = match filter.status {
        // A tenant's rows have an index by `seq`.
        _ if named.is_some() || tenant.is_some() => "seq desc",
        // Without a partial index, the primary key returns the newest rows first, because ids grow with time.
        None | Some(Status::Delivered | Status::Pending) => "id desc",
        Some(Status::Processing | Status::Dead | Status::Unknown(_)) => "seq desc",
    };
    let which = if named.is_some() {
        "id = any($6)"
    } else {
        "$6::uuid[] is null"
    };
    let which = format!(
        "where {which} and {} and ($1::text[] is null or namespace = any($1)) \
         and ($2::text is null or topic = $2) and ($3::bigint is null or seq < $3) \
         and ($4::text is null or destination = $4) and ($7::uuid is null or tenant_id = $7) order by {order} limit $5",
        filter.status.as_ref().map_or("true", is_status),
    );
    let limit = if filter.limit == 0 { 50 } else { filter.limit };
    let query = |columns: &str| {
        sqlx::query(AssertSqlSafe(format!("{columns} {which}")))
            .bind(filter.scope.names())
            .bind(filter.topic.clone())
            .bind(filter.before)
            .bind(filter.destination.clone())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(named.clone())
            .bind(tenant)
            .persistent(false)
    };
    let columns = record_sql(&inner, "null::jsonb");
    let mut records = match records(query(columns.text()), &mut transaction).await {
        Err(ReadError::Unreadable(_)) => {
            transaction.rollback().await.map_err(store_error)?;
            let mut transaction = inner.begin_for(tenant).await?;
            let ids = format!("select id from \"{}\".outbox_events", inner.sql.schema);
            let rows = query(&ids)
                .fetch_all(&mut *transaction)
                .await
                .map_err(store_error)?;
            let ids: Result<Vec<Uuid>, _> = rows.iter().map(|row| row.try_get(0)).collect();
            // Its connection is free before the next is asked for.
            transaction.commit().await.map_err(store_error)?;
            one_by_one(&inner, tenant, &columns, ids.map_err(store_error)?).await?
        }
        read => {
            let read = read?;
            transaction.commit().await.map_err(store_error)?;
            read
        }
    };
    records.sort_by_key(|record| std::cmp::Reverse(record.seq));
    Ok(records)
}

/// As a literal. A partial index does not serve a bound value.
fn is_status(status: &Status) -> &'static str {
    match status {
        Status::Pending => "status = 'pending'",
        Status::Processing => "status = 'processing'",
        Status::Delivered => "status = 'delivered'",
        Status::Dead => "open = 2",
        Status::Unknown(_) => "open = 3",
    }
}

/// The ids to search, if there are few: a family, the rows in processing, or the pending rows.
async fn named(
    inner: &Inner,
    transaction: &mut Transaction,
    tenant: Option<Uuid>,
    filter: &Filter,
) -> Result<Option<Vec<Uuid>>, StoreError> {
    if let Some(event) = filter.event {
        let query = sqlx::query_scalar(inner.sql.family.safe()).bind(event);
        let family = query.persistent(false).fetch_all(&mut **transaction).await;
        return family.map(Some).map_err(store_error);
    }
    if filter.status == Some(Status::Processing) {
        let statement = match tenant {
            Some(_) => &inner.sql.processing_of_tenant,
            None => &inner.sql.processing,
        };
        let query = sqlx::query_scalar(statement.safe())
            .bind(filter.scope.names())
            .bind(MOST_HELD)
            .bind(tenant);
        let held = query.persistent(false).fetch_all(&mut **transaction).await;
        return held.map(Some).map_err(store_error);
    }
    if filter.status != Some(Status::Pending) {
        return Ok(None);
    }
    let statement = match tenant {
        Some(_) => &inner.sql.pending_of_tenant,
        None => &inner.sql.pending,
    };
    let query = sqlx::query_scalar(statement.safe())
        .bind(filter.scope.names())
        .bind(FEW + 1)
        .bind(tenant);
    let pending: Vec<Uuid> = query
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let is_few = i64::try_from(pending.len()).is_ok_and(|count| count <= FEW);
    Ok(Some(pending).filter(|_| is_few))
}

type RecordQuery = Query<'static, sqlx::Postgres, PgArguments>;

async fn records(query: RecordQuery, transaction: &mut Transaction) -> Result<Vec<Record>, ReadError> {
    let rows = query.fetch_all(&mut **transaction).await?;
    Ok(rows.iter().map(record).collect::<Result<_, _>>()?)
}

/// Reads these rows. One that cannot be read is shown without its headers.
async fn one_by_one(
    inner: &Inner,
    tenant: Option<Uuid>,
    columns: &Statement,
    ids: Vec<Uuid>,
) -> Result<Vec<Record>, StoreError> {
    let statement = columns.in_order(&inner.sql.schema);
    let sorted = read_in_order(inner, tenant, &statement, ids, record, Duration::MAX).await?;
    let rest = sorted.unreadable.into_iter().map(|(id, _)| id).collect();
    let statement = statement.without_headers();
    let bare = read_in_order(inner, tenant, &statement, rest, record, Duration::MAX).await?;
    Ok(sorted.read.into_iter().chain(bare.read).collect())
}

pub(super) async fn show(
    inner: Arc<Inner>,
    tenant: Option<Uuid>,
    id: Uuid,
) -> Result<Option<Record>, StoreError> {
    let mut transaction = inner.begin_for(tenant).await?;
    let text = format!(
        "{} where id = $1 and ($2::uuid is null or tenant_id = $2)",
        record_sql(&inner, "payload").text()
    );
    let query = sqlx::query(AssertSqlSafe(text))
        .bind(id)
        .bind(tenant)
        .persistent(false);
    let read = records(query, &mut transaction).await;
    transaction.rollback().await.map_err(store_error)?;
    let mut records = match read {
        Err(ReadError::Unreadable(_)) => {
            one_by_one(&inner, tenant, &record_sql(&inner, "null::jsonb"), vec![id]).await?
        }
        read => read?,
    };
    Ok(records.pop())
}

fn record_sql(inner: &Inner, payload: &str) -> Statement {
    inner.sql.record.with(&[("/*payload*/", payload)])
}

fn record(row: &PgRow) -> Result<Record, sqlx::Error> {
    let (id, seq, event) = decode::envelope(&mut decode::Cells::of(row))?;
    let time = |column| decode::shown(row, column);
    Ok(Record {
        id,
        seq,
        event,
        destination: row.try_get("destination")?,
        status: row.try_get("status")?,
        unordered: row.try_get("unordered")?,
        attempts: row.try_get("attempts")?,
        max_attempts: row.try_get("max_attempts")?,
        next_attempt_at: time("next_attempt_at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        locked_by: row.try_get("locked_by")?,
        locked_until: time("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: time("created_at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        updated_at: time("updated_at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        delivered_at: time("delivered_at")?,
        payload: decode::shown_json(row, "payload")?,
        body_bytes: row.try_get("body_bytes")?,
    })
}
