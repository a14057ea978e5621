//! Migrates the schema to the version of this program.
//!
//! One transaction holds the file's write lock. If two processes migrate at once, the second waits and finds nothing to do.
//!
//! **If we die here** the schema is as it was.

use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{Sqlite, audit};
use crate::actor::Actor;
use crate::audit::{Line, program};
use crate::store::StoreError;
use crate::stores::migration::{Migrated, Migration};

const MIGRATIONS_TABLE: &str = include_str!("sql/migrations_table.sql");

const MIGRATIONS: [Migration; 1] = [Migration {
    version: 1,
    name: "outbox",
    sql: include_str!("migrations/0001_outbox.sql"),
}];

/// All migrations, in order.
pub fn migrations() -> &'static [Migration] {
    &MIGRATIONS
}

/// All migrations as one script for the `sqlite3` shell, if a DBA reviews schema changes.
pub fn script() -> String {
    let mut script = format!("begin immediate;\n\n{};\n", MIGRATIONS_TABLE.trim_end());
    for Migration { version, name, sql } in migrations() {
        script += &format!("\n-- Migration {version}: {name}\n\n{}\n", sql.trim_end());
        script +=
            &format!("\ninsert into pillarbox_migrations (version, name) values ({version}, '{name}');\n");
    }
    script += &format!(
        "\ninsert into pillarbox_audit (subject, kind, action, objects, count, \"before\", \"after\", reason)\n\
         values ('sqlite3', 'operator', 'migrate', '[\"main\"]', 1, '{{\"version\": 0}}', '{{\"version\": {}}}', \
         'migrated by a script');\n",
        known()
    );
    script + "\ncommit;\n"
}

/// The version that this program needs.
fn known() -> i32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

impl Sqlite {
    /// Runs the migrations that the file does not have. Safe to run again, and by several processes at once.
    ///
    /// # Errors
    /// When the schema is newer than this program, or the file cannot be written.
    pub async fn migrate(&self) -> Result<Migrated, StoreError> {
        self.migrate_as(&program()).await
    }

    /// The same for an actor, whose name and reason the [audit](crate::audit) has. [`migrate`](Self::migrate) writes the
    /// program's name.
    ///
    /// # Errors
    /// When the schema is newer than this program, or the file cannot be written.
    pub async fn migrate_as(&self, actor: &Actor) -> Result<Migrated, StoreError> {
        let migrated = self.apart(migrate(self.writer.clone(), actor.clone())).await?;
        if migrated.from > known() {
            return Err(StoreError::Newer {
                found: migrated.from,
                known: known(),
            });
        }
        Ok(migrated)
    }

    pub(super) async fn check_version(&self) -> Result<(), StoreError> {
        let found = self.apart(version(self.readers.clone())).await?;
        match found {
            None => Err(StoreError::Missing(self.path.to_string())),
            Some(found) if found < known() => Err(StoreError::Outdated {
                found,
                needed: known(),
            }),
            Some(found) if found > known() => Err(StoreError::Newer {
                found,
                known: known(),
            }),
            Some(_) => Ok(()),
        }
    }
}

/// Changes nothing if the schema is newer; the caller sees it in `from`.
async fn migrate(writer: SqlitePool, actor: Actor) -> Result<Migrated, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(MIGRATIONS_TABLE).execute(&mut *tx).await?;
    let from: i32 = sqlx::query_scalar("select coalesce(max(version), 0) from pillarbox_migrations")
        .fetch_one(&mut *tx)
        .await?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > from) {
        apply(&mut tx, migration).await?;
    }
    if from < known() {
        let line = Line::migrated(&actor, "main", from, known());
        audit::write(&mut tx, line).await?;
    }
    tx.commit().await?;
    Ok(Migrated {
        from,
        to: from.max(known()),
    })
}

async fn apply(connection: &mut SqliteConnection, migration: &Migration) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(migration.sql).execute(&mut *connection).await?;
    sqlx::query("insert into pillarbox_migrations (version, name) values (?1, ?2)")
        .bind(migration.version)
        .bind(migration.name)
        .execute(connection)
        .await?;
    tracing::info!(
        version = migration.version,
        name = migration.name,
        "schema migrated"
    );
    Ok(())
}

/// The version of the outbox, or `None` if there is none.
async fn version(readers: SqlitePool) -> Result<Option<i32>, sqlx::Error> {
    let row = match sqlx::query(include_str!("sql/version.sql"))
        .fetch_one(&readers)
        .await
    {
        Err(sqlx::Error::Database(error)) if error.message().contains("no such table") => return Ok(None),
        row => row?,
    };
    let (version, there): (i32, bool) = (row.try_get("version")?, row.try_get("there")?);
    Ok(there.then_some(version))
}
