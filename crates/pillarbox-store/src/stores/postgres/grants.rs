//! The grants that a database role needs for its duty, and no more.
//!
//! The statements are for the schema `pillarbox` and for roles with the name of their duty, as docs/postgres.md shows them.
//!
//! **If we die here** nothing is changed: it is one transaction.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::{Inner, Postgres, audit, store_error};
use crate::actor::Actor;
use crate::audit::Line;
use crate::store::StoreError;
use pillarbox::internal::schema::{self, check_name, in_schema};

/// The longest name of a role, in bytes.
const MAX_ROLE: usize = 63;

/// What a database role may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Enqueues, by SQL or with the Rust library. It reads no content and changes no row.
    Producer,
    /// Uses an inbox. To enqueue, it is a producer too.
    Consumer,
    /// Runs sagas. To enqueue their commands, it is a producer too.
    Orchestrator,
    /// Delivers: `pillarbox run`.
    Dispatcher,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Producer,
        Self::Consumer,
        Self::Orchestrator,
        Self::Dispatcher,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::Orchestrator => "orchestrator",
            Self::Dispatcher => "dispatcher",
        }
    }

    fn statements(self) -> &'static str {
        match self {
            Self::Producer => include_str!("grants/producer.sql"),
            Self::Consumer => include_str!("grants/consumer.sql"),
            Self::Orchestrator => include_str!("grants/orchestrator.sql"),
            Self::Dispatcher => include_str!("grants/dispatcher.sql"),
        }
    }
}

/// The statements that grant a role its duty.
///
/// # Errors
/// When the name of the schema or of the role is invalid.
pub fn grants(duty: Duty, schema: &str, role: &str) -> Result<String, StoreError> {
    check_name(schema)?;
    let role = quoted(role)?;
    let statements = duty
        .statements()
        .replace("on schema pillarbox to", &format!("on schema \"{schema}\" to"))
        .replace(&format!(" to {};", duty.name()), &format!(" to {role};"));
    Ok(in_schema(&statements, schema))
}

/// The statement that creates a role that may log in.
///
/// # Errors
/// When the name of the role is invalid.
pub fn create_role(role: &str) -> Result<String, StoreError> {
    Ok(format!("create role {} login;\n", quoted(role)?))
}

fn quoted(role: &str) -> Result<String, StoreError> {
    if role.is_empty() || role.len() > MAX_ROLE || role.contains('\0') {
        return Err(StoreError::Other(format!(
            "role name {role:?} is invalid (use 1 to {MAX_ROLE} bytes)"
        )));
    }
    Ok(schema::quoted(role))
}

impl Postgres {
    /// Grants a role its duty in this outbox. With `create`, creates the role without a password if it does not exist.
    /// Revokes nothing, and is safe to run twice. Returns whether the role was created.
    ///
    /// # Errors
    /// When the role does not exist, or the current role does not own the outbox.
    pub async fn grant(
        &self,
        actor: &Actor,
        duty: Duty,
        role: &str,
        create: bool,
    ) -> Result<bool, StoreError> {
        let grants = grants(duty, self.schema(), role)?;
        let create = create.then(|| create_role(role)).transpose()?;
        let line = Line::granted(actor, role, duty.name());
        self.run(grant(self.inner.clone(), role.to_owned(), create, grants, line))
            .await
    }
}

async fn grant(
    inner: Arc<Inner>,
    role: String,
    create: Option<String>,
    grants: String,
    line: Line,
) -> Result<bool, StoreError> {
    let mut transaction = inner.begin().await?;
    let exists: bool = sqlx::query_scalar("select exists (select from pg_roles where rolname = $1)")
        .bind(role)
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    let create = create.filter(|_| !exists);
    let created = create.is_some();
    sqlx::raw_sql(AssertSqlSafe(create.unwrap_or_default() + &grants))
        .execute(&mut *transaction)
        .await
        .map_err(store_error)?;
    audit::write(&inner, &mut transaction, line).await?;
    transaction.commit().await.map_err(store_error)?;
    Ok(created)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_names_the_schema_and_the_role() {
        for duty in Duty::ALL {
            let text = grants(duty, "my_outbox", "app").unwrap();
            assert!(!text.contains("pillarbox"), "{text}");
            assert!(!text.contains(&format!("to {}", duty.name())), "{text}");
            assert_eq!(text.matches(" to \"app\";").count(), text.matches(';').count());
        }
    }

    #[test]
    fn no_name_can_break_out_of_its_quotes() {
        let text = grants(Duty::Producer, "pillarbox", "a\"; drop role b; --").unwrap();
        assert!(text.contains(" to \"a\"\"; drop role b; --\";"), "{text}");
        assert_eq!(create_role("it\"s").unwrap(), "create role \"it\"\"s\" login;\n");
        for name in ["", "a\0b", &"a".repeat(64)] {
            assert!(create_role(name).is_err(), "{name:?}");
        }
        assert!(grants(Duty::Producer, "a\"b", "app").is_err());
    }

    #[test]
    fn the_manual_shows_these_statements() {
        let manual = include_str!("../../../../../docs/postgres.md");
        for duty in Duty::ALL {
            let shown = format!("```sql\n{}```", duty.statements());
            assert!(
                manual.contains(&shown),
                "docs/postgres.md does not show:\n{shown}"
            );
        }
    }
}
