//! Who owns an outbox, and who else may create in its schema.
//!
//! The functions of an outbox run as its owner. So nobody else may create functions in its schema, and everything in it belongs
//! to one role: the owner of the schema. Best it is a role that cannot log in.
//!
//! **If we die here** nothing is changed: it is the transaction of the migration.

use std::sync::Arc;

use sqlx::Row;

use super::grants::permissions_of;
use super::migrate::execute;
use super::{Inner, Postgres, Transaction, store_error};
use crate::store::StoreError;
use pillarbox::internal::schema::quoted;

const GIVE: &str = include_str!("sql/give.sql");
const CREATORS: &str = include_str!("sql/creators.sql");
const PLANTED: &str = include_str!("sql/planted.sql");

/// Makes sure that there is a schema whose owner alone may create in it, with an outbox or empty, and runs the rest of the
/// transaction as its owner.
/// With `wanted`, the schema and everything in it is given to that role. Returns the former owner, if it was given.
pub(super) async fn become_owner(
    transaction: &mut Transaction,
    schema: &str,
    wanted: Option<&str>,
) -> Result<Option<String>, StoreError> {
    if let Some(wanted) = wanted {
        check_owner(transaction, wanted).await?;
    }
    check_planted(transaction, schema).await?;
    // CREATE SCHEMA IF NOT EXISTS needs the permission to create even if the schema exists.
    let former = match (owner(transaction, schema).await?, wanted) {
        (None, wanted) => {
            let authorization = wanted.map(|owner| format!(" authorization {}", quoted(owner)));
            let create = format!("create schema \"{schema}\"{}", authorization.unwrap_or_default());
            execute(transaction, create).await?;
            None
        }
        (Some(owner), Some(wanted)) if owner != wanted => {
            give(transaction, schema, wanted).await?;
            Some(owner)
        }
        (Some(_), _) => None,
    };
    check_creators(transaction, schema).await?;
    let Some(owner) = owner(transaction, schema).await? else {
        return Err(StoreError::Missing(format!("schema \"{schema}\"")));
    };
    execute(transaction, format!("set local role {}", quoted(&owner)))
        .await
        .map_err(|error| match error {
            StoreError::Denied(_) => StoreError::Denied(format!(
                "the schema \"{schema}\" belongs to the role {owner:?} (migrate as that role, or as a member of it)"
            )),
            other => other,
        })?;
    Ok(former)
}

/// Fails if other roles than the owner of the schema may create in it.
pub(super) async fn check_creators(transaction: &mut Transaction, schema: &str) -> Result<(), StoreError> {
    let creators: Vec<String> = sqlx::query_scalar(CREATORS)
        .bind(schema)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    if creators.is_empty() {
        return Ok(());
    }
    let creators = creators.join(", ");
    Err(StoreError::Unsafe(format!(
        "others than the owner may create in the schema \"{schema}\", and what they create could run as the owner: {creators} \
         (run: revoke create on schema \"{schema}\" from {creators})"
    )))
}

/// Fails if the schema has no outbox yet and is not empty: triggers and functions that are there would run as the owner.
async fn check_planted(transaction: &mut Transaction, schema: &str) -> Result<(), StoreError> {
    let planted: Vec<String> = sqlx::query_scalar(PLANTED)
        .bind(schema)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    if planted.is_empty() {
        return Ok(());
    }
    let planted = planted.join(", ");
    Err(StoreError::Unsafe(format!(
        "the schema \"{schema}\" has no outbox, but is not empty, and what is there could run as the owner: {planted} \
         (give the outbox a schema of its own, or drop them)"
    )))
}

/// The owner of an existing schema.
async fn owner(transaction: &mut Transaction, schema: &str) -> Result<Option<String>, StoreError> {
    let text = "select pg_get_userbyid(nspowner)::text from pg_namespace where nspname = $1::text::name";
    sqlx::query_scalar(text)
        .bind(schema)
        .persistent(false)
        .fetch_optional(&mut **transaction)
        .await
        .map_err(store_error)
}

async fn check_owner(transaction: &mut Transaction, owner: &str) -> Result<(), StoreError> {
    let can_log_in: Option<bool> =
        sqlx::query_scalar("select rolcanlogin from pg_roles where rolname = $1::text::name")
            .bind(owner)
            .persistent(false)
            .fetch_optional(&mut **transaction)
            .await
            .map_err(store_error)?;
    let role = quoted(owner);
    match can_log_in {
        Some(false) => Ok(()),
        Some(true) => Err(StoreError::Invalid(format!(
            "the role {owner:?} may log in, so it is no safe owner of the outbox (run: alter role {role} nologin)"
        ))),
        None => Err(StoreError::Invalid(format!(
            "the role {owner:?} does not exist (run: create role {role} nologin; grant {role} to current_user)"
        ))),
    }
}

