//! The grants that a database role needs for its duty, and no more.
//!
//! The statements are for the schema `pillarbox` and for roles with the name of their duty, as docs/postgres.md shows them.
//! What a role may do within its duty is a row of `role_bounds`, which the functions and the policies read.
//!
//! **If we die here** nothing is changed: it is one transaction.

mod check;
mod needs;

pub(super) use check::permissions_of;

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::migrate::one_at_a_time;
use super::{Inner, Postgres, Transaction, audit, store_error};
use crate::actor::Actor;
use crate::audit::Line;
use crate::store::StoreError;
use pillarbox::internal::schema::{self, check_name, in_schema};

/// The longest name of a role, in bytes.
const MAX_ROLE: usize = 63;

/// What a database role may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Enqueues with the functions, within its [`Bounds`]. It reads and changes no row.
    Producer,
    /// Enqueues by plain INSERT, as any namespace and tenant. It reads no content and changes no row.
    Writer,
    /// Uses the inbox as some consumers. To enqueue, it is a producer or a writer too.
    Consumer,
    /// Runs some kinds of saga. To enqueue their commands, it is a producer or a writer too.
    Orchestrator,
    /// Delivers: `pillarbox run`.
    Dispatcher,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Producer,
        Self::Writer,
        Self::Consumer,
        Self::Orchestrator,
        Self::Dispatcher,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Writer => "writer",
            Self::Consumer => "consumer",
            Self::Orchestrator => "orchestrator",
            Self::Dispatcher => "dispatcher",
        }
    }

    fn statements(self) -> &'static str {
        match self {
            Self::Producer => include_str!("grants/producer.sql"),
            Self::Writer => include_str!("grants/writer.sql"),
            Self::Consumer => include_str!("grants/consumer.sql"),
            Self::Orchestrator => include_str!("grants/orchestrator.sql"),
            Self::Dispatcher => include_str!("grants/dispatcher.sql"),
        }
    }
}

/// What a role may do within its duty. By default it may do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The namespaces that a producer enqueues in; `None` is any.
    pub namespaces: Option<Vec<String>>,
    /// The tenants that a producer enqueues for; `None` is any, and none. With tenants, each event has one of them.
    pub tenants: Option<Vec<Uuid>>,
    /// The destinations that a producer may name.
    pub destinations: Vec<String>,
    /// The consumers, or the kinds of saga; `None` is any.
    pub names: Option<Vec<String>>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            namespaces: Some(Vec::new()),
            tenants: None,
            destinations: Vec::new(),
            names: Some(Vec::new()),
        }
    }
}

impl Bounds {
    /// A producer of these namespaces, for any tenant.
    pub fn namespaces<T: Into<String>>(namespaces: impl IntoIterator<Item = T>) -> Self {
        Self {
            namespaces: Some(namespaces.into_iter().map(Into::into).collect()),
            ..Self::default()
        }
    }

    /// Consumers or kinds of saga with these names.
    pub fn names<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self {
            names: Some(names.into_iter().map(Into::into).collect()),
            ..Self::default()
        }
    }

    /// Those that count in a duty, for the audit.
    fn of(&self, duty: Duty) -> serde_json::Value {
        let name = duty.name();
        match duty {
            Duty::Producer => json!({
                "duty": name, "namespaces": self.namespaces, "tenants": self.tenants, "destinations": self.destinations,
            }),
            Duty::Consumer | Duty::Orchestrator => json!({ "duty": name, "names": self.names }),
            Duty::Writer | Duty::Dispatcher => json!({ "duty": name }),
        }
    }
}

