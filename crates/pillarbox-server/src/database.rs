//! The databases that the command can work with, behind one name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use pillarbox::{EnqueueError, Enqueued, Event, Limits, Outbox, StoreError};
use pillarbox_store::stores::migration::Migrated;
use pillarbox_store::stores::postgres::adopt::{AdoptError, Table};
use pillarbox_store::stores::{postgres, sqlite};
use pillarbox_store::{Operate, Store};
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;

use crate::config;

/// Which database, as a person names it. Prints without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `postgres://…`
    Postgres(String),
    /// `sqlite://path`, or a path.
    Sqlite(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.to_owned())),
            // What SQLite's own URLs may say after the path is decided by the command, not by the URL.
            Some(("sqlite", rest)) if !rest.is_empty() => Ok(Self::Sqlite(
                rest.split_once('?').map_or(rest, |(path, _)| path).into(),
            )),
            Some((scheme, _)) => Err(format!(
                "`{scheme}://` is no database that Pillarbox knows; use postgres://user@host/database, \
                 sqlite://path or a path"
            )),
            None if text.is_empty() => Err("the database URL is empty".to_owned()),
            None => Ok(Self::Sqlite(text.strip_prefix("sqlite:").unwrap_or(text).into())),
        }
    }
}

impl Target {
    /// Where it is, whoever asks: the same for two names of one place. Finds the usual ways to write it, not all.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Postgres(url) => {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
                let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
                rest.replacen(":5432/", "/", 1)
            }
            Self::Sqlite(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                path.display().to_string()
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(url) => f.write_str(&masked(url)),
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL without its password, wherever it stands: before the `@`, or as a parameter.
fn masked(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let base = match (base.find("://"), base.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => match base[scheme + 3..at].split_once(':') {
            Some((user, _)) => format!("{}{user}:***{}", &base[..scheme + 3], &base[at..]),
            None => base.to_owned(),
        },
        _ => base.to_owned(),
    };
    let query: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((key, _)) if key.to_ascii_lowercase().contains("pass") => format!("{key}=***"),
            Some(_) | None => pair.to_owned(),
        })
        .collect();
    if query.is_empty() {
        base
    } else {
        format!("{base}?{}", query.join("&"))
    }
}

/// May a file that is not there be made?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A misspelt path is an error.
    Refuse,
    /// It is to be migrated right away.
    Create,
}

/// A database that holds an outbox, or is going to.
#[derive(Clone)]
pub(crate) enum Database {
    /// PostgreSQL.
    Postgres(postgres::Postgres),
    /// SQLite.
    Sqlite {
        /// The outbox.
        store: sqlite::Sqlite,
        /// A connection of our own to enqueue with, as any application has.
        producer: SqlitePool,
    },
}

impl Database {
    /// Opens the database; PostgreSQL is connected to when something is asked of it.
    pub(crate) async fn open(config: &config::Database, missing: Missing) -> Result<Self, StoreError> {
        match &config.target {
            Target::Postgres(url) => {
                let options = postgres::Options {
                    schema: config.schema.clone(),
                    max_connections: config.max_connections,
                    ..postgres::Options::default()
                };
                postgres::Postgres::new(url, options).map(Self::Postgres)
            }
            Target::Sqlite(path) => Self::open_file(path, missing).await,
        }
    }

    async fn open_file(path: &Path, missing: Missing) -> Result<Self, StoreError> {
        if missing == Missing::Refuse && !path.exists() {
            return Err(StoreError::Missing(format!(
                "{}: there is no such file",
                path.display()
            )));
        }
        let options = sqlite::Options {
            create_if_missing: missing == Missing::Create,
            ..sqlite::Options::default()
        };
        let name = path.to_string_lossy();
        let store = sqlite::Sqlite::open(&name, options.clone()).await?;
        let producer = producer(&name, &options)?;
        Ok(Self::Sqlite { store, producer })
    }

    /// What a dispatcher needs of it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Postgres(store) => Arc::new(store.clone()),
            Self::Sqlite { store, .. } => Arc::new(store.clone()),
        }
    }

    /// What people need of it.
    pub(crate) fn operate(&self) -> Arc<dyn Operate> {
        match self {
            Self::Postgres(store) => Arc::new(store.clone()),
            Self::Sqlite { store, .. } => Arc::new(store.clone()),
        }
    }

    /// Makes what `fair_by` needs to be quick. SQLite needs nothing: its outboxes are small.
    pub(crate) async fn ensure_fair_index(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(store) => store.ensure_fair_index().await,
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Takes tables of others over, once. A SQLite file has none: the configuration refuses them.
    pub(crate) async fn adopt(&self, tables: &[config::Adopt]) -> Result<(), AdoptError> {
        match self {
            Self::Postgres(store) => {
                let tables: Vec<Table> = tables.iter().map(|adopt| adopt.table.clone()).collect();
                store.adopt(&tables).await
            }
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// May we work on the tables that were taken over?
    pub(crate) async fn check_adopted(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(store) => store.check_adopted().await,
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Brings the schema up to date.
    pub(crate) async fn migrate(&self) -> Result<Migrated, StoreError> {
        match self {
            Self::Postgres(store) => store.migrate().await,
            Self::Sqlite { store, .. } => store.migrate().await,
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
                let mut transaction = store.pool().begin().await.map_err(unavailable)?;
                let enqueued = store
                    .outbox()
                    .limits(limits)
                    .enqueue_all(&mut transaction, events)
                    .await?;
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

/// Connections of an application to the file of an outbox, made when they are needed.
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
        for (url, printed) in [
            (
                "postgres://u:secret@host:5432/db",
                "postgres://u:***@host:5432/db",
            ),
            (
                "postgres://u:se@cr/et@host/db?sslmode=require",
                "postgres://u:***@host/db?sslmode=require",
            ),
            (
                "postgresql://host/db?user=u&password=secret",
                "postgresql://host/db?user=u&password=***",
            ),
            ("postgres://u@host/db", "postgres://u@host/db"),
        ] {
            let target: Target = url.parse().unwrap();
            assert_eq!(target.to_string(), printed);
            assert_eq!(format!("{target:?}"), printed);
        }
    }

    #[test]
    fn one_place_has_many_names() {
        let place = |text: &str| text.parse::<Target>().unwrap().place();
        assert_eq!(
            place("postgres://u:p@host:5432/db?sslmode=require"),
            place("postgresql://other@host/db")
        );
        assert_ne!(place("postgres://host/a"), place("postgres://host/b"));
        assert_eq!(place("./a.db"), place("sqlite://a.db"));
        assert_ne!(place("a.db"), place("b.db"));
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
                text.parse::<Target>(),
                Ok(Target::Sqlite("a/b.db".into())),
                "{text}"
            );
        }
        assert_eq!(
            "sqlite:///a.db".parse::<Target>(),
            Ok(Target::Sqlite("/a.db".into()))
        );
    }

    #[test]
    fn another_kind_of_database_is_refused_without_its_password() {
        let error = "mysql://u:secret@host/db".parse::<Target>().unwrap_err();
        assert!(
            error.contains("mysql://") && error.contains("postgres://") && !error.contains("secret"),
            "{error}"
        );
    }
}
