//! Whether the current role may do what a dispatcher does.
//!
//! Checked before the first claim. A dispatcher that lacks one permission may claim and send, and settle nothing: each event would
//! be sent again when its lease expires.

use std::sync::Arc;

use super::check::{permissions, relations};
use super::{Duty, Inner, Postgres, row_security, store_error};
use crate::store::StoreError;
use pillarbox::internal::schema;

const LACKING: &str = include_str!("../sql/lacking.sql");
/// How many missing permissions an error names.
const NAMED: usize = 3;

impl Postgres {
    /// Fails if the current role lacks a permission of the duty [`Dispatcher`](Duty::Dispatcher), or if row-level security hides rows
    /// from it, so that the outbox looks empty.
    ///
    /// # Errors
    /// When a permission or a policy is missing, with what grants it; when the database is unavailable.
    pub async fn check_dispatcher(&self) -> Result<(), StoreError> {
        self.run(check_dispatcher(self.inner.clone())).await
    }
}

async fn check_dispatcher(inner: Arc<Inner>) -> Result<(), StoreError> {
    let duty: Vec<String> = permissions(Duty::Dispatcher).into_iter().collect();
    let (role, lacking) = lacking(&inner, &duty).await?;
    if !lacking.is_empty() {
        return Err(StoreError::Denied(without_duty(
            &inner.sql.schema,
            &role,
            &lacking,
        )));
    }
    let tables = relations(Duty::Dispatcher);
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    let mut transaction = inner.begin().await?;
    let hidden = row_security::hidden(&mut transaction, &inner.sql.schema, &tables).await?;
    transaction.commit().await.map_err(store_error)?;
    if !hidden.is_empty() {
        return Err(StoreError::Denied(without_policy(
            &inner.sql.schema,
            &role,
            &hidden,
        )));
    }
    Ok(())
}

/// The current role, and which of these permissions it lacks.
async fn lacking(inner: &Inner, needed: &[String]) -> Result<(String, Vec<String>), StoreError> {
    let parts: Vec<Parts<'_>> = needed.iter().map(|one| Parts::of(one)).collect();
    let mut transaction = inner.begin().await?;
    let role: String = sqlx::query_scalar("select current_user::text")
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    let positions: Vec<i32> = sqlx::query_scalar(LACKING)
        .bind(&inner.sql.schema)
        .bind(parts.iter().map(|part| part.privilege).collect::<Vec<_>>())
        .bind(parts.iter().map(|part| part.object).collect::<Vec<_>>())
        .bind(parts.iter().map(|part| part.column).collect::<Vec<_>>())
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    let lacking = positions
        .into_iter()
        .filter_map(|at| needed.get(usize::try_from(at).ok()?).cloned());
    Ok((role, lacking.collect()))
}

/// A permission in the words of `permissions.sql`.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    privilege: &'a str,
    column: Option<&'a str>,
    /// `None` for the schema.
    object: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(permission: &'a str) -> Self {
        let (privilege, object) = permission.split_once(" on ").unwrap_or((permission, ""));
        let (privilege, column) = match privilege.split_once(" (") {
            Some((privilege, column)) => (privilege, Some(column.trim_end_matches(')'))),
            None => (privilege, None),
        };
        let object = (object != "the schema").then_some(object);
        Self {
            privilege,
            column,
            object,
        }
    }
}

fn without_duty(schema: &str, role: &str, lacking: &[String]) -> String {
    let mut named = lacking[..lacking.len().min(NAMED)].join(", ");
    if lacking.len() > NAMED {
        named += &format!(" and {} more", lacking.len() - NAMED);
    }
    format!(
        "role {role:?} lacks permissions of a dispatcher in the schema {schema}: {named} (as the owner of the outbox, run: {})",
        grant_dispatcher(schema, role)
    )
}

fn without_policy(schema: &str, role: &str, hidden: &[String]) -> String {
    format!(
        "row-level security hides the rows of {} in the schema {schema} from role {role:?} (as the owner of the outbox, run: {})",
        hidden.join(", "),
        grant_dispatcher(schema, role)
    )
}

/// The command that grants the duty.
fn grant_dispatcher(schema: &str, role: &str) -> String {
    let option = if schema == schema::SCHEMA {
        String::new()
    } else {
        format!(" --schema {schema}")
    };
    format!("pillarbox grant dispatcher {role}{option}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permission_of_a_dispatcher_has_its_parts() {
        for permission in permissions(Duty::Dispatcher) {
            let parts = Parts::of(&permission);
            assert!(!parts.privilege.contains(' '), "{parts:?}");
            assert_ne!(parts.object, Some(""), "{permission}");
        }
        let column = Parts {
            privilege: "insert",
            column: Some("subject"),
            object: Some("audit"),
        };
        assert_eq!(Parts::of("insert (subject) on audit"), column);
        assert_eq!(Parts::of("usage on the schema").object, None);
    }

    #[test]
    fn an_error_names_a_few_permissions_and_what_grants_them() {
        let lacking: Vec<String> = (1..=5).map(|n| format!("select on table{n}")).collect();
        let text = without_duty("shop_outbox", "daemon", &lacking);
        assert!(text.contains("select on table3 and 2 more"), "{text}");
        assert!(
            text.contains("run: pillarbox grant dispatcher daemon --schema shop_outbox"),
            "{text}"
        );
        let text = without_duty("pillarbox", "daemon", &lacking[..1]);
        assert!(text.ends_with("pillarbox grant dispatcher daemon)"), "{text}");
    }
}
