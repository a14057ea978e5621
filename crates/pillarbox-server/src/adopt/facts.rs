//! Reads what the database knows about a table. Of a large table it reads only a part.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::stores::postgres::adopt::{Layout, Payload, Status, columns, quoted, quoted_table};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::propose::{Facts, Sample};
use super::roles::{self, Kind};

/// How many rows are read to find the codes in use, and how many codes are kept.
const LOOKED_AT: i64 = 10_000;
const MOST_CODES: i64 = 50;
/// How many payloads are tested for JSON, and their longest length in bytes.
const SAMPLED: i64 = 100;
const LONGEST: i64 = 65_536;
/// How many leased rows are counted.
const MOST_LEASED: i64 = 1000;

const FIND: &str = "select n.nspname::text, c.relkind::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass($1)";

const ELSEWHERE: &str = "select n.nspname::text || '.' || c.relname::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where lower(c.relname) = lower($1) and c.relkind in ('r', 'p') order by 1 limit 3";

const KEYS: &str = "select a.attname::text
from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
where i.indrelid = to_regclass($1) and i.indisunique and i.indisvalid and i.indnkeyatts = 1
  and i.indpred is null and i.indexprs is null and a.attnotnull
order by i.indisprimary desc, a.attnum";

const LABELS: &str = "select e.enumlabel::text
from pg_attribute a join pg_enum e on e.enumtypid = a.atttypid
where a.attrelid = to_regclass($1) and a.attname = $2 order by e.enumsortorder";

const CHECKS: &str = "select pg_get_constraintdef(c.oid)
from pg_constraint c join pg_attribute a on a.attrelid = c.conrelid and c.conkey = array[a.attnum]
where c.conrelid = to_regclass($1) and c.contype = 'c' and a.attname = $2";

const CHANGES: &str = "select coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_del), 0)::bigint
from pg_stat_all_tables
where relid = to_regclass($1) or relid in (select relid from pg_partition_tree(to_regclass($1)))";

/// Why there are no facts.
#[derive(Debug)]
pub(crate) enum FactsError {
    /// It does not exist, or is not a table.
    NoTable(String),
    /// The database failed.
    Database(StoreError),
}

impl From<sqlx::Error> for FactsError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(match error {
            sqlx::Error::Database(answer) => StoreError::Other(answer.to_string()),
            other => StoreError::Unavailable(other.to_string()),
        })
    }
}

/// Reads the facts about a table.
pub(crate) async fn read(connection: &mut PgConnection, table: &str) -> Result<Facts, FactsError> {
    let table = find(connection, table).await?;
    let at = quoted_table(&table);
    let layout = Layout::new(&table, "", Payload::Columns(Vec::new()));
    let columns = columns(connection, &layout).await.map_err(FactsError::Database)?;
    let keys = texts(connection, KEYS, &[&at]).await?;
    let mut codes = BTreeMap::new();
    if let Some(column) = roles::status(&columns) {
        let name = column.name.clone();
        codes.insert(name.clone(), codes_of(connection, &at, &name).await?);
    }
    let sample = match roles::payload(&columns) {
        Some((column, _)) if roles::kind(column) == Kind::Text => {
            Some(sample(connection, &at, &column.name).await?)
        }
        Some(_) | None => None,
    };
    Ok(Facts {
        table,
        columns,
        keys,
        codes,
        sample,
    })
}

/// Reads some payloads, and counts those that are not JSON.
async fn sample(connection: &mut PgConnection, at: &str, column: &str) -> Result<Sample, FactsError> {
    let name = quoted(column);
    let texts = format!(
        "select {name}::text from {at} where octet_length({name}::text) <= {LONGEST} limit {SAMPLED}"
    );
    let texts: Vec<String> = sqlx::query_scalar(AssertSqlSafe(texts))
        .persistent(false)
        .fetch_all(connection)
        .await?;
    let is_other = |text: &&String| serde_json::from_str::<serde::de::IgnoredAny>(text).is_err();
    Ok(Sample {
        column: column.to_owned(),
        rows: texts.len(),
        not_json: texts.iter().filter(is_other).count(),
    })
}

/// The table's name with its schema.
async fn find(connection: &mut PgConnection, table: &str) -> Result<String, FactsError> {
    let row = sqlx::query(FIND)
        .bind(quoted_table(table))
        .persistent(false)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        let name = table.rsplit('.').next().unwrap_or(table);
        let elsewhere = texts(connection, ELSEWHERE, &[name]).await?;
        let hint = match elsewhere.as_slice() {
            [] => String::new(),
            found => format!("; there is {}", found.join(", ")),
        };
        let message = format!("table {table} does not exist, or this role may not see it{hint}");
        return Err(FactsError::NoTable(message));
    };
    let (schema, kind): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    if !matches!(kind.as_str(), "r" | "p") {
        return Err(FactsError::NoTable(format!(
            "{table} is not a table, so states cannot be written back to it"
        )));
    }
    let name = table.split_once('.').map_or(table, |(_, name)| name);
    Ok(format!("{schema}.{name}"))
}

