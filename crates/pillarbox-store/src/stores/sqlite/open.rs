//! Opens the file, and keeps its journal mode.
//!
//! **If we die here** an empty file with the WAL journal may be left.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};

use super::choose::Turns;
use super::{Sqlite, store_error};
use crate::store::StoreError;

/// How a file is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Create the file if it does not exist.
    pub create_if_missing: bool,
    /// How long a writer waits for the write lock, 30 s by default. Another process may be committing a large transaction,
    /// or the disk may stall.
    pub busy_timeout: Duration,
    /// How many connections read.
    pub readers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_if_missing: false,
            busy_timeout: Duration::from_secs(30),
            readers: 3,
        }
    }
}

/// The options with which an application opens the same file: a path, or a URL that begins with `sqlite:`. They keep the
/// journal mode.
///
/// # Errors
/// When the URL is invalid, or names a database in memory, which other connections cannot see.
pub fn connect_options(path_or_url: &str, options: &Options) -> Result<SqliteConnectOptions, StoreError> {
    let connect = if path_or_url.starts_with("sqlite:") {
        SqliteConnectOptions::from_str(path_or_url).map_err(|error| StoreError::Invalid(error.to_string()))?
    } else {
        SqliteConnectOptions::new().filename(path_or_url)
    };
    let name = connect.get_filename().to_string_lossy();
    if name.is_empty() || name.contains(":memory:") || name.contains("sqlx-in-memory") {
        return Err(StoreError::Invalid(
            "an outbox in SQLite needs a file; for one in memory there is the memory store".into(),
        ));
    }
    let create = options.create_if_missing || path_or_url.contains("mode=rwc");
    Ok(connect
        .create_if_missing(create)
        .busy_timeout(options.busy_timeout)
        // In WAL mode, NORMAL may lose the last commits in a power cut.
        .synchronous(SqliteSynchronous::Full))
}

impl Sqlite {
    /// Opens an outbox: a path, or a URL that begins with `sqlite:`. Migrates nothing.
    ///
    /// # Errors
    /// When the file cannot be opened, or is not a SQLite database.
    pub async fn open(path_or_url: &str, options: Options) -> Result<Self, StoreError> {
        let connect = connect_options(path_or_url, &options)?;
        let path = connect.get_filename().display().to_string();
        let failed = |error| store_error(error, &path);
        if options.create_if_missing || path_or_url.contains("mode=rwc") {
            create_private(connect.get_filename())?;
        }
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(connect.clone())
            .await
            .map_err(failed)?;
        settle_journal(&writer, &path).await.map_err(failed)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers.max(1))
            .min_connections(0)
            .connect_lazy_with(connect.create_if_missing(false).pragma("query_only", "on"));
        Ok(Self {
            writer,
            readers,
            path: path.into(),
            turns: Turns::default(),
        })
    }

    /// Opens an outbox in the file at this path. Creates the file if it does not exist.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn create(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let options = Options {
            create_if_missing: true,
            ..Options::default()
        };
        Self::open(&path.as_ref().to_string_lossy(), options).await
    }

    /// The file's journal mode, such as `wal` or `delete`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn journal_mode(&self) -> Result<String, StoreError> {
        let readers = self.readers.clone();
        self.apart(async move { journal_mode(&readers).await }).await
    }

    /// Switches the file to the WAL journal, permanently and for every program that opens it. Called only by an operator.
    ///
    /// # Errors
    /// When another connection uses the file. The switch needs exclusive access.
    pub async fn use_wal(&self) -> Result<(), StoreError> {
        let writer = self.writer.clone();
        let mode = self.apart(async move { switch_to_wal(&writer).await }).await?;
        if mode == "wal" {
            return Ok(());
        }
        Err(StoreError::Unavailable(format!(
            "switching {} to WAL failed: it stays in journal mode {mode} (stop other programs that use the file)",
            self.path
        )))
    }

    /// Closes all connections, after running operations.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Creates the file for its owner alone: it will have payloads. SQLite gives its own files beside it the same permissions.
fn create_private(path: &Path) -> Result<(), StoreError> {
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    match file.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::Other(format!(
            "cannot create {}: {error}",
            path.display()
        ))),
    }
}

/// Sets the journal of a new file. An existing file keeps its own.
async fn settle_journal(writer: &SqlitePool, path: &str) -> Result<(), sqlx::Error> {
    let things: i64 = sqlx::query_scalar("select count(*) from sqlite_master")
        .fetch_one(writer)
        .await?;
    let mode = if things == 0 {
        switch_to_wal(writer).await?
    } else {
        journal_mode(writer).await?
    };
    if mode != "wal" {
        tracing::warn!(
            path,
            journal_mode = mode,
            "the file is not in WAL mode, so readers and writers block each other (run `pillarbox migrate --wal`, or PRAGMA \
             journal_mode = WAL, to switch it for all programs)"
        );
    }
    Ok(())
}

async fn journal_mode(pool: &SqlitePool) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("pragma journal_mode").fetch_one(pool).await
}

async fn switch_to_wal(writer: &SqlitePool) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("pragma journal_mode = wal")
        .fetch_one(writer)
        .await
}
