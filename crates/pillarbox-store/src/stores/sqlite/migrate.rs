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
use crate::stores::migration::{Migrated, Migration, newest, version_of};

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
    for migration in migrations() {
        let Migration { version, name, sql } = migration;
        script += &format!("\n-- Migration {version}: {name}\n\n{}\n", sql.trim_end());
        script += &format!(
            "\ninsert into pillarbox_migrations (version, name, checksum) values ({version}, '{name}', '{}');\n",
            migration.checksum()
        );
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
    newest(&MIGRATIONS)
}

impl Sqlite {
    /// Runs the migrations that the file does not have. Safe to run again, and by several processes at once.
    ///
    /// # Errors
    /// When the schema is newer than this program or of another build, or the file cannot be written.
    pub async fn migrate(&self) -> Result<Migrated, StoreError> {
        self.migrate_as(&program()).await
    }

    /// The same for an actor, whose name and reason the [audit](crate::audit) has. [`migrate`](Self::migrate) writes the
    /// program's name.
    ///
    /// # Errors
    /// As for [`migrate`](Self::migrate).
    pub async fn migrate_as(&self, actor: &Actor) -> Result<Migrated, StoreError> {
        self.apart(migrate(self.writer.clone(), actor.clone())).await?
    }

    pub(super) async fn check_version(&self) -> Result<(), StoreError> {
        let Some(applied) = self.apart(outbox(self.readers.clone())).await? else {
            return Err(StoreError::Missing(self.path.to_string()));
        };
        let (found, needed) = (version_of(&applied, &MIGRATIONS)?, known());
        if found < needed {
            return Err(StoreError::Outdated { found, needed });
        }
        Ok(())
    }
}

/// Changes nothing if the schema is not that of this program. The inner error says why.
async fn migrate(writer: SqlitePool, actor: Actor) -> Result<Result<Migrated, StoreError>, sqlx::Error> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(MIGRATIONS_TABLE).execute(&mut *tx).await?;
    let (applied, _) = applied(&mut tx).await?;
    let from = match version_of(&applied, &MIGRATIONS) {
        Ok(from) => from,
        Err(error) => return Ok(Err(error)),
    };
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > from) {
        apply(&mut tx, migration).await?;
    }
    if from < known() {
        let line = Line::migrated(&actor, "main", from, known());
        audit::write(&mut tx, line).await?;
    }
    tx.commit().await?;
    Ok(Ok(Migrated { from, to: known() }))
}

async fn apply(connection: &mut SqliteConnection, migration: &Migration) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(migration.sql).execute(&mut *connection).await?;
    sqlx::query("insert into pillarbox_migrations (version, name, checksum) values (?1, ?2, ?3)")
        .bind(migration.version)
        .bind(migration.name)
        .bind(migration.checksum())
        .execute(connection)
        .await?;
    tracing::info!(
        version = migration.version,
        name = migration.name,
        "schema migrated"
    );
    Ok(())
}

/// The migrations of the outbox, or `None` if there is none.
async fn outbox(readers: SqlitePool) -> Result<Option<Vec<Applied>>, sqlx::Error> {
    let mut connection = readers.acquire().await?;
    match applied(&mut connection).await {
        Ok((applied, is_there)) => Ok((is_there && !applied.is_empty()).then_some(applied)),
        Err(sqlx::Error::Database(error)) if error.message().contains("no such table") => Ok(None),
        Err(error) => Err(error),
    }
}

/// The version of an applied migration, and its checksum.
type Applied = (i32, Option<String>);

/// The applied migrations, and whether there is a table of events.
async fn applied(connection: &mut SqliteConnection) -> Result<(Vec<Applied>, bool), sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/version.sql"))
        .persistent(false)
        .fetch_all(connection)
        .await?;
    let mut applied = Vec::new();
    let mut is_there = false;
    for row in &rows {
        is_there = row.try_get("there")?;
        if let Some(version) = row.try_get("version")? {
            // Earlier builds had no such column.
            applied.push((version, row.try_get("checksum").unwrap_or_default()));
        }
    }
    Ok((applied, is_there))
}
