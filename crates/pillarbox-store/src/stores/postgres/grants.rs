//! The grants that a database role needs for its duty, and no more.
//!
//! The statements are for the schema `pillarbox` and for roles with the name of their duty, as docs/postgres.md shows them.
//! What a role may do within its duty is a row of `role_bounds`, which the functions and the policies read.
//!
//! **If we die here** nothing is changed: it is one transaction.

mod check;
mod duty;
mod granted;
mod needs;
mod script;

pub(super) use check::permissions_of;
pub use duty::Duty;
pub use script::grant_script;

use std::fmt::Write as _;
use std::sync::Arc;

use granted::{check_exists, duties, exists, granted};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::migrate::{LockWait, begin_change, bound_locks, one_at_a_time};
use super::row_security;
use super::{Inner, Postgres, Transaction, audit, store_error};
use crate::actor::Actor;
use crate::audit::Line;
use crate::store::StoreError;
use pillarbox::internal::schema::{self, check_name, in_schema};

/// The longest name of a role, in bytes.
const MAX_ROLE: usize = 63;
/// What a role may do for which a policy of all tenants is, in the words of `permissions.sql`.
const EVERY_TENANT: &str = "the rows of every tenant";

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
            Duty::Writer | Duty::Dispatcher | Duty::Api | Duty::ApiAnyTenant => json!({ "duty": name }),
        }
    }
}

