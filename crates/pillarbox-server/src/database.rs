//! PostgreSQL and SQLite behind one type.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{EnqueueError, Enqueued, Event, Limits, Outbox, StoreError};
use pillarbox_store::stores::migration::Migrated;
use pillarbox_store::stores::postgres::adopt::{AdoptError, Layout, Table, foreign_code};
use pillarbox_store::stores::{postgres, sqlite};
use pillarbox_store::{Actor, Operate, Store};
use sqlx::Connection;
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;

use crate::config;

/// The connections of the HTTP API, and how long one of its reads may take.
const HTTP_CONNECTIONS: u32 = 2;
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// A database's URL or path. Prints without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum DatabaseUrl {
    /// `postgres://…`
    Postgres(Box<postgres::Url>),
    /// `sqlite://path`, or a path.
    Sqlite(PathBuf),
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => {
                let url = text.parse().map_err(|error: StoreError| error.to_string())?;
                Ok(Self::Postgres(Box::new(url)))
            }
            // Parameters of a SQLite URL are ignored: the command decides how to open the file.
            Some(("sqlite", rest)) if !rest.is_empty() => Ok(Self::Sqlite(
                rest.split_once('?').map_or(rest, |(path, _)| path).into(),
            )),
            Some((scheme, _)) => Err(format!(
                "unsupported database `{scheme}://` (use postgres://user@host/database, sqlite://path or a path)"
            )),
            None if text.is_empty() => Err("the database URL is empty".to_owned()),
            None => Self::path(text),
        }
    }
}

impl DatabaseUrl {
    /// A path to a SQLite file. A mistyped URL of PostgreSQL is not a path, and is not printed: it may have a password. Nor is
    /// a bare name, unless it is a file: it may be the name of a database, and would become an empty file.
    fn path(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            return Ok(Self::Sqlite(path.into()));
        }
        let is_mistyped = ["postgres:", "postgresql:", "postgres//", "postgresql//", "@"]
            .into_iter()
            .any(|sign| text.contains(sign));
        // libpq's `host=db password=secret`. A path with `=` can begin with `./`.
        let is_list = text.contains('=') && !text.starts_with(['/', '.']);
        if is_mistyped || is_list {
            return Err(
                "invalid database URL (use postgres://user@host/database, or sqlite://path for a file)"
                    .to_owned(),
            );
        }
        if is_name(text) && !Path::new(text).exists() {
            return Err(format!(
                "`{text}` is neither a URL nor an existing file (use postgres://user@host/{text}, or ./{text} for a SQLite \
                 file)"
            ));
        }
        Ok(Self::Sqlite(text.into()))
    }
}

/// Is it a name, and not a URL or a path?
pub(crate) fn is_name(text: &str) -> bool {
    !text.contains(['/', '.', ':', '\\'])
}

impl DatabaseUrl {
    /// Where to connect: `host:port`, the socket, or the file. Never the password.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Postgres(url) => url.address(),
            Self::Sqlite(path) => path.display().to_string(),
        }
    }

    /// What is not protected on the way to the database.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Postgres(url) => url.warning(),
            Self::Sqlite(_) => None,
        }
    }

    /// Equal for two spellings of one database. Recognises the usual spellings, not all.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Postgres(url) => format!("{}/{}", url.address(), url.database()),
            Self::Sqlite(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                path.display().to_string()
            }
        }
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(url) => fmt::Display::fmt(url, f),
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What to do if a SQLite file does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// Fail: the path may be misspelt.
    Fail,
    /// Create it: it is migrated right away.
    Create,
}

/// A database that holds an outbox, or will hold one.
#[derive(Clone)]
pub(crate) enum Database {
    /// PostgreSQL.
    Postgres(postgres::Postgres),
    /// SQLite.
    Sqlite {
        /// The outbox.
        store: sqlite::Sqlite,
        /// A separate connection to enqueue with, as an application has.
        producer: SqlitePool,
    },
}

