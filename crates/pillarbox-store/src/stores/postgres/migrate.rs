//! Migrates the schema to the version of this program.
//!
//! One transaction under an advisory lock. A second run does nothing. If two programs migrate at once, the second waits and
//! then does nothing.
//!
//! A lock on a table is waited for only a second at a time: behind an abandoned `begin` all producers would wait as well.
//!
//! Everything belongs to the owner of the schema, whoever migrates: `owner.rs`.
//!
//! **If we die here** the schema is unchanged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;

use super::pool::silence;
use super::{Inner, Postgres, Transaction, audit, owner, row_security, store_error};
use crate::actor::Actor;
use crate::audit::{Line, program};
use crate::store::StoreError;
use crate::stores::migration::{Migrated, Migration, newest, version_of};
use pillarbox::internal::schema::{check_name, in_schema};

/// The advisory lock of migrations, grants and quotas: "pillarbo" in ASCII.
const LOCK: i64 = 0x7069_6C6C_6172_626F;

/// What a function is bound to when it is created is that of PostgreSQL.
const SEARCH_PATH: &str = "set local search_path = pg_catalog, pg_temp";

const MIGRATIONS_TABLE: &str = include_str!("sql/migrations_table.sql");

/// All migrations, oldest first, for the schema `pillarbox`.
pub fn migrations() -> &'static [Migration] {
    &[Migration {
        version: 1,
        name: "outbox",
        sql: include_str!("migrations/0001_outbox.sql"),
    }]
}

/// All migrations as one script for `psql`, if a DBA reviews schema changes.
///
/// # Errors
/// When the name of the schema is invalid.
pub fn script(schema: &str) -> Result<String, StoreError> {
    check_name(schema)?;
    let mut script = format!("begin;\n\ncreate schema if not exists \"{schema}\";\n{SEARCH_PATH};\n\n");
    script += &in_schema(MIGRATIONS_TABLE, schema);
    for migration in migrations() {
        script += &format!("\n-- Migration {}: {}\n\n", migration.version, migration.name);
        script += &in_schema(migration.sql, schema);
        script += &format!(
            "\ninsert into \"{schema}\".migrations (version, name, checksum) values ({}, '{}', '{}');\n",
            migration.version,
            migration.name,
            migration.checksum()
        );
    }
    script += &format!(
        "\ninsert into \"{schema}\".audit (subject, kind, action, objects, count, before, after, reason)\n\
         values (session_user, 'operator', 'migrate', array['{schema}'], 1, '{{\"version\": 0}}', \
         '{{\"version\": {}}}', 'migrated by a script');\n",
        newest(migrations())
    );
    Ok(script + "\ncommit;\n")
}

impl Postgres {
    /// Runs the migrations that the schema does not have.
    ///
    /// # Errors
    /// When the schema is newer than this program or of another build, the role lacks a permission, or other roles may create
    /// in the schema.
    pub async fn migrate(&self) -> Result<Migrated, StoreError> {
        self.migrate_as(&program()).await
    }

    /// The same for an actor, whose name and reason the [audit](crate::audit) has. [`migrate`](Self::migrate) writes the
    /// program's name.
    ///
    /// # Errors
    /// As for [`migrate`](Self::migrate).
    pub async fn migrate_as(&self, actor: &Actor) -> Result<Migrated, StoreError> {
        self.run_long(migrate(self.inner.clone(), actor.clone(), None))
            .await
    }

    /// The same, and gives the outbox to a role that cannot log in. It stays the owner: a later [`migrate`](Self::migrate)
    /// runs as this role. The current role must be a member of it, or a superuser.
    ///
    /// # Errors
    /// As for [`migrate`](Self::migrate), and when the role does not exist or may log in.
    pub async fn migrate_for(&self, actor: &Actor, owner: &str) -> Result<Migrated, StoreError> {
        let owner = Some(owner.to_owned());
        self.run_long(migrate(self.inner.clone(), actor.clone(), owner))
            .await
    }
}

/// How long DDL waits for a lock. Meanwhile every producer waits behind it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long between two tries, so that producers get their turn.
const LOCK_PAUSE: Duration = Duration::from_secs(2);
/// How often the wait for a lock is logged.
const REPEAT: Duration = Duration::from_secs(60);

async fn migrate(inner: Arc<Inner>, actor: Actor, owner: Option<String>) -> Result<Migrated, StoreError> {
    let mut locks = LockWait::default();
    loop {
        let migrated = try_migrate(&inner, &actor, owner.as_deref()).await;
        if let Some(done) = locks.done(&inner, migrated).await {
            return done;
        }
    }
}

/// For a transaction that changes tables, and is tried again until it gets its locks.
#[derive(Default)]
pub(super) struct LockWait {
    logged: Option<Instant>,
}

