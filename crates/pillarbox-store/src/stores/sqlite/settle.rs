//! Writes verdicts, and renews leases. Both only for rows that are still held.
//!
//! **If we die here** the row stays in processing until its lease expires. The event may be sent again.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{MAX_LEASE, column_limit, decode, later};
use crate::store::Settlement;
use crate::verdict::Verdict;
use pillarbox::text::error_text;

pub(super) async fn settle(
    writer: SqlitePool,
    worker: Uuid,
    settlements: Vec<Settlement>,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let (deleted, written): (Vec<&Settlement>, Vec<&Settlement>) = settlements
        .iter()
        .partition(|settlement| settlement.verdict == Verdict::Delete);
    let unkept: Vec<&Settlement> = written
        .iter()
        .copied()
        .filter(|settlement| settlement.is_unkept())
        .collect();
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let mut held = Vec::new();
    // The first deletes what nothing needs. The second does not find these rows, and writes the others.
    for (sql, given) in [
        (include_str!("sql/settle_unkept.sql"), unkept),
        (include_str!("sql/settle.sql"), written),
        (include_str!("sql/settle_delete.sql"), deleted),
    ] {
        if given.is_empty() {
            continue;
        }
        let given: Vec<Value> = given.into_iter().map(as_json).collect();
        let query = sqlx::query(sql)
            .bind(worker.to_string())
            .bind(Value::Array(given).to_string());
        held.extend(query.fetch_all(&mut *tx).await?);
    }
    tx.commit().await?;
    lost(settlements.iter().map(|settlement| settlement.id), &held)
}

pub(super) async fn renew(
    writer: SqlitePool,
    worker: Uuid,
    held: Vec<(Uuid, Uuid)>,
    lease: Duration,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let query = sqlx::query(include_str!("sql/renew.sql"))
        .bind(worker.to_string())
        .bind(json!(held).to_string())
        .bind(later(lease.min(MAX_LEASE)));
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    let renewed = query.fetch_all(&mut *tx).await?;
    tx.commit().await?;
    lost(held.iter().map(|(id, _)| *id), &renewed)
}

/// The rows that were not written.
fn lost(given: impl Iterator<Item = Uuid>, held: &[SqliteRow]) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut kept = BTreeSet::new();
    for row in held {
        kept.extend(decode::uuid(row, "id")?);
    }
    Ok(given.filter(|id| !kept.contains(id)).collect())
}

fn as_json(settlement: &Settlement) -> Value {
    let (verdict, wait, reason) = match &settlement.verdict {
        Verdict::Delivered => ("delivered", Duration::ZERO, None),
        Verdict::Dead { reason } => ("dead", Duration::ZERO, Some(error_text(reason))),
        Verdict::Retry { after, reason } => ("retry", *after, Some(error_text(reason))),
        Verdict::Release { after, reason } => ("release", *after, reason.as_deref().map(error_text)),
        Verdict::Delete => ("delete", Duration::ZERO, None),
        // A lease that no worker holds, and not longer than a lease can be.
        Verdict::Suspect { after, reason } => ("suspect", (*after).min(MAX_LEASE), Some(error_text(reason))),
    };
    json!({
        "id": settlement.id,
        "claim": settlement.claim,
        "verdict": verdict,
        "wait": later(wait),
        "reason": reason,
        "destination": settlement.destination,
        "max_attempts": settlement.max_attempts.map(column_limit),
        "unordered": settlement.unordered,
    })
}
