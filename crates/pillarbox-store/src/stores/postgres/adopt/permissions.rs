//! Checks that the database role may do what an adopted table needs.
//!
//! Checked before the first row is imported. Without a permission to write back, the same row would be sent again and again.

use super::inspect::relation;
use super::statements::Adoption;
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, store_error};

/// The missing grants, as statements. A grant on some columns may be enough, so it counts as a grant here.
/// $1 kinds   $2 schemas, or null for what `search_path` finds   $3 names   $4 privileges
const MISSING: &str = concat!(
    "select format('grant %s on %s%s to %I;', string_agg(privilege, ', ' order by number),
        case kind when 'table' then '' else kind || ' ' end,
        case when kind = 'schema' then quote_ident(schema) else coalesce(quote_ident(schema) || '.', '') || quote_ident(name) end,
        current_user)
    from unnest($1::text[], $2::text[], $3::text[], $4::text[])
      with ordinality as needed (kind, schema, name, privilege, number)
    cross join lateral (select ",
    relation!("schema", "name"),
    " as oid) as relation
    where not case
        when kind = 'schema' then has_schema_privilege(schema, privilege)
        when kind = 'sequence' then has_sequence_privilege(oid, privilege)
        when privilege in ('select', 'insert', 'update') then has_any_column_privilege(oid, privilege)
        else has_table_privilege(oid, privilege) end
    group by kind, schema, name order by min(number)"
);

/// Fails with the missing grants, so that no row is imported that could not be finished.
pub(super) async fn check(
    inner: &Inner,
    transaction: &mut Transaction,
    adoption: &Adoption,
) -> Result<(), StoreError> {
    let needed = needed(inner, adoption);
    let missing: Vec<String> = sqlx::query_scalar(MISSING)
        .bind(needed.iter().map(|it| it.kind).collect::<Vec<_>>())
        .bind(needed.iter().map(|it| it.schema).collect::<Vec<_>>())
        .bind(needed.iter().map(|it| it.name).collect::<Vec<_>>())
        .bind(needed.iter().map(|it| it.privilege).collect::<Vec<_>>())
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

struct Needed<'a> {
    kind: &'static str,
    schema: Option<&'a str>,
    name: &'a str,
    privilege: &'static str,
}

fn needed<'a>(inner: &'a Inner, adoption: &'a Adoption) -> Vec<Needed<'a>> {
    let (schema, table) = adoption.names();
    let outbox = Some(&*inner.sql.schema);
    let on = |kind, schema, name| {
        move |privilege| Needed {
            kind,
            schema,
            name,
            privilege,
        }
    };
    // A table without a schema is found only in those that the role may use.
    let mut needed: Vec<_> = schema
        .map(|name| on("schema", Some(name), "")("usage"))
        .into_iter()
        .collect();
    let deletes: &[_] = if adoption.deletes { &["delete"] } else { &[] };
    needed.extend(
        ["select", "update"]
            .iter()
            .chain(deletes)
            .map(|it| on("table", schema, table)(it)),
    );
    needed.extend(["select", "insert", "update", "delete"].map(on("table", outbox, "outbox_events")));
    needed.push(on("sequence", outbox, "outbox_seq")("usage"));
    needed
}