/// Gives the schema and everything in it to another role. Privileges that others have stay.
async fn give(transaction: &mut Transaction, schema: &str, owner: &str) -> Result<(), StoreError> {
    let statements = sqlx::query(GIVE)
        .bind(schema)
        .bind(owner)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    for statement in statements {
        execute(transaction, statement.try_get(0).map_err(store_error)?).await?;
    }
    Ok(())
}

impl Postgres {
    /// May the current role enqueue by the functions?
    ///
    /// # Errors
    /// When there is no outbox, or the database is unavailable.
    pub async fn may_call_functions(&self) -> Result<bool, StoreError> {
        self.run(may_call_functions(self.inner.clone())).await
    }

    /// Fails unless the current role owns the outbox, or is a member of its owner. Without an outbox it says nothing.
    ///
    /// # Errors
    /// When another role owns it, or the database is unavailable.
    pub async fn check_owned(&self) -> Result<(), StoreError> {
        self.run(check_owned(self.inner.clone())).await
    }

    /// Why the bounds of roles are weak in this outbox: its owner is a superuser that may log in.
    ///
    /// # Errors
    /// When the database is unavailable.
    pub async fn owner_risk(&self) -> Result<Option<String>, StoreError> {
        self.run(owner_risk(self.inner.clone())).await
    }

    /// Why no grant confines the current role, such as `it is a superuser`. That it owns the outbox itself is not listed.
    ///
    /// # Errors
    /// When the database is unavailable.
    pub async fn unbound(&self) -> Result<Vec<String>, StoreError> {
        self.run(unbound(self.inner.clone())).await
    }
}

async fn check_owned(inner: Arc<Inner>) -> Result<(), StoreError> {
    let mut transaction = inner.begin().await?;
    let text = "select pg_get_userbyid(nspowner)::text, current_user::text, pg_has_role(nspowner, 'usage')
      from pg_namespace where nspname = $1::text::name";
    let found: Option<(String, String, bool)> = sqlx::query_as(text)
        .bind(&inner.sql.schema)
        .persistent(false)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    match found {
        Some((owner, role, false)) => Err(StoreError::Denied(format!(
            "the outbox belongs to the role {owner:?}, and this is {role:?} (run it as {owner:?} or as a member of it)"
        ))),
        Some((_, _, true)) | None => Ok(()),
    }
}

async fn owner_risk(inner: Arc<Inner>) -> Result<Option<String>, StoreError> {
    let mut transaction = inner.begin().await?;
    let text = "select rolname::text from pg_namespace join pg_roles on pg_roles.oid = nspowner
      where nspname = $1::text::name and rolsuper and rolcanlogin";
    let owner: Option<String> = sqlx::query_scalar(text)
        .bind(&inner.sql.schema)
        .persistent(false)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(owner.map(|owner| {
        format!(
            "the outbox belongs to {owner:?}, a superuser that may log in: when it analyses a table of another role, code of \
             that role may act as the owner (give the outbox to a role that cannot log in: pillarbox migrate --owner ROLE)"
        )
    }))
}

async fn may_call_functions(inner: Arc<Inner>) -> Result<bool, StoreError> {
    let mut transaction = inner.begin().await?;
    let function = format!("\"{}\".enqueue_many(jsonb, boolean)", inner.sql.schema);
    // A superuser that does not own them must set its role first.
    let text = "select has_function_privilege(p.oid, 'execute') and (r.oid = p.proowner or not r.rolsuper)
      from pg_proc p, pg_roles r where p.oid = $1::text::regprocedure and r.rolname = current_user";
    let may = sqlx::query_scalar(text)
        .bind(function)
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    Ok(may)
}

async fn unbound(inner: Arc<Inner>) -> Result<Vec<String>, StoreError> {
    let mut transaction = inner.begin().await?;
    let role: String = sqlx::query_scalar("select current_user::text")
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    let all = permissions_of(&mut transaction, &inner.sql.schema, &role).await?;
    transaction.commit().await.map_err(store_error)?;
    let reasons = all.iter().filter_map(|one| one.strip_prefix("everything: "));
    Ok(reasons
        .filter(|reason| *reason != "it is the owner of the outbox")
        .map(str::to_owned)
        .collect())
}
