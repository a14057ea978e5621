//! Reads the columns of a table, and compares them with a layout.

use sqlx::{PgConnection, Row};

use super::layout::{Layout, LayoutError, names};
use crate::store::StoreError;
use crate::stores::postgres::store_error;
pub use pillarbox::internal::schema::quoted;
use pillarbox::text::distance;

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, in its exact case.
    pub name: String,
    /// Its type, as PostgreSQL prints it.
    pub kind: String,
    /// Can it be null?
    pub nullable: bool,
}

/// The oid of a table, by its schema, or null for what `search_path` finds, and its name. `to_regclass` would need `usage` on
/// the schema.
macro_rules! relation {
    ($schema:literal, $name:literal) => {
        concat!(
            "case when ",
            $schema,
            "::text is null then to_regclass(quote_ident(",
            $name,
            "))::oid else (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = ",
            $schema,
            "::text::name and c.relname = ",
            $name,
            "::text::name) end"
        )
    };
}
pub(super) use relation;

/// $1 the schema, or null   $2 the table
const COLUMNS: &str = concat!(
    "select a.attname::text, format_type(a.atttypid, a.atttypmod), not a.attnotnull
    from pg_attribute a
    where a.attrelid = ",
    relation!("$1", "$2"),
    " and a.attnum > 0 and not a.attisdropped
    order by a.attnum"
);

/// The columns of the table, in order. Empty if the table does not exist.
///
/// # Errors
/// When the database does not answer.
pub async fn columns(connection: &mut PgConnection, layout: &Layout) -> Result<Vec<Column>, StoreError> {
    let (schema, table) = layout.names();
    let rows = sqlx::query(COLUMNS)
        .bind(schema)
        .bind(table)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let column = |row: &sqlx::postgres::PgRow| {
        Ok(Column {
            name: row.try_get(0)?,
            kind: row.try_get(1)?,
            nullable: row.try_get(2)?,
        })
    };
    rows.iter()
        .map(column)
        .collect::<Result<_, _>>()
        .map_err(store_error)
}

/// The quoted name of a table, with its schema if it has one.
pub fn quoted_table(table: &str) -> String {
    match names(table) {
        (Some(schema), table) => format!("{}.{}", quoted(schema), quoted(table)),
        (None, table) => quoted(table),
    }
}

/// Checks that every column of the layout exists.
pub(super) fn fits(layout: &Layout, columns: &[Column]) -> Result<(), LayoutError> {
    if columns.is_empty() {
        return Err(LayoutError::NoTable(layout.table.clone()));
    }
    for (key, name) in layout.named() {
        if !columns.iter().any(|column| column.name == name) {
            let names = columns.iter().map(|column| column.name.as_str());
            return Err(LayoutError::NoColumn {
                key,
                column: name.to_owned(),
                table: layout.table.clone(),
                nearest: nearest(name, names),
            });
        }
    }
    Ok(())
}

/// The most similar name, if it is similar enough.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_lowercase();
    let distance = |other: &str| distance(&lower, &other.to_lowercase());
    let best = names.min_by_key(|other| distance(other))?;
    (distance(best) <= name.chars().count() / 2).then(|| best.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let names = ["id", "retry_count", "created_at"];
        assert_eq!(
            nearest("RetryCount", names.into_iter()),
            Some("retry_count".to_owned())
        );
        assert_eq!(
            nearest("creatd_at", names.into_iter()),
            Some("created_at".to_owned())
        );
        assert_eq!(nearest("severity", names.into_iter()), None);
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted("a\"; drop table x; --"), "\"a\"\"; drop table x; --\"");
    }
}