impl Database {
    /// Opens the database. PostgreSQL is connected on first use.
    pub(crate) async fn open(config: &config::Database, if_missing: IfMissing) -> Result<Self, StoreError> {
        match &config.url {
            DatabaseUrl::Postgres(url) => {
                let options = postgres::Options {
                    schema: config.schema.clone(),
                    max_connections: config.max_connections,
                    ..postgres::Options::default()
                };
                postgres::Postgres::at((**url).clone(), options).map(Self::Postgres)
            }
            DatabaseUrl::Sqlite(path) => Self::open_file(path, if_missing).await,
        }
    }

    /// The same database for the HTTP API, which must not take the dispatcher's connections. SQLite reads on connections of
    /// their own anyway.
    pub(crate) fn for_http(&self) -> Result<Self, StoreError> {
        match self {
            Self::Postgres(store) => {
                let store = store.with_own_connections(HTTP_CONNECTIONS, HTTP_TIMEOUT)?;
                Ok(Self::Postgres(store))
            }
            Self::Sqlite { .. } => Ok(self.clone()),
        }
    }

    async fn open_file(path: &Path, if_missing: IfMissing) -> Result<Self, StoreError> {
        if if_missing == IfMissing::Fail && !path.exists() {
            return Err(StoreError::Missing(format!("{}: no such file", path.display())));
        }
        let options = sqlite::Options {
            create_if_missing: if_missing == IfMissing::Create,
            ..sqlite::Options::default()
        };
        let name = path.to_string_lossy();
        let store = sqlite::Sqlite::open(&name, options.clone()).await?;
        let producer = producer(&name, &options)?;
        Ok(Self::Sqlite { store, producer })
    }

    /// The dispatcher's port.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Postgres(store) => Arc::new(store.clone()),
            Self::Sqlite { store, .. } => Arc::new(store.clone()),
        }
    }

    /// The operator's port.
    pub(crate) fn operate(&self) -> Arc<dyn Operate> {
        match self {
            Self::Postgres(store) => Arc::new(store.clone()),
            Self::Sqlite { store, .. } => Arc::new(store.clone()),
        }
    }

    /// Is the index for `fair_by` there? SQLite needs none, because its outboxes are small.
    pub(crate) async fn has_fair_index(&self) -> Result<bool, StoreError> {
        match self {
            Self::Postgres(store) => store.has_fair_index().await,
            Self::Sqlite { .. } => Ok(true),
        }
    }

    /// Creates the index for `fair_by`.
    pub(crate) async fn ensure_fair_index(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(store) => store.ensure_fair_index().await,
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Adopts tables, once. The configuration rejects adopted tables in SQLite.
    pub(crate) async fn adopt(&self, tables: &[config::Adopt]) -> Result<(), AdoptError> {
        match self {
            Self::Postgres(store) => {
                let tables: Vec<Table> = tables.iter().map(|adopt| adopt.table.clone()).collect();
                store.adopt(&tables).await
            }
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Checks the role's permissions on the adopted tables.
    pub(crate) async fn check_adopted(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(store) => store.check_adopted().await,
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// What other roles than the trusted ones can run as ours by way of an adopted table.
    pub(crate) async fn foreign_code(
        &self,
        layout: &Layout,
        trusted: &[String],
    ) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Postgres(store) => {
                let mut connection = store.connection().await?;
                foreign_code(&mut connection, layout, store.schema(), trusted).await
            }
            Self::Sqlite { .. } => Ok(Vec::new()),
        }
    }

    /// Why no grant confines the role, such as `it is a superuser`.
    pub(crate) async fn unbound(&self) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Postgres(store) => store.unbound().await,
            Self::Sqlite { .. } => Ok(Vec::new()),
        }
    }

    /// May the role do what a dispatcher does?
    pub(crate) async fn check_dispatcher(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(store) => store.check_dispatcher().await,
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Migrates the schema to the current version.
    pub(crate) async fn migrate(&self, actor: &Actor) -> Result<Migrated, StoreError> {
        match self {
            Self::Postgres(store) => store.migrate_as(actor).await,
            Self::Sqlite { store, .. } => store.migrate_as(actor).await,
        }
    }

    /// Enqueues events in one transaction, all or none.
    pub(crate) async fn enqueue_all(
        &self,
        events: &[Event],
        limits: Limits,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        match self {
            Self::Postgres(store) => {
                let mut connection = store.connection().await?;
                let mut transaction = connection.begin().await.map_err(unavailable)?;
                let mut outbox = store.outbox().limits(limits);
                if store.may_call_functions().await? {
                    outbox = outbox.by_function();
                }
                let enqueued = outbox.enqueue_all(&mut transaction, events).await?;
                transaction.commit().await.map_err(unavailable)?;
                Ok(enqueued)
            }
            Self::Sqlite { producer, .. } => {
                let mut transaction = sqlite::begin(producer).await?;
                let outbox = Outbox::default().limits(limits);
                let enqueued = outbox.enqueue_all(&mut transaction, events).await?;
                transaction.commit().await.map_err(unavailable)?;
                Ok(enqueued)
            }
        }
    }
}

