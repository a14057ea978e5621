//! Every statement that an operator runs, confined to the tenant of the actor.
//!
//! SQLite has no policies for rows. So the files of these statements are read here and nowhere else, and a test looks for
//! statements elsewhere. A file marks where the tenant is a condition: `/*tenant*/`, or `/*tenant e*/` for the columns of `e`.
//! The value is the text of a UUID, so it needs no parameter, and an index serves it.

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::choose::with_key_steps;
use pillarbox::internal::envelope::with_columns;

/// A statement for one tenant, or for all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Confined(pub(super) Option<Uuid>);

/// The rows of the event ?6, as a further condition.
pub(super) const FAMILY: &str = "and rowno in (
  select rowno from outbox_events where id = ?6 and parent_id is null
  union all select rowno from outbox_events where parent_id = ?6
)";

/// The names that the files give to `outbox_events`.
const ALIASES: [&str; 2] = ["e", "other"];

impl Confined {
    /// The statement of a file with its conditions.
    fn statement(self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.conditions(text))
    }

    fn conditions(self, text: &str) -> String {
        let condition = |columns: &str| match self.0 {
            Some(tenant) => format!("and {columns}tenant_id = '{tenant}'"),
            None => String::new(),
        };
        let system = if self.0.is_some() { "false" } else { "true" };
        let confined = text
            .replace("/*tenant*/", &condition(""))
            .replace("/*system*/true", system);
        ALIASES.iter().fold(confined, |text, alias| {
            text.replace(&format!("/*tenant {alias}*/"), &condition(&format!("{alias}.")))
        })
    }

    pub(super) fn stats(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/stats.sql"))
    }

    /// Rows as operators see them. The payload is an expression.
    pub(super) fn records(self, payload: &str, condition: &str, order: &str) -> AssertSqlSafe<String> {
        let columns = with_columns(include_str!("sql/record.sql")).replace("/*payload*/", payload);
        self.statement(&format!("{columns} where {condition} /*tenant*/ {order}"))
    }

    pub(super) fn statuses(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/statuses.sql"))
    }

    pub(super) fn retry(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/retry.sql"))
    }

    pub(super) fn skip(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/skip.sql"))
    }

    pub(super) fn delete(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/delete.sql"))
    }

    pub(super) fn blocked(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/blocked.sql"))
    }

    pub(super) fn unserved(self) -> AssertSqlSafe<String> {
        self.statement(&with_key_steps(include_str!("sql/unserved.sql")))
    }

    pub(super) fn destinations(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/destinations.sql"))
    }

    pub(super) fn audit_lines(self) -> AssertSqlSafe<String> {
        self.statement(include_str!("sql/audit_lines.sql"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stores/sqlite");

    fn files(folder: &Path, extension: &str) -> Vec<(PathBuf, String)> {
        let files = fs::read_dir(folder)
            .expect("the sources")
            .map(|file| file.expect("a file").path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == extension));
        files
            .map(|path| (path.clone(), fs::read_to_string(path).expect("a text")))
            .collect()
    }

    /// The files of this module: each has the condition, and no other module reads them.
    #[test]
    fn statements_with_a_tenant_are_built_here_alone() {
        let here = include_str!("tenant.rs");
        let read = |text: &str, name: &str| text.contains(&format!("include_str!(\"sql/{name}\")"));
        for (path, sql) in files(&Path::new(FOLDER).join("sql"), "sql") {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let is_confined = sql.contains("/*tenant") || name == "record.sql";
            assert_eq!(read(here, name), is_confined, "{name}");
            for (other, text) in files(Path::new(FOLDER), "rs") {
                let is_here = other.ends_with("tenant.rs");
                assert!(
                    is_here || !is_confined || !read(&text, name),
                    "{} reads {name}",
                    other.display()
                );
            }
        }
    }

    /// An operator's module has no statement of its own on the rows.
    #[test]
    fn an_operators_module_has_no_statement_on_rows() {
        for (path, text) in files(Path::new(FOLDER), "rs") {
            let is_operators = ["operate.rs", "by_hand.rs", "audit.rs"]
                .iter()
                .any(|name| path.ends_with(name));
            let names_rows = text.contains("outbox_events") || text.contains("pillarbox_audit");
            assert!(!(is_operators && names_rows), "{}", path.display());
        }
    }

    #[test]
    fn each_mark_becomes_a_condition_or_nothing() {
        let tenant = Uuid::from_u128(7);
        let (one, all) = (Confined(Some(tenant)), Confined(None));
        let text = "a /*tenant*/ b /*tenant e*/ c /*tenant other*/ d /*system*/true";
        assert_eq!(
            one.conditions(text),
            format!(
                "a and tenant_id = '{tenant}' b and e.tenant_id = '{tenant}' c and other.tenant_id = '{tenant}' d false"
            )
        );
        assert_eq!(all.conditions(text), "a  b  c  d true");
    }
}
