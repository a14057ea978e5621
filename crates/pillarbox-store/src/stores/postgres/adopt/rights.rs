//! May this role do what an adopted table asks of it?
//!
//! Asked before the first row is taken over: one that cannot be told to its table would be sent again and again.

use sqlx::PgConnection;

use super::inspect::quoted;
use super::layout::Layout;
use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// What is missing, as statements that give it. A right to a few columns may be enough, so it is not judged here.
/// $1 kinds   $2 names   $3 rights
const MISSING: &str = "select format('grant %s on %s%s to %I;',
    string_agg(\"right\", ', ' order by number), case kind when 'sequence' then 'sequence ' else '' end, name, current_user)
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as wanted (kind, name, \"right\", number)
where not case
    when kind = 'sequence' then has_sequence_privilege(name, \"right\")
    when \"right\" in ('select', 'insert', 'update') then has_any_column_privilege(name, \"right\")
    else has_table_privilege(name, \"right\") end
group by kind, name order by min(number)";

/// Refuses to begin with a table that could not be worked on to the end.
pub(super) async fn check(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<(), StoreError> {
    let schema = quoted(&inner.sql.schema);
    let (events, sequence) = (format!("{schema}.outbox_events"), format!("{schema}.outbox_seq"));
    let mut wanted = vec![
        ("table", adoption.table.as_str(), "select"),
        ("table", &adoption.table, "update"),
    ];
    if adoption.deletes {
        wanted.push(("table", &adoption.table, "delete"));
    }
    wanted.extend(["select", "insert", "update", "delete"].map(|right| ("table", events.as_str(), right)));
    wanted.push(("sequence", &sequence, "usage"));
    let column = |part: fn(&(&'static str, &str, &'static str)) -> String| -> Vec<String> {
        wanted.iter().map(part).collect()
    };
    let missing: Vec<String> = sqlx::query_scalar(MISSING)
        .bind(column(|(kind, _, _)| (*kind).to_owned()))
        .bind(column(|(_, name, _)| (*name).to_owned()))
        .bind(column(|(_, _, right)| (*right).to_owned()))
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(StoreError::Denied(format!(
        "the adopted table `{}` cannot be worked on by this role; let the owners run: {}",
        adoption.source,
        missing.join(" ")
    )))
}

/// A schema that is closed hides even whether the table is there.
pub(super) async fn explain(connection: &mut PgConnection, layout: &Layout, error: StoreError) -> StoreError {
    let (StoreError::Denied(said), (Some(schema), _)) = (&error, layout.names()) else {
        return error;
    };
    let grant =
        sqlx::query_scalar::<_, String>("select format('grant usage on schema %I to %I;', $1, current_user)")
            .bind(schema)
            .persistent(false)
            .fetch_one(connection)
            .await;
    match grant {
        Ok(grant) => StoreError::Denied(format!("{said}; let its owner run: {grant}")),
        Err(_) => error,
    }
}
