//! The statements, with the schema's name in them.
//!
//! They are written for the schema `pillarbox` and are valid as they stand, so that they can be tried by
//! hand; another name replaces it when the store is made.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::SCHEMA;
use crate::store::{Scope, StoreError};

/// A statement whose only variable part is the checked name of the schema.
#[derive(Debug, Clone)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    pub(super) fn safe(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone)]
pub(super) struct Sql {
    pub(super) schema: Arc<str>,
    pub(super) claim: Statement,
    pub(super) claim_alone: Statement,
    pub(super) delete: Statement,
    pub(super) enqueue: Statement,
    pub(super) enqueue_all: Statement,
    pub(super) enqueued_before: Statement,
    pub(super) is_alone: Statement,
    is_due: Statement,
    pub(super) record: Statement,
    pub(super) renew: Statement,
    pub(super) retry: Statement,
    pub(super) settle_delivered: Statement,
    pub(super) settle_other: Statement,
    pub(super) stats: Statement,
    pub(super) stats_large: Statement,
    pub(super) sweep: Statement,
}

impl Sql {
    pub(super) fn new(schema: &str) -> Result<Self, StoreError> {
        check_name(schema)?;
        let statement = |text: &str| Statement(in_schema(text, schema).into());
        Ok(Self {
            schema: schema.into(),
            claim: statement(include_str!("sql/claim.sql")),
            claim_alone: statement(include_str!("sql/claim_alone.sql")),
            delete: statement(include_str!("sql/delete.sql")),
            enqueue: statement(include_str!("sql/enqueue.sql")),
            enqueue_all: statement(include_str!("sql/enqueue_all.sql")),
            enqueued_before: statement(include_str!("sql/enqueued_before.sql")),
            is_alone: statement(include_str!("sql/is_alone.sql")),
            is_due: statement(include_str!("sql/is_due.sql")),
            record: statement(include_str!("sql/record.sql")),
            renew: statement(include_str!("sql/renew.sql")),
            retry: statement(include_str!("sql/retry.sql")),
            settle_delivered: statement(include_str!("sql/settle_delivered.sql")),
            settle_other: statement(include_str!("sql/settle_other.sql")),
            stats: statement(include_str!("sql/stats.sql")),
            stats_large: statement(include_str!("sql/stats_large.sql")),
            sweep: statement(include_str!("sql/sweep.sql")),
        })
    }

    /// The probe, with the namespaces written into it: the simple protocol has no parameters.
    pub(super) fn is_due(&self, scope: &Scope) -> Statement {
        match scope.names() {
            None => self.is_due.clone(),
            Some(names) => {
                let list = names
                    .iter()
                    .map(|name| literal(name))
                    .collect::<Vec<_>>()
                    .join(", ");
                Statement(
                    self.is_due
                        .0
                        .replace("/*scope*/", &format!("and namespace in ({list})"))
                        .into(),
                )
            }
        }
    }
}

/// A string literal that holds whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// The statement with another schema in it.
pub(super) fn in_schema(text: &str, schema: &str) -> String {
    if schema == SCHEMA {
        text.to_owned()
    } else {
        text.replace("pillarbox.", &format!("\"{schema}\"."))
    }
}

/// Only names that mean the same with and without quotes.
pub(super) fn check_name(schema: &str) -> Result<(), StoreError> {
    let sound = !schema.is_empty()
        && schema.len() <= 63
        && !schema.starts_with(|c: char| c.is_ascii_digit())
        && schema
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if sound {
        return Ok(());
    }
    Err(StoreError::Other(format!(
        "{schema:?} cannot be the name of the schema; use lower-case letters, digits and underscores, at most 63"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schema_replaces_every_mention() {
        let sql = Sql::new("my_outbox").expect("a sound name");
        for statement in [&sql.claim, &sql.enqueue_all, &sql.sweep, &sql.settle_other] {
            assert!(!statement.0.contains("pillarbox."), "{}", statement.0);
            assert!(statement.0.contains("\"my_outbox\".outbox_events"));
        }
    }

    #[test]
    fn a_name_that_needs_quotes_is_refused() {
        for name in ["", "a b", "A", "1a", "a\"b", "a.b", &"a".repeat(64)] {
            assert!(Sql::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_namespace_cannot_break_out_of_the_probe() {
        let sql = Sql::new("pillarbox").expect("a sound name");
        let probe = sql.is_due(&Scope::of([r"a'b\"]));
        assert!(probe.0.contains(r"namespace in (E'a''b\\')"), "{}", probe.0);
    }
}
