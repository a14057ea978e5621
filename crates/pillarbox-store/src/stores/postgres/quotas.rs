//! Sets, removes and lists quotas, as the owner of the outbox.
//!
//! What a quota costs at enqueue exists only while there are quotas: an index of unfinished rows for each kind, and triggers.
//! An index is created `concurrently` before the first quota of its kind. All else is one transaction, which waits for a lock
//! only a second at a time, as a migration does.
//!
//! **If we die here** an index may stay behind without a quota. The next `pillarbox quota` that changes something uses or drops it.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::migrate::{LockWait, begin_change, bound_locks, execute, one_at_a_time};
use super::{Inner, Postgres, Transaction, audit, event_index, store_error};
use crate::actor::{Actor, OperateError, Permission};
use crate::audit::Line;
use crate::quotas::{Holder, MAX_PENDING, QuotaRecord};
use crate::store::StoreError;

const ROLE_INDEX: &str = "outbox_events_by_role";
const TENANT_INDEX: &str = "outbox_events_by_tenant";

impl Postgres {
    /// Sets how many pending events a role or a tenant may have. Returns what it was before. The first quota of a kind creates
    /// an index of events, which may take as long as other transactions are open.
    ///
    /// # Errors
    /// When the number is zero or more than [`MAX_PENDING`], the role does not exist, or the current role does not own the
    /// outbox.
    pub async fn set_quota(
        &self,
        actor: &Actor,
        holder: &Holder,
        max_pending: u64,
    ) -> Result<Option<u64>, StoreError> {
        if max_pending == 0 || max_pending > MAX_PENDING {
            return Err(StoreError::Invalid(format!(
                "a quota of {max_pending} pending events is out of range (1 to {MAX_PENDING})"
            )));
        }
        self.run_long(set(
            self.inner.clone(),
            actor.clone(),
            holder.clone(),
            max_pending,
        ))
        .await
    }

    /// Removes a quota. Returns what it was.
    ///
    /// # Errors
    /// When the current role does not own the outbox.
    pub async fn remove_quota(&self, actor: &Actor, holder: &Holder) -> Result<Option<u64>, StoreError> {
        self.run_long(remove(self.inner.clone(), actor.clone(), holder.clone()))
            .await
    }

    /// Lists quotas, roles first, and counts what is pending of each. Tenants that exceed the quota of each tenant are listed too.
    ///
    /// # Errors
    /// When the actor lacks a permission, or the database does not answer.
    pub async fn quotas(&self, actor: &Actor, limit: usize) -> Result<Vec<QuotaRecord>, OperateError> {
        actor.may_in_system(Permission::Read)?;
        Ok(self.run(list(self.inner.clone(), limit)).await?)
    }
}

async fn set(
    inner: Arc<Inner>,
    actor: Actor,
    holder: Holder,
    max_pending: u64,
) -> Result<Option<u64>, StoreError> {
    let (index, create) = match holder {
        Holder::Role(_) => (ROLE_INDEX, &inner.sql.role_index),
        Holder::EachTenant | Holder::Tenant(_) => (TENANT_INDEX, &inner.sql.tenant_index),
    };
    let mut locks = LockWait::default();
    loop {
        event_index::ensure(&inner, index, create).await?;
        let set = try_set(&inner, &actor, &holder, max_pending).await;
        // Without a value, the last quota of this kind was removed meanwhile, and the index with it.
        if let Some(before) = locks.done(&inner, set).await.transpose()?.flatten() {
            return Ok(before);
        }
    }
}

