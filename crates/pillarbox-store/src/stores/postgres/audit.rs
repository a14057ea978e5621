//! Writes and lists lines of the audit.
//!
//! **If we die here** neither the change nor its line is there.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Inner, Transaction, store_error};
use crate::audit::{AuditFilter, AuditRecord, Line};
use crate::store::StoreError;

/// Writes the line in the transaction of its change.
pub(super) async fn write(
    inner: &Inner,
    transaction: &mut Transaction,
    line: Line,
) -> Result<(), StoreError> {
    let query = sqlx::query(inner.sql.audit.safe())
        .bind(line.subject)
        .bind(line.kind.as_str())
        .bind(line.tenant)
        .bind(line.action.as_str())
        .bind(line.objects)
        .bind(i64::try_from(line.count).unwrap_or(i64::MAX))
        .bind(line.before)
        .bind(line.after)
        .bind(line.reason)
        .persistent(false);
    query.execute(&mut **transaction).await.map_err(store_error)?;
    Ok(())
}

pub(super) async fn list(
    inner: Arc<Inner>,
    tenant: Option<Uuid>,
    filter: AuditFilter,
) -> Result<Vec<AuditRecord>, StoreError> {
    let limit = i64::try_from(filter.page()).unwrap_or(i64::MAX);
    let query = sqlx::query(inner.sql.audit_lines.safe())
        .bind(tenant)
        .bind(filter.subject)
        .bind(filter.action)
        .bind(filter.object)
        .bind(filter.since)
        .bind(filter.until)
        .bind(filter.before)
        .bind(limit)
        .persistent(false);
    let mut transaction = inner.begin_for(tenant).await?;
    let rows = query.fetch_all(&mut *transaction).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    rows.iter()
        .map(record)
        .collect::<Result<_, _>>()
        .map_err(store_error)
}

fn record(row: &PgRow) -> Result<AuditRecord, sqlx::Error> {
    Ok(AuditRecord {
        seq: row.try_get("seq")?,
        at: row.try_get("at")?,
        subject: row.try_get("subject")?,
        kind: row.try_get("kind")?,
        role: row.try_get("role")?,
        tenant_id: row.try_get("tenant_id")?,
        action: row.try_get("action")?,
        objects: row.try_get("objects")?,
        count: row.try_get::<i64, _>("count")?.unsigned_abs(),
        before: row.try_get("before")?,
        after: row.try_get("after")?,
        reason: row.try_get("reason")?,
    })
}
