//! What a database role needs to be allowed for what it is there for, and no more.
//!
//! The statements are written for the schema `pillarbox` and for roles of the duty's own name, as docs/postgres.md
//! shows them.
//!
//! **If we die here** everything is as it was: it is one transaction.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::{Inner, Postgres, store_error};
use crate::store::StoreError;
use pillarbox::internal::schema::{self, check_name, in_schema};

/// The longest name that a role can have, in bytes.
const MAX_ROLE: usize = 63;

/// What a role is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Enqueues, by SQL or by the Rust library: sees no content, changes nothing that is there.
    Producer,
    /// Handles events once, by an inbox. What it enqueues itself it does as a producer.
    Consumer,
    /// Runs sagas. Their commands it enqueues as a producer.
    Orchestrator,
    /// Delivers: what `pillarbox run` does.
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

    /// The word for it.
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

/// The statements that let a role do its duty in an outbox, for people who give rights themselves.
///
/// # Errors
/// When the schema or the role cannot have such a name.
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
/// When a role cannot have such a name.
pub fn create_role(role: &str) -> Result<String, StoreError> {
    Ok(format!("create role {} login;\n", quoted(role)?))
}

fn quoted(role: &str) -> Result<String, StoreError> {
    if role.is_empty() || role.len() > MAX_ROLE || role.contains('\0') {
        return Err(StoreError::Other(format!(
            "{role:?} cannot be the name of a role; use 1 to {MAX_ROLE} bytes"
        )));
    }
    Ok(schema::quoted(role))
}

impl Postgres {
    /// Lets a role do its duty in this outbox, and creates it first if that is asked for and it is not there. Takes
    /// nothing away. Safe to run twice. True if the role was created; it has no password then.
    ///
    /// # Errors
    /// When the role is not there, or whoever asks may not give such rights: only the owner of the outbox may.
    pub async fn grant(&self, duty: Duty, role: &str, create: bool) -> Result<bool, StoreError> {
        let grants = grants(duty, self.schema(), role)?;
        let create = create.then(|| create_role(role)).transpose()?;
        self.run(grant(self.inner.clone(), role.to_owned(), create, grants))
            .await
    }
}

async fn grant(
    inner: Arc<Inner>,
    role: String,
    create: Option<String>,
    grants: String,
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