impl LockWait {
    /// What it came to. If it did not get a lock, waits until it is time for another try.
    #[expect(clippy::disallowed_methods, reason = "the wait between two tries")]
    pub(super) async fn done<T>(
        &mut self,
        inner: &Inner,
        tried: Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        let error = match tried {
            Err(StoreError::Unavailable(error)) if error.ends_with("(55P03)") => error,
            done => return Some(done),
        };
        if self.logged.is_none_or(|at| at.elapsed() >= REPEAT) {
            tracing::warn!(schema = %inner.sql.schema, error, "change of the schema waits for a lock; retrying");
            self.logged = Some(Instant::now());
        }
        tokio::time::sleep(LOCK_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        None
    }
}

/// Begins a transaction that changes tables.
pub(super) async fn begin_change(inner: &Inner) -> Result<Transaction, StoreError> {
    // A statement may take long. But a program that died must not keep its locks.
    let silence = silence(inner.options.timeout);
    let begin = format!(
        "begin; set local idle_in_transaction_session_timeout = '{silence}ms'; \
         set local statement_timeout = 0; set local lock_timeout = 0"
    );
    inner.begin_with(AssertSqlSafe(begin)).await
}

/// Waits for other changes of an outbox in this database: its tables, and who may use them. PostgreSQL would end one of two GRANTs on a
/// table that run at once.
pub(super) async fn one_at_a_time(transaction: &mut Transaction) -> Result<(), StoreError> {
    sqlx::query("select pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .persistent(false)
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// From here on others may wait for the locks of this transaction.
pub(super) async fn bound_locks(transaction: &mut Transaction) -> Result<(), StoreError> {
    let bound = format!("set local lock_timeout = '{}ms'", LOCK_TIMEOUT.as_millis());
    execute(transaction, bound).await
}

async fn try_migrate(inner: &Inner, actor: &Actor, owner: Option<&str>) -> Result<Migrated, StoreError> {
    let schema = &inner.sql.schema;
    let mut transaction = begin_change(inner).await?;
    one_at_a_time(&mut transaction).await?;
    bound_locks(&mut transaction).await?;
    execute(&mut transaction, SEARCH_PATH.to_owned()).await?;
    let former = owner::become_owner(&mut transaction, schema, owner).await?;
    execute(&mut transaction, in_schema(MIGRATIONS_TABLE, schema)).await?;
    let from = version(&mut transaction, schema).await?;
    let known = newest(migrations());
    for migration in migrations().iter().filter(|migration| migration.version > from) {
        execute(&mut transaction, in_schema(migration.sql, schema)).await?;
        let record =
            format!("insert into \"{schema}\".migrations (version, name, checksum) values ($1, $2, $3)");
        sqlx::query(AssertSqlSafe(record))
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .persistent(false)
            .execute(&mut *transaction)
            .await
            .map_err(store_error)?;
    }
    // The functions of a new owner would see no row.
    row_security::keep_policies(&mut transaction, schema).await?;
    let migrated = (from < known).then(|| Line::migrated(actor, schema, from, known));
    let given = former
        .zip(owner)
        .map(|(former, owner)| Line::given(actor, schema, &former, owner));
    for line in migrated.into_iter().chain(given) {
        audit::write(inner, &mut transaction, line).await?;
    }
    transaction.commit().await.map_err(store_error)?;
    Ok(Migrated { from, to: known })
}

pub(super) async fn execute(transaction: &mut Transaction, sql: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut **transaction)
        .await
        .map_err(store_error)?;
    Ok(())
}

/// Fails for a schema that is not that of this program. Earlier builds had no column for the checksum.
async fn version(transaction: &mut Transaction, schema: &str) -> Result<i32, StoreError> {
    let text = format!("select version, to_jsonb(m) ->> 'checksum' from \"{schema}\".migrations m");
    let applied: Vec<(i32, Option<String>)> = sqlx::query_as(AssertSqlSafe(text))
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    version_of(&applied, migrations())
}

/// Is the outbox there, at the version that this program knows?
pub(super) async fn check(inner: Arc<Inner>) -> Result<(), StoreError> {
    let schema = &inner.sql.schema;
    let mut transaction = inner.begin().await?;
    let exists: bool = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(format!("\"{schema}\".migrations"))
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await
        .map_err(store_error)?;
    if !exists {
        return Err(StoreError::Missing(format!("schema \"{schema}\"")));
    }
    let found = version(&mut transaction, schema).await?;
    owner::check_creators(&mut transaction, schema).await?;
    transaction.commit().await.map_err(store_error)?;
    match (found, newest(migrations())) {
        (0, _) => Err(StoreError::Missing(format!("schema \"{schema}\""))),
        (found, needed) if found < needed => Err(StoreError::Outdated { found, needed }),
        _ => Ok(()),
    }
}
