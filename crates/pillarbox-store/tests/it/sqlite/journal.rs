//! The journal mode of the file, which its owner decides.

use std::path::Path;

use pillarbox::{Event, StoreError};
use pillarbox_store::stores::sqlite::{Options, Sqlite};
use pillarbox_store::{Scope, Store};
use pillarbox_testkit::{CapturedLogs, Harness};
use sqlx::{Connection, SqliteConnection};

use super::SqliteHarness;
use super::harness::pool;

/// An application's own file, with the journal that SQLite gives by default.
async fn existing(path: &Path) {
    drop(CapturedLogs::of_process());
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options)
        .await
        .expect("a new file");
    sqlx::query("create table orders (number integer)")
        .execute(&mut connection)
        .await
        .expect("a table");
    connection.close().await.expect("closed");
}

/// What the header of the file says: 1 for a rollback journal, 2 for WAL.
fn journal_in_header(path: &Path) -> (u8, u8) {
    let header = std::fs::read(path).expect("a file");
    (header[18], header[19])
}

#[tokio::test]
async fn a_new_file_gets_the_wal_journal() {
    let outbox = SqliteHarness::fresh().await;
    assert_eq!(outbox.store.journal_mode().await.expect("a mode"), "wal");
    assert_eq!(journal_in_header(&outbox.path()), (2, 2));
}

#[tokio::test]
async fn an_existing_file_keeps_its_journal_and_works() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("shop.db");
    existing(&path).await;

    let store = Sqlite::open(&path.to_string_lossy(), Options::default())
        .await
        .expect("it opens");
    let said = warnings_about(&path);
    assert_eq!(said.len(), 1, "once: {said:?}");
    assert!(
        said[0].contains("pillarbox migrate --wal") && said[0].contains("delete"),
        "{said:?}"
    );

    store.migrate().await.expect("a migration");
    let application = pool(&path).await;
    let mut tx = pillarbox::sqlite::begin(&application).await.expect("its turn");
    let outbox = pillarbox::Outbox::default();
    outbox
        .enqueue(&mut tx, &Event::new("shop", "orders"))
        .await
        .expect("accepted");
    tx.commit().await.expect("a commit");
    let look = store.find(&Scope::All, None, None, 1).await.expect("a look");
    assert_eq!(look.due.len(), 1);
    assert_eq!(store.journal_mode().await.expect("a mode"), "delete");
    store.close().await;
    application.close().await;
    assert_eq!(journal_in_header(&path), (1, 1));
}

#[tokio::test]
async fn the_journal_changes_on_request() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("shop.db");
    existing(&path).await;
    let store = Sqlite::create(&path).await.expect("it opens");
    store.use_wal().await.expect("no other connection uses it");
    assert_eq!(store.journal_mode().await.expect("a mode"), "wal");
}

#[tokio::test]
async fn a_commit_survives_a_power_cut() {
    let outbox = SqliteHarness::fresh().await;
    let synchronous: i64 = sqlx::query_scalar("pragma synchronous")
        .fetch_one(&outbox.application)
        .await
        .expect("a pragma");
    assert_eq!(synchronous, 2, "FULL");
    outbox
        .enqueue(&[Event::new("shop", "orders")])
        .await
        .expect("accepted");
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made_unasked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("nowhere.db");
    let refused = Sqlite::open(&path.to_string_lossy(), Options::default())
        .await
        .map(drop);
    let Err(StoreError::Unavailable(said)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        said.contains("nowhere.db") && said.contains("does it exist"),
        "{said}"
    );
    assert!(!path.exists());
}

#[tokio::test]
async fn a_url_may_ask_for_a_new_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new.db");
    let url = format!("sqlite://{}?mode=rwc", path.display());
    let store = Sqlite::open(&url, Options::default()).await.expect("it opens");
    store.migrate().await.expect("a migration");
    assert!(path.exists());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("letter.txt");
    let letter = "Dear Sir or Madam, ".repeat(100);
    std::fs::write(&path, &letter).expect("a letter");
    let refused = Sqlite::open(&path.to_string_lossy(), Options::default())
        .await
        .map(drop);
    assert!(
        matches!(&refused, Err(StoreError::Other(said)) if said.contains("not a database")),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), letter);
}

#[tokio::test]
async fn a_database_in_memory_is_refused() {
    for name in ["sqlite::memory:", ":memory:", "sqlite:", ""] {
        let refused = Sqlite::open(name, Options::default()).await.map(drop);
        assert!(
            matches!(&refused, Err(StoreError::Invalid(said)) if said.contains("needs a file")),
            "{name}: {refused:?}"
        );
    }
}

#[tokio::test]
#[cfg(unix)]
async fn a_new_file_and_its_journal_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("outbox.db");
    let store = Sqlite::create(&path).await.expect("creates");
    store.migrate().await.expect("migrates");
    for name in ["outbox.db", "outbox.db-wal", "outbox.db-shm"] {
        let metadata = std::fs::metadata(folder.path().join(name)).expect("it exists");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
    }
    store.close().await;
    let existing = folder.path().join("existing.db");
    existing_with_mode(&existing, 0o640);
    let store = Sqlite::create(&existing).await.expect("opens");
    store.close().await;
    let metadata = std::fs::metadata(&existing).expect("it exists");
    assert_eq!(
        metadata.permissions().mode() & 0o777,
        0o640,
        "an existing file keeps its own"
    );
}

#[cfg(unix)]
fn existing_with_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    std::fs::write(path, "").expect("writes");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}

/// The warnings about this file. Of the whole process: another thread may come across them.
fn warnings_about(path: &Path) -> Vec<String> {
    let path = path.to_string_lossy();
    let lines = CapturedLogs::of_process().lines();
    let about = lines.iter().filter(|line| line.field("path") == Some(&*path));
    about.map(|line| format!("{line:?}")).collect()
}
