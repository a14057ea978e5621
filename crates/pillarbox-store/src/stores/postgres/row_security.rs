//! Switches row-level security on and off, and finds roles from which it hides rows. The policies are functions of the schema.
//!
//! Two indexes of a tenant's rows exist only while it is on, because they cost every enqueue. They are created `concurrently` before,
//! and dropped afterwards. All else is one transaction, which waits for a lock only a second at a time, as a migration does.
//!
//! **If we die here** an index may stay behind. The next switch uses or drops it.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::migrate::{LockWait, begin_change, bound_locks, execute, one_at_a_time};
use super::sql::Sql;
use super::{Inner, Postgres, Transaction, audit, event_index, store_error};
use crate::actor::Actor;
use crate::audit::Line;
use crate::store::StoreError;
use pillarbox::internal::schema::check_name;

/// The indexes of a tenant's rows: for its pages, and for what is not delivered.
const INDEXES: [&str; 2] = ["outbox_events_of_tenant", "outbox_events_open_of_tenant"];

const HIDDEN: &str = include_str!("sql/hidden.sql");

/// Row-level security as a script for `psql`. It runs outside of a transaction, because it creates indexes beside the work of others.
///
/// # Errors
/// When the name of the schema is invalid.
pub fn row_security_script(schema: &str, on: bool) -> Result<String, StoreError> {
    check_name(schema)?;
    let switch = switch_to(schema, on);
    Ok(if on {
        create_indexes(schema)? + &switch
    } else {
        let drop = INDEXES.map(|name| format!("drop index if exists \"{schema}\".{name};\n"));
        switch + &drop.concat()
    })
}

/// The statements that create the indexes of a tenant's rows.
pub(super) fn create_indexes(schema: &str) -> Result<String, StoreError> {
    check_name(schema)?;
    let sql = Sql::new(schema)?;
    let create = indexes(&sql).map(|(_, create)| create.text().trim_end().to_owned() + ";\n");
    Ok(create.concat())
}

/// The statement that switches it on or off.
pub(super) fn switch_to(schema: &str, on: bool) -> String {
    format!("select \"{schema}\".set_row_security({on});\n")
}

fn indexes(sql: &Sql) -> [(&'static str, &super::sql::Statement); 2] {
    let [pages, open] = INDEXES;
    [(pages, &sql.tenant_pages_index), (open, &sql.tenant_open_index)]
}

impl Postgres {
    /// Switches row-level security on or off for every table with rows of tenants. Returns whether it was on. To create the indexes of
    /// a tenant's rows may take as long as other transactions are open.
    ///
    /// # Errors
    /// When the current role does not own the outbox. When it is to be off and a role of an API exists, which it confines.
    pub async fn set_row_security(&self, actor: &Actor, on: bool) -> Result<bool, StoreError> {
        self.run_long(set(self.inner.clone(), actor.clone(), on)).await
    }

    /// Is row-level security on?
    ///
    /// # Errors
    /// When the current role may not use the schema, or the database is unavailable.
    pub async fn has_row_security(&self) -> Result<bool, StoreError> {
        let inner = self.inner.clone();
        self.run(async move {
            let mut transaction = inner.begin().await?;
            let is_on = is_on(&mut transaction, &inner.sql.schema).await?;
            transaction.commit().await.map_err(store_error)?;
            Ok(is_on)
        })
        .await
    }
}

async fn set(inner: Arc<Inner>, actor: Actor, on: bool) -> Result<bool, StoreError> {
    if on {
        ensure_indexes(&inner).await?;
    }
    let mut locks = LockWait::default();
    loop {
        let set = try_set(&inner, &actor, on).await;
        if let Some(done) = locks.done(&inner, set).await {
            if on && done.is_ok() {
                ensure_indexes(&inner).await?;
            }
            return done;
        }
    }
}

async fn try_set(inner: &Inner, actor: &Actor, on: bool) -> Result<bool, StoreError> {
    let mut transaction = begin_change(inner).await?;
    one_at_a_time(&mut transaction).await?;
    bound_locks(&mut transaction).await?;
    let was_on = switch(inner, &mut transaction, actor, on).await?;
    if !on {
        for name in INDEXES {
            let drop = format!("drop index if exists \"{}\".{name}", inner.sql.schema);
            execute(&mut transaction, drop).await?;
        }
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(was_on)
}

/// Switches it within a transaction, with a line in the audit if it was not so before.
pub(super) async fn switch(
    inner: &Inner,
    transaction: &mut Transaction,
    actor: &Actor,
    on: bool,
) -> Result<bool, StoreError> {
    let schema = &inner.sql.schema;
    let was_on: bool = sqlx::query_scalar(AssertSqlSafe(format!("select \"{schema}\".set_row_security($1)")))
        .bind(on)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    if was_on != on {
        let line = Line::row_security(actor, schema, was_on, on);
        audit::write(inner, transaction, line).await?;
    }
    Ok(was_on)
}

/// Creates the indexes of a tenant's rows, beside the work of others. Called before row-level security is switched on, so that no tenant
/// reads the whole table, and afterwards: another session may have switched it off in between, and dropped them.
pub(super) async fn ensure_indexes(inner: &Inner) -> Result<(), StoreError> {
    for (name, create) in indexes(&inner.sql) {
        event_index::ensure(inner, name, create).await?;
    }
    Ok(())
}

/// Brings the policies in step with the owner and the duties of roles.
pub(super) async fn keep_policies(transaction: &mut Transaction, schema: &str) -> Result<(), StoreError> {
    execute(transaction, format!("select \"{schema}\".keep_policies()")).await
}

pub(super) async fn is_on(transaction: &mut Transaction, schema: &str) -> Result<bool, StoreError> {
    let text = "select relrowsecurity from pg_class where oid = to_regclass($1)";
    let is_on: Option<bool> = sqlx::query_scalar(text)
        .bind(format!("\"{schema}\".outbox_events"))
        .persistent(false)
        .fetch_optional(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(is_on.unwrap_or_default())
}

/// The tables among these of which rows are hidden from the current role. To such a role they look empty.
pub(super) async fn hidden(
    transaction: &mut Transaction,
    schema: &str,
    tables: &[&str],
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(HIDDEN)
        .bind(schema)
        .bind(tables.to_vec())
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)
}