/// The statements that grant a role its duty. They replace the bounds that it has in this duty.
///
/// # Errors
/// When the name of the schema or of the role is invalid.
pub fn grants(duty: Duty, bounds: &Bounds, schema: &str, role: &str) -> Result<String, StoreError> {
    let mut grants = privileges(duty, schema, role)?;
    let array = |values: Option<Vec<String>>, kind| match values {
        Some(values) => format!("array[{}]::{kind}[]", values.join(", ")),
        None => "null".to_owned(),
    };
    let texts = |values: &Vec<String>| values.iter().map(|value| literal(value)).collect();
    let tenants = |ids: &Vec<Uuid>| ids.iter().map(|id| format!("'{id}'")).collect();
    let _infallible = write!(
        grants,
        "insert into \"{schema}\".role_bounds (role, duty, namespaces, tenants, destinations, names)\n\
         values ({role}::regrole, '{duty}', {namespaces}, {tenants}, {destinations}, {names})\n\
         on conflict (role, duty) do update set namespaces = excluded.namespaces, tenants = excluded.tenants,\n  \
           destinations = excluded.destinations, names = excluded.names;\n",
        role = literal(&quoted(role)?),
        duty = duty.name(),
        namespaces = array(bounds.namespaces.as_ref().map(texts), "text"),
        tenants = array(bounds.tenants.as_ref().map(tenants), "uuid"),
        destinations = array(Some(texts(&bounds.destinations)), "text"),
        names = array(bounds.names.as_ref().map(texts), "text"),
    );
    Ok(grants)
}

/// The statements that give a role the privileges of a duty, without its bounds.
fn privileges(duty: Duty, schema: &str, role: &str) -> Result<String, StoreError> {
    check_name(schema)?;
    let role = quoted(role)?;
    // The role comes last: its name may look like ours.
    let statements = in_schema(duty.statements(), schema)
        .replace("on schema pillarbox to", &format!("on schema \"{schema}\" to"));
    Ok(statements.replace(&format!(" to {};", duty.name()), &format!(" to {role};")))
}