/// Sets a quota if there is an index for it.
async fn try_set(
    inner: &Inner,
    actor: &Actor,
    holder: &Holder,
    max_pending: u64,
) -> Result<Option<Option<u64>>, StoreError> {
    let mut transaction = begin_change(inner).await?;
    check_role(&mut transaction, holder).await?;
    let before = lock(inner, &mut transaction, holder).await?;
    let set = format!(
        "insert into \"{}\".quotas (kind, name, max_pending) values ($1, $2, $3)
         on conflict (kind, name) do update set max_pending = excluded.max_pending",
        inner.sql.schema
    );
    sqlx::query(AssertSqlSafe(set))
        .bind(holder.kind())
        .bind(holder.name())
        .bind(i64::try_from(max_pending).unwrap_or(i64::MAX))
        .persistent(false)
        .execute(&mut *transaction)
        .await
        .map_err(store_error)?;
    let there = There::look(inner, &mut transaction).await?;
    if !there.has_indexes() {
        transaction.rollback().await.map_err(store_error)?;
        return Ok(None);
    }
    forget_counts(inner, &mut transaction, holder).await?;
    there.adjust(inner, &mut transaction).await?;
    if before != Some(max_pending) {
        let line = Line::quota(actor, holder, before, Some(max_pending));
        audit::write(inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(Some(before))
}

async fn remove(inner: Arc<Inner>, actor: Actor, holder: Holder) -> Result<Option<u64>, StoreError> {
    let mut locks = LockWait::default();
    loop {
        let removed = try_remove(&inner, &actor, &holder).await;
        if let Some(done) = locks.done(&inner, removed).await {
            return done;
        }
    }
}

async fn try_remove(inner: &Inner, actor: &Actor, holder: &Holder) -> Result<Option<u64>, StoreError> {
    let mut transaction = begin_change(inner).await?;
    let before = lock(inner, &mut transaction, holder).await?;
    let remove = format!(
        "delete from \"{}\".quotas where kind = $1 and name = $2",
        inner.sql.schema
    );
    sqlx::query(AssertSqlSafe(remove))
        .bind(holder.kind())
        .bind(holder.name())
        .persistent(false)
        .execute(&mut *transaction)
        .await
        .map_err(store_error)?;
    forget_counts(inner, &mut transaction, holder).await?;
    let there = There::look(inner, &mut transaction).await?;
    there.adjust(inner, &mut transaction).await?;
    if before.is_some() {
        let line = Line::quota(actor, holder, before, None);
        audit::write(inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(before)
}

/// A misspelt name would limit no role.
async fn check_role(transaction: &mut Transaction, holder: &Holder) -> Result<(), StoreError> {
    let Holder::Role(role) = holder else {
        return Ok(());
    };
    let exists: bool = sqlx::query_scalar("select exists (select from pg_roles where rolname = $1)")
        .bind(role)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)?;
    if exists {
        return Ok(());
    }
    Err(StoreError::Invalid(format!("role {role:?} does not exist")))
}

/// One change of quotas at a time. Returns the holder's quota.
async fn lock(
    inner: &Inner,
    transaction: &mut Transaction,
    holder: &Holder,
) -> Result<Option<u64>, StoreError> {
    let schema = &inner.sql.schema;
    one_at_a_time(transaction).await?;
    bound_locks(transaction).await?;
    let lock = format!("lock table \"{schema}\".quotas in share row exclusive mode");
    execute(transaction, lock).await?;
    let text = format!("select max_pending from \"{schema}\".quotas where kind = $1 and name = $2");
    let before: Option<i64> = sqlx::query_scalar(AssertSqlSafe(text))
        .bind(holder.kind())
        .bind(holder.name())
        .persistent(false)
        .fetch_optional(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(before.map(i64::unsigned_abs))
}

/// Nothing is refused because of the old quota. A worker counts again within seconds.
async fn forget_counts(
    inner: &Inner,
    transaction: &mut Transaction,
    holder: &Holder,
) -> Result<(), StoreError> {
    let text = format!(
        "delete from \"{}\".over_quota where kind = $1 and (name = $2 or $2 = '')",
        inner.sql.schema
    );
    sqlx::query(AssertSqlSafe(text))
        .bind(holder.kind())
        .bind(holder.name())
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// Which quotas are there, and what is there for them.
struct There {
    roles: bool,
    tenants: bool,
    has_role_index: bool,
    has_tenant_index: bool,
    notes_role: bool,
    checks: bool,
}

impl There {
    async fn look(inner: &Inner, transaction: &mut Transaction) -> Result<Self, StoreError> {
        let row = sqlx::raw_sql(inner.sql.quota_state(Uuid::nil()).safe())
            .fetch_one(&mut **transaction)
            .await
            .map_err(store_error)?;
        let is = |column| row.try_get::<bool, _>(column).map_err(store_error);
        Ok(Self {
            roles: is("roles")?,
            tenants: is("tenants")?,
            has_role_index: is("has_role_index")?,
            has_tenant_index: is("has_tenant_index")?,
            notes_role: is("notes_role")?,
            checks: is("checks")?,
        })
    }

    /// Is there a valid index for each kind of quotas?
    fn has_indexes(&self) -> bool {
        (!self.roles || self.has_role_index) && (!self.tenants || self.has_tenant_index)
    }

    /// Creates the triggers that the quotas need, and drops what no quota needs.
    async fn adjust(&self, inner: &Inner, transaction: &mut Transaction) -> Result<(), StoreError> {
        let schema = &inner.sql.schema;
        let triggers = [
            ("note_role", self.roles, self.notes_role, &inner.sql.note_role),
            (
                "check_quotas",
                self.roles || self.tenants,
                self.checks,
                &inner.sql.check_quotas,
            ),
        ];
        for (name, wanted, is_there, create) in triggers {
            match (wanted, is_there) {
                (true, false) => execute(transaction, create.text().to_owned()).await?,
                (false, true) => {
                    let drop = format!("drop trigger {name} on \"{schema}\".outbox_events");
                    execute(transaction, drop).await?;
                }
                (true, true) | (false, false) => {}
            }
        }
        for (name, wanted) in [(ROLE_INDEX, self.roles), (TENANT_INDEX, self.tenants)] {
            if !wanted {
                let drop = format!("drop index if exists \"{schema}\".{name}");
                execute(transaction, drop).await?;
            }
        }
        Ok(())
    }
}

async fn list(inner: Arc<Inner>, limit: usize) -> Result<Vec<QuotaRecord>, StoreError> {
    let mut transaction = inner.begin().await?;
    let there = There::look(&inner, &mut transaction).await?;
    if !there.has_indexes() {
        return Err(StoreError::Other(
            "quotas cannot be counted: an index of events is missing or invalid (run `pillarbox quota set` again)"
                .to_owned(),
        ));
    }
    let rows = sqlx::query(inner.sql.quotas.safe())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await
        .map_err(store_error)?;
    transaction.commit().await.map_err(store_error)?;
    rows.iter()
        .map(|row| {
            Ok(QuotaRecord {
                kind: row.try_get("kind")?,
                name: Some(row.try_get("name")?).filter(|name: &String| !name.is_empty()),
                max_pending: row.try_get::<i64, _>("max_pending")?.unsigned_abs(),
                pending: row.try_get::<Option<i64>, _>("pending")?.map(i64::unsigned_abs),
                exceeded: row.try_get("is_over")?,
                own: row.try_get("is_own")?,
            })
        })
        .collect::<Result<_, sqlx::Error>>()
        .map_err(store_error)
}