/// The codes that a column can have, by its type or a check, and those that it has.
async fn codes_of(connection: &mut PgConnection, at: &str, column: &str) -> Result<Vec<String>, FactsError> {
    let mut codes = texts(connection, LABELS, &[at, column]).await?;
    for check in texts(connection, CHECKS, &[at, column]).await? {
        codes.extend(literals(&check));
    }
    for code in used(connection, at, column).await? {
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    Ok(codes)
}

/// The namespaces that rows of the table have, in a part of it.
pub(crate) async fn namespaces(
    connection: &mut PgConnection,
    layout: &Layout,
) -> Result<Vec<String>, FactsError> {
    match &layout.namespace {
        Some(column) => used(connection, &quoted_table(&layout.table), column).await,
        None => Ok(Vec::new()),
    }
}

/// The values that a column has, in a part of the table.
async fn used(connection: &mut PgConnection, at: &str, column: &str) -> Result<Vec<String>, FactsError> {
    let name = quoted(column);
    let used = format!(
        "select distinct s.code::text from (select {name} as code from {at} limit {LOOKED_AT}) as s \
         where s.code is not null order by 1 limit {MOST_CODES}"
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(used))
        .persistent(false)
        .fetch_all(connection)
        .await?)
}

async fn texts(
    connection: &mut PgConnection,
    statement: &'static str,
    values: &[&str],
) -> Result<Vec<String>, FactsError> {
    let mut query = sqlx::query_scalar(statement).persistent(false);
    for value in values {
        query = query.bind(*value);
    }
    Ok(query.fetch_all(connection).await?)
}

/// The string literals in a constraint, as PostgreSQL prints it.
fn literals(check: &str) -> Vec<String> {
    check.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

/// How many rows were updated and deleted while watching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    pub(crate) updated: i64,
    pub(crate) deleted: i64,
}

impl Changes {
    pub(crate) fn any(self) -> bool {
        self.updated > 0 || self.deleted > 0
    }
}

/// Counts the changes of this time.
#[expect(clippy::disallowed_methods, reason = "the time between two counts")]
pub(crate) async fn watch(
    connection: &mut PgConnection,
    table: &str,
    time: Duration,
) -> Result<Changes, FactsError> {
    let before = changes(connection, table).await?;
    tokio::time::sleep(time).await;
    let after = changes(connection, table).await?;
    Ok(Changes {
        updated: after.updated - before.updated,
        deleted: after.deleted - before.deleted,
    })
}

async fn changes(connection: &mut PgConnection, table: &str) -> Result<Changes, FactsError> {
    let row = sqlx::query(CHANGES)
        .bind(quoted_table(table))
        .persistent(false)
        .fetch_one(connection)
        .await?;
    Ok(Changes {
        updated: row.try_get(0)?,
        deleted: row.try_get(1)?,
    })
}

/// How many rows are leased by another program now.
pub(crate) async fn leased(connection: &mut PgConnection, layout: &Layout) -> Result<i64, FactsError> {
    let Status::Code {
        column,
        processing: Some(code),
        ..
    } = &layout.status
    else {
        return Ok(0);
    };
    let since = layout.stale.unwrap_or_default().as_secs();
    let (until, time) = match (&layout.locked_until, &layout.locked_at) {
        (Some(until), _) => (until, "now()".to_owned()),
        (None, Some(at)) => (at, format!("now() - interval '{since} seconds'")),
        (None, None) => return Ok(0),
    };
    // Either kind of timestamp, in the zone of the layout.
    let count = format!(
        "select count(*) from (select from {table} where {status}::text = $1 \
         and ({until} > ({time}) at time zone $2 or pg_typeof({until}) = 'timestamptz'::regtype and {until} > {time}) \
         limit {MOST_LEASED}) as leased",
        table = quoted_table(&layout.table),
        status = quoted(column),
        until = quoted(until),
    );
    let count = sqlx::query_scalar(AssertSqlSafe(count))
        .bind(code)
        .bind(&layout.time_zone.0)
        .persistent(false)
        .fetch_one(connection)
        .await?;
    Ok(count)
}

/// Does a Pillarbox worker import in this database?
pub(crate) async fn is_imported(connection: &mut PgConnection, schema: &str) -> Result<bool, FactsError> {
    let importers = format!("{}.importers", quoted(schema));
    let there: bool = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(&importers)
        .persistent(false)
        .fetch_one(&mut *connection)
        .await?;
    if !there {
        return Ok(false);
    }
    let live = format!("select exists (select from {importers} where leased_until > now())");
    let live = sqlx::query_scalar(AssertSqlSafe(live)).persistent(false);
    Ok(live.fetch_one(connection).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_constraint_lists_its_codes() {
        let check = "CHECK (((status)::text = ANY ((ARRAY['pending'::character varying, 'done'::character varying])::text[])))";
        assert_eq!(literals(check), ["pending", "done"]);
        assert!(literals("CHECK ((n > 0))").is_empty());
    }
}
