//! Writes and lists lines of the audit.
//!
//! **If we die here** neither the change nor its line is there.

use serde_json::{Value, json};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};
use time::OffsetDateTime;

use super::tenant::Confined;
use super::{decode, row_limit};
use crate::audit::{AuditFilter, AuditRecord, Line};
use pillarbox::internal::sqlite::timestamp;

/// Writes the line in the transaction of its change.
pub(super) async fn write(connection: &mut SqliteConnection, line: Line) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("sql/audit.sql"))
        .bind(line.subject)
        .bind(line.kind.as_str())
        .bind(line.tenant.map(|tenant| tenant.to_string()))
        .bind(line.action.as_str())
        .bind(json!(line.objects).to_string())
        .bind(i64::try_from(line.count).unwrap_or(i64::MAX))
        .bind(line.before.map(|value| value.to_string()))
        .bind(line.after.map(|value| value.to_string()))
        .bind(line.reason)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn list(
    readers: SqlitePool,
    confined: Confined,
    filter: AuditFilter,
) -> Result<Vec<AuditRecord>, sqlx::Error> {
    let limit = row_limit(filter.page());
    let rows = sqlx::query(confined.audit_lines())
        .bind(filter.subject)
        .bind(filter.action)
        .bind(filter.object)
        .bind(filter.since.map(timestamp))
        .bind(filter.until.map(timestamp))
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(limit)
        .fetch_all(&readers)
        .await?;
    rows.iter().map(record).collect()
}

fn record(row: &SqliteRow) -> Result<AuditRecord, sqlx::Error> {
    let text = |column| decode::text(row, column).map(Option::unwrap_or_default);
    let value = |column| -> Result<Option<Value>, sqlx::Error> {
        Ok(decode::text(row, column)?.and_then(|text| serde_json::from_str(&text).ok()))
    };
    Ok(AuditRecord {
        seq: row.try_get("seq")?,
        at: decode::moment(row, "at")?.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        subject: text("subject")?,
        kind: text("kind")?,
        role: None,
        tenant_id: decode::uuid(row, "tenant_id")?,
        action: text("action")?,
        objects: serde_json::from_str(&text("objects")?).unwrap_or_default(),
        count: row.try_get::<i64, _>("count")?.unsigned_abs(),
        before: value("before")?,
        after: value("after")?,
        reason: decode::text(row, "reason")?,
    })
}
