//! What a role has beyond its duties.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::{Duty, EVERY_TENANT, Postgres, check_exists, duties, quoted};
use crate::actor::{Actor, OperateError, Permission};
use crate::store::StoreError;
use crate::stores::postgres::{Inner, Transaction, row_security, store_error};

/// $1 role   $2 schema. Nothing is listed that every role has, as PostgreSQL grants it to PUBLIC.
const PERMISSIONS: &str = include_str!("../sql/permissions.sql");

impl Postgres {
    /// What a role may do in this outbox beyond this duty and the duties that it was granted, such as `delete on
    /// outbox_events`. Memberships count.
    ///
    /// # Errors
    /// When the actor lacks a permission, the role does not exist, or the current role may not read the bounds of roles.
    pub async fn beyond(&self, actor: &Actor, duty: Duty, role: &str) -> Result<Vec<String>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        quoted(role)?;
        let found = beyond(self.inner.clone(), duty, role.to_owned());
        Ok(self.run(found).await?)
    }

    /// What a role lacks of this duty, in the same words, and `its row of role_bounds`. Memberships count.
    ///
    /// # Errors
    /// As for [`beyond`](Self::beyond).
    pub async fn lacks(&self, actor: &Actor, duty: Duty, role: &str) -> Result<Vec<String>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        quoted(role)?;
        Ok(self.run(lacks(self.inner.clone(), duty, role.to_owned())).await?)
    }
}

async fn lacks(inner: Arc<Inner>, duty: Duty, role: String) -> Result<Vec<String>, StoreError> {
    let schema = &inner.sql.schema;
    let mut transaction = inner.begin().await?;
    check_exists(&mut transaction, &role, "").await?;
    let all = permissions_of(&mut transaction, schema, &role).await?;
    let text = format!(
        "select exists (
           select from \"{schema}\".role_bounds b
           join pg_roles r on r.oid = b.role and pg_has_role($1::text::name, r.oid, 'usage')
           where b.duty = $2)"
    );
    let has_bounds: bool = sqlx::query_scalar(AssertSqlSafe(text))
        .bind(&role)
        .bind(duty.name())
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    if all.iter().any(|one| one.starts_with("everything: ")) {
        return Ok(Vec::new());
    }
    let bounds = (!has_bounds).then(|| "its row of role_bounds".to_owned());
    let lacking = permissions(duty).into_iter().filter(|one| !all.contains(one));
    Ok(bounds.into_iter().chain(lacking).collect())
}

async fn beyond(inner: Arc<Inner>, duty: Duty, role: String) -> Result<Vec<String>, StoreError> {
    let schema = &inner.sql.schema;
    let mut transaction = inner.begin().await?;
    let mut granted = duties(&mut transaction, schema, &role).await?;
    granted.push(duty);
    let mut expected: BTreeSet<String> = granted.iter().copied().flat_map(permissions).collect();
    if granted.iter().any(|duty| duty.sees_every_tenant()) {
        expected.insert(EVERY_TENANT.to_owned());
    }
    check_exists(&mut transaction, &role, "").await?;
    let mut all = permissions_of(&mut transaction, schema, &role).await?;
    if granted.contains(&Duty::Api) && !row_security::is_on(&mut transaction, schema).await? {
        all.push(format!(
            "{EVERY_TENANT}: row-level security is off (run: pillarbox migrate --row-security)"
        ));
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(all.into_iter().filter(|one| !expected.contains(one)).collect())
}

/// What a role may do in an outbox, in the words of the statement.
pub(in crate::stores::postgres) async fn permissions_of(
    transaction: &mut Transaction,
    schema: &str,
    role: &str,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(PERMISSIONS)
        .bind(role)
        .bind(schema)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)
}

/// What the statements of a duty grant, in the words of `permissions.sql`.
pub(super) fn permissions(duty: Duty) -> BTreeSet<String> {
    let grants = duty
        .statements()
        .split(';')
        .filter_map(|one| one.trim().strip_prefix("grant "));
    grants.flat_map(granted).collect()
}

/// The tables on which the statements of a duty grant something.
pub(super) fn relations(duty: Duty) -> BTreeSet<String> {
    permissions(duty)
        .iter()
        .filter(|one| !one.starts_with("execute "))
        .filter_map(|one| one.split_once(" on "))
        .map(|(_, object)| object.to_owned())
        .collect()
}

/// `select, insert (a, b) on table x, y to role`: each privilege on each object, column by column.
fn granted(grant: &str) -> Vec<String> {
    let Some((privileges, target)) = grant.rsplit_once(" on ") else {
        return Vec::new();
    };
    let target = target.split(" to ").next().unwrap_or_default();
    let objects = ["schema ", "sequence ", "function ", "procedure "]
        .iter()
        .find_map(|kind| target.strip_prefix(kind))
        .unwrap_or(target);
    let objects = objects
        .split(", ")
        .map(|object| match object.strip_prefix("pillarbox.") {
            Some(object) => object.to_owned(),
            None => "the schema".to_owned(),
        });
    let objects: Vec<String> = objects.collect();
    let privileges: Vec<String> = match privileges.split_once('(') {
        Some((privilege, columns)) => columns
            .trim_end_matches(')')
            .split(',')
            .map(|column| format!("{} ({})", privilege.trim(), column.trim()))
            .collect(),
        None => privileges.split(", ").map(str::to_owned).collect(),
    };
    let on = |object: &String| -> Vec<String> {
        privileges
            .iter()
            .map(|privilege| format!("{privilege} on {object}"))
            .collect()
    };
    objects.iter().flat_map(on).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_privilege_by_privilege() {
        let writer = permissions(Duty::Writer);
        for expected in [
            "usage on the schema",
            "insert (seq) on outbox_events",
            "insert (next_attempt_at) on outbox_events",
            "select (dedupe_key) on outbox_events",
            "usage on outbox_seq",
        ] {
            assert!(writer.contains(expected), "{expected}: {writer:?}");
        }
        assert_eq!(writer.len(), 2 + 19 + 5);
        let dispatcher = permissions(Duty::Dispatcher);
        assert!(dispatcher.contains("delete on lane_ranges"), "{dispatcher:?}");
        assert!(dispatcher.contains("execute on wait"), "{dispatcher:?}");
    }
}
