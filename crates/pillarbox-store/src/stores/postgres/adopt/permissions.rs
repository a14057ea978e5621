//! Checks that the database role may do what an adopted table needs.
//!
//! Checked before the first row is imported. Without a permission to write back, the same row would be sent again and again.

use sqlx::PgConnection;

use super::inspect::quoted;
use super::layout::Layout;
use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// The missing grants, as statements. A grant on some columns may be enough, so it counts as a grant here.
/// $1 kinds   $2 names   $3 privileges
const MISSING: &str = "select format('grant %s on %s%s to %I;',
    string_agg(privilege, ', ' order by number), case kind when 'sequence' then 'sequence ' else '' end, name, current_user)
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as needed (kind, name, privilege, number)
where not case
    when kind = 'sequence' then has_sequence_privilege(name, privilege)
    when privilege in ('select', 'insert', 'update') then has_any_column_privilege(name, privilege)
    else has_table_privilege(name, privilege) end
group by kind, name order by min(number)";

/// Fails with the missing grants, so that no row is imported that could not be finished.
pub(super) async fn check(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<(), StoreError> {
    let schema = quoted(&inner.sql.schema);
    let (events, sequence) = (format!("{schema}.outbox_events"), format!("{schema}.outbox_seq"));
    let mut needed = vec![
        ("table", adoption.quoted.as_str(), "select"),
        ("table", &adoption.quoted, "update"),
    ];
    if adoption.deletes {
        needed.push(("table", &adoption.quoted, "delete"));
    }
    let all = ["select", "insert", "update", "delete"];
    needed.extend(all.map(|privilege| ("table", events.as_str(), privilege)));
    needed.push(("sequence", &sequence, "usage"));
    let column = |part: fn(&(&'static str, &str, &'static str)) -> String| -> Vec<String> {
        needed.iter().map(part).collect()
    };
    let missing: Vec<String> = sqlx::query_scalar(MISSING)
        .bind(column(|(kind, _, _)| (*kind).to_owned()))
        .bind(column(|(_, name, _)| (*name).to_owned()))
        .bind(column(|(_, _, privilege)| (*privilege).to_owned()))
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(StoreError::Denied(format!(
        "adopted table `{}`: this role lacks permissions; let the owners run: {}",
        adoption.name(),
        missing.join(" ").trim_end_matches(';')
    )))
}

/// Adds the missing grant if the role may not use the table's schema. PostgreSQL then hides whether the table exists.
pub(super) async fn explain(connection: &mut PgConnection, layout: &Layout, error: StoreError) -> StoreError {
    let (StoreError::Denied(cause), (Some(schema), _)) = (&error, layout.names()) else {
        return error;
    };
    let grant =
        sqlx::query_scalar::<_, String>("select format('grant usage on schema %I to %I', $1, current_user)")
            .bind(schema)
            .persistent(false)
            .fetch_one(connection)
            .await;
    match grant {
        Ok(grant) => StoreError::Denied(format!("{cause}; let its owner run: {grant}")),
        Err(_) => error,
    }
}