/// The privileges of a duty and its bounds.
fn statements(duty: Duty, bounds: &Bounds, schema: &str, role: &str) -> Result<String, StoreError> {
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
        return Err(StoreError::Invalid(format!(
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
    /// The duty of an API switches [row-level security](Self::set_row_security) on.
    ///
    /// # Errors
    /// When the role does not exist, or the current role does not own the outbox. When a role that is to be bound to a tenant may see
    /// all of them for another reason.
    pub async fn grant(
        &self,
        actor: &Actor,
        duty: Duty,
        bounds: &Bounds,
        role: &str,
        create: bool,
    ) -> Result<bool, StoreError> {
        let granting = Granting {
            duty,
            actor: actor.clone(),
            role: role.to_owned(),
            create: create.then(|| create_role(role)).transpose()?,
            statements: statements(duty, bounds, self.schema(), role)?,
            after: bounds.of(duty),
        };
        self.run_long(grant(self.inner.clone(), granting)).await
    }

    /// Takes a duty from a role. It keeps its other duties. Returns whether it had anything of this one.
    ///
    /// # Errors
    /// When the role does not exist, or the current role does not own the outbox.
    pub async fn revoke(&self, actor: &Actor, duty: Duty, role: &str) -> Result<bool, StoreError> {
        let (actor, role) = (actor.clone(), role.to_owned());
        self.run_long(revoke(self.inner.clone(), actor, duty, role)).await
    }
}

/// What is granted.
struct Granting {
    duty: Duty,
    actor: Actor,
    role: String,
    create: Option<String>,
    statements: String,
    after: Value,
}

/// A change of a policy needs its table alone. So it waits for its locks only a second at a time.
async fn grant(inner: Arc<Inner>, granting: Granting) -> Result<bool, StoreError> {
    let is_secured = granting.duty.is_secured();
    if is_secured {
        row_security::ensure_indexes(&inner).await?;
    }
    let mut locks = LockWait::default();
    loop {
        let granted = try_grant(&inner, &granting).await;
        if let Some(done) = locks.done(&inner, granted).await {
            if is_secured && done.is_ok() {
                row_security::ensure_indexes(&inner).await?;
            }
            return done;
        }
    }
}

async fn try_grant(inner: &Inner, granting: &Granting) -> Result<bool, StoreError> {
    let schema = &inner.sql.schema;
    let mut transaction = begin_change(inner).await?;
    one_at_a_time(&mut transaction).await?;
    bound_locks(&mut transaction).await?;
    let (duty, role) = (granting.duty, granting.role.as_str());
    let before = granted(&mut transaction, schema, role, duty).await?;
    let create = match &granting.create {
        Some(create) if !exists(&mut transaction, role).await? => Some(create.clone()),
        Some(_) | None => None,
    };
    let created = create.is_some();
    if let Some(create) = create {
        execute(&mut transaction, create).await?;
    }
    check_exists(&mut transaction, role, " (create it first, or use --create)").await?;
    execute(&mut transaction, granting.statements.clone()).await?;
    prune_bounds(&mut transaction, schema).await?;
    if duty.is_secured() {
        row_security::switch(inner, &mut transaction, &granting.actor, true).await?;
    }
    row_security::keep_policies(&mut transaction, schema).await?;
    if duty.sees_every_tenant() || duty == Duty::Api {
        check_confined(&mut transaction, schema).await?;
    }
    if granted(&mut transaction, schema, role, duty).await? != before {
        let before = before.bounds.map(|bounds| bounds.of(duty));
        let line = Line::granted(&granting.actor, role, before, granting.after.clone());
        audit::write(inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(created)
}

/// Fails if a role that is bound to a tenant may see the rows of all of them. It may be a member of the role that was granted a duty.
async fn check_confined(transaction: &mut Transaction, schema: &str) -> Result<(), StoreError> {
    let text = format!(
        "select r.rolname::text from unnest(\"{schema}\".roles_on('{{{}}}')) as bound join pg_roles r on r.oid = bound order by 1",
        Duty::Api.name()
    );
    let roles: Vec<String> = sqlx::query_scalar(AssertSqlSafe(text))
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    for role in roles {
        check_role_confined(transaction, schema, &role).await?;
    }
    Ok(())
}

async fn check_role_confined(
    transaction: &mut Transaction,
    schema: &str,
    role: &str,
) -> Result<(), StoreError> {
    let all = permissions_of(transaction, schema, role).await?;
    let is_unbound = |one: &&String| {
        ["everything: ", "the rows of others: ", EVERY_TENANT]
            .iter()
            .any(|start| one.starts_with(start))
    };
    match all.iter().find(is_unbound) {
        None => Ok(()),
        Some(why) => Err(StoreError::Unsafe(format!(
            "role {role:?} cannot be bound to a tenant, because it has {why} (grant the duty {} to a role of its own)",
            Duty::Api.name()
        ))),
    }
}

async fn revoke(inner: Arc<Inner>, actor: Actor, duty: Duty, role: String) -> Result<bool, StoreError> {
    let mut locks = LockWait::default();
    loop {
        let revoked = try_revoke(&inner, &actor, duty, &role).await;
        if let Some(done) = locks.done(&inner, revoked).await {
            return done;
        }
    }
}

async fn try_revoke(inner: &Inner, actor: &Actor, duty: Duty, role: &str) -> Result<bool, StoreError> {
    let schema = &inner.sql.schema;
    let mut transaction = begin_change(inner).await?;
    one_at_a_time(&mut transaction).await?;
    bound_locks(&mut transaction).await?;
    check_exists(&mut transaction, role, "").await?;
    let before = granted(&mut transaction, schema, role, duty).await?;
    execute(&mut transaction, revocations(duty, schema, role)?).await?;
    prune_bounds(&mut transaction, schema).await?;
    // Duties share privileges, such as that on the schema.
    for duty in duties(&mut transaction, schema, role).await? {
        execute(&mut transaction, privileges(duty, schema, role)?).await?;
    }
    row_security::keep_policies(&mut transaction, schema).await?;
    let changed = granted(&mut transaction, schema, role, duty).await? != before;
    if changed {
        let before = before.bounds.map(|bounds| bounds.of(duty));
        let before = before.unwrap_or_else(|| json!({ "duty": duty.name() }));
        audit::write(inner, &mut transaction, Line::revoked(actor, role, before)).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(changed)
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
        statements(duty, &Bounds::default(), schema, role)
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
        let text = statements(
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