/// An application's connection to the outbox file, opened on first use.
pub(crate) fn producer(path: &str, options: &sqlite::Options) -> Result<SqlitePool, StoreError> {
    let connect = sqlite::connect_options(path, options)?;
    Ok(SqlitePoolOptions::new()
        .max_connections(1)
        .connect_lazy_with(connect))
}

fn unavailable(error: sqlx::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        for url in [
            "postgres://u:secret@host:5432/db",
            "postgresql://host/db?user=u&password=secret",
            "postgres://u@host/db",
        ] {
            let target: DatabaseUrl = url.parse().unwrap();
            assert_eq!(target.to_string(), "postgres://u@host:5432/db?sslmode=prefer");
            assert_eq!(format!("{target:?}"), target.to_string());
        }
    }

    #[test]
    fn spellings_of_one_database_are_equal() {
        let identity = |text: &str| text.parse::<DatabaseUrl>().unwrap().identity();
        assert_eq!(
            identity("postgres://u:p@host:5432/db?sslmode=require"),
            identity("postgresql://other@host/db")
        );
        assert_ne!(identity("postgres://host/a"), identity("postgres://host/b"));
        assert_eq!(identity("./a.db"), identity("sqlite://a.db"));
        assert_ne!(identity("a.db"), identity("b.db"));
    }

    #[test]
    fn a_path_is_a_sqlite_file() {
        for text in [
            "sqlite://a/b.db",
            "sqlite://a/b.db?mode=rwc",
            "sqlite:a/b.db",
            "a/b.db",
            " a/b.db ",
        ] {
            assert_eq!(
                text.parse::<DatabaseUrl>(),
                Ok(DatabaseUrl::Sqlite("a/b.db".into())),
                "{text}"
            );
        }
        assert_eq!(
            "sqlite:///a.db".parse::<DatabaseUrl>(),
            Ok(DatabaseUrl::Sqlite("/a.db".into()))
        );
    }

    #[test]
    fn a_bare_name_is_a_file_only_if_it_exists() {
        let error = "shop".parse::<DatabaseUrl>().unwrap_err();
        assert!(
            error.contains("postgres://user@host/shop") && error.contains("./shop"),
            "{error}"
        );
        // Tests run in the folder of the crate.
        assert_eq!("src".parse(), Ok(DatabaseUrl::Sqlite("src".into())));
        for explicit in ["./shop", "shop.db", "sqlite:shop", "sqlite://shop"] {
            assert!(explicit.parse::<DatabaseUrl>().is_ok(), "{explicit}");
        }
    }

    #[test]
    fn a_mistyped_url_is_rejected_and_not_printed() {
        for url in [
            "postgres:/u:secret@host/db",
            "postgres//u:secret@host/db",
            "postgresql:u:secret@host/db",
            "host=db user=u password=secret",
            "host = db.example.com password = secret",
            "dbname=x sslpassword=secret",
            "postgres://u:secret?x@host/db",
            "postgres://u@host/db?sslpassword=secret",
        ] {
            let error = url.parse::<DatabaseUrl>().unwrap_err();
            assert!(
                !error.contains("secret") && error.contains("invalid database URL"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_unsupported_database_is_rejected_without_its_password() {
        let error = "mysql://u:secret@host/db".parse::<DatabaseUrl>().unwrap_err();
        assert!(
            error.contains("mysql://") && error.contains("postgres://") && !error.contains("secret"),
            "{error}"
        );
    }
}