/// The statements that take the privileges of a duty from a role, and its bounds.
fn revocations(duty: Duty, schema: &str, role: &str) -> Result<String, StoreError> {
    check_name(schema)?;
    let mut revocations = String::new();
    for grant in duty.statements().split_inclusive(';').map(str::trim) {
        // What else a duty needs, such as a policy, concerns every role.
        let Some(grant) = grant.strip_prefix("grant ") else {
            continue;
        };
        let target = format!(" to {};", duty.name());
        let granted = grant.strip_suffix(&target).unwrap_or(grant);
        let revocation =
            in_schema(granted, schema).replace("on schema pillarbox", &format!("on schema \"{schema}\""));
        let _infallible = writeln!(revocations, "revoke {revocation} from {};", quoted(role)?);
    }
    let _infallible = writeln!(
        revocations,
        "delete from \"{schema}\".role_bounds where role = {}::regrole and duty = '{}';",
        literal(&quoted(role)?),
        duty.name()
    );
    Ok(revocations)
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

/// A text in a statement, whatever the server's `standard_conforming_strings`. No name has a NUL.
fn literal(text: &str) -> String {
    let text = text.replace('\0', "").replace('\\', "\\\\").replace('\'', "''");
    let prefix = if text.contains('\\') { "E" } else { "" };
    format!("{prefix}'{text}'")
}

impl Postgres {
    /// Grants a role its duty in this outbox, within these bounds, which replace those that it had in this duty. With
    /// `create`, creates the role without a password if it does not exist. Returns whether the role was created.
    ///
    /// # Errors
    /// When the role does not exist, or the current role does not own the outbox.
    pub async fn grant(
        &self,
        actor: &Actor,
        duty: Duty,
        bounds: &Bounds,
        role: &str,
        create: bool,
    ) -> Result<bool, StoreError> {
        let grants = grants(duty, bounds, self.schema(), role)?;
        let create = create.then(|| create_role(role)).transpose()?;
        let line = Line::granted(actor, role, bounds.of(duty));
        self.run(grant(self.inner.clone(), role.to_owned(), create, grants, line))
            .await
    }

    /// Takes a duty from a role. It keeps its other duties.
    ///
    /// # Errors
    /// When the role does not exist, or the current role does not own the outbox.
    pub async fn revoke(&self, actor: &Actor, duty: Duty, role: &str) -> Result<(), StoreError> {
        let line = Line::revoked(actor, role, duty.name());
        self.run(revoke(self.inner.clone(), duty, role.to_owned(), line))
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
    one_at_a_time(&mut transaction).await?;
    let exists: bool = sqlx::query_scalar("select exists (select from pg_roles where rolname = $1)")
        .bind(role)
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    let create = create.filter(|_| !exists);
    let created = create.is_some();
    execute(&mut transaction, create.unwrap_or_default() + &grants).await?;
    prune_bounds(&mut transaction, &inner.sql.schema).await?;
    audit::write(&inner, &mut transaction, line).await?;
    transaction.commit().await.map_err(store_error)?;
    Ok(created)
}

async fn revoke(inner: Arc<Inner>, duty: Duty, role: String, line: Line) -> Result<(), StoreError> {
    let schema = &inner.sql.schema;
    let mut transaction = inner.begin().await?;
    one_at_a_time(&mut transaction).await?;
    execute(&mut transaction, revocations(duty, schema, &role)?).await?;
    prune_bounds(&mut transaction, schema).await?;
    // Duties share privileges, such as that on the schema.
    for duty in duties(&mut transaction, schema, &role).await? {
        execute(&mut transaction, privileges(duty, schema, &role)?).await?;
    }
    audit::write(&inner, &mut transaction, line).await?;
    transaction.commit().await.map_err(store_error)
}

/// The duties that the role was granted.
async fn duties(transaction: &mut Transaction, schema: &str, role: &str) -> Result<Vec<Duty>, StoreError> {
    let text = format!("select duty from \"{schema}\".role_bounds where role = to_regrole($1)");
    let granted: Vec<String> = sqlx::query_scalar(AssertSqlSafe(text))
        .bind(quoted(role)?)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let is_granted = |duty: &Duty| granted.iter().any(|name| name == duty.name());
    Ok(Duty::ALL.into_iter().filter(is_granted).collect())
}

/// Removes the bounds of roles that were dropped. They bind nobody: a new role of the same name has another oid.
async fn prune_bounds(transaction: &mut Transaction, schema: &str) -> Result<(), StoreError> {
    let stale = format!(
        "delete from \"{schema}\".role_bounds b where not exists (select from pg_roles r where r.oid = b.role)"
    );
    execute(transaction, stale).await
}

async fn execute(transaction: &mut Transaction, sql: String) -> Result<(), StoreError> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut **transaction)
        .await;
    done.map_err(store_error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_grants(duty: Duty, schema: &str, role: &str) -> Result<String, StoreError> {
        grants(duty, &Bounds::default(), schema, role)
    }

    #[test]
    fn every_statement_names_the_schema_and_the_role() {
        for duty in Duty::ALL {
            for text in [
                all_grants(duty, "my_outbox", "app").unwrap(),
                revocations(duty, "my_outbox", "app").unwrap(),
            ] {
                assert!(!text.contains("pillarbox"), "{text}");
                assert!(!text.contains(&format!("to {}", duty.name())), "{text}");
                let grants = text.matches("grant ").count() + text.matches("revoke ").count();
                assert!(grants > 0, "{text}");
                assert_eq!(
                    text.matches("o \"app\";").count() + text.matches("m \"app\";").count(),
                    grants,
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn no_name_can_break_out_of_its_quotes() {
        let text = all_grants(Duty::Writer, "pillarbox", "a\"; drop role b; --").unwrap();
        assert!(text.contains(" to \"a\"\"; drop role b; --\";"), "{text}");
        assert_eq!(create_role("it\"s").unwrap(), "create role \"it\"\"s\" login;\n");
        for name in ["", "a\0b", &"a".repeat(64)] {
            assert!(create_role(name).is_err(), "{name:?}");
        }
        assert!(all_grants(Duty::Producer, "a\"b", "app").is_err());
        let text = grants(
            Duty::Producer,
            &Bounds::namespaces(["a'b", "c\\'d"]),
            "pillarbox",
            "it's",
        );
        let text = text.unwrap();
        assert!(text.contains("array['a''b', E'c\\\\''d']::text[]"), "{text}");
        assert!(
            text.contains("values ('\"it''s\"'::regrole, 'producer'"),
            "{text}"
        );
    }

    #[test]
    fn a_role_may_have_a_name_like_ours() {
        let text = all_grants(Duty::Producer, "my_outbox", "pillarbox.app").unwrap();
        assert!(text.contains("to \"pillarbox.app\";"), "{text}");
        let text = revocations(Duty::Producer, "my_outbox", "pillarbox.app").unwrap();
        assert!(text.contains("from \"pillarbox.app\";"), "{text}");
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
