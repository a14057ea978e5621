//! Migrations, and the schema that they create.

use std::path::Path;

use pillarbox::StoreError;
use pillarbox_store::stores::migration::Migrated;
use pillarbox_store::stores::sqlite::{Sqlite, migrations};
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::{OPERATOR, store_error};
use sqlx::AssertSqlSafe;

use super::SqliteHarness;
use super::harness::long_timeout;

fn newest() -> i32 {
    migrations().last().expect("there is one").version
}

#[tokio::test]
async fn migrating_twice_does_nothing_the_second_time() {
    let outbox = SqliteHarness::empty().await;
    assert_eq!(
        outbox.store.migrate().await.expect("a migration"),
        Migrated {
            from: 0,
            to: newest()
        }
    );
    assert_eq!(
        outbox.store.migrate().await.expect("a migration"),
        Migrated {
            from: newest(),
            to: newest()
        }
    );
    outbox.store.check().await.expect("content");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_migrate_at_once_migrate_once() {
    let outbox = SqliteHarness::empty().await;
    let path = outbox.path().to_string_lossy().into_owned();
    let migrate = |path: String| async move {
        let store = Sqlite::open(&path, long_timeout()).await.expect("it opens");
        store.migrate().await.expect("a migration").from
    };
    let rivals: Vec<_> = (0..6).map(|_| tokio::spawn(migrate(path.clone()))).collect();
    let mut from = Vec::new();
    for rival in rivals {
        from.push(rival.await.expect("no panic"));
    }
    from.sort();
    let to = newest();
    assert_eq!(from, [0, to, to, to, to, to]);
    outbox.store.check().await.expect("content");
}

#[tokio::test]
async fn a_file_without_an_outbox_says_so() {
    let outbox = SqliteHarness::empty().await;
    let path = outbox.path().display().to_string();
    let missing = |result: Result<(), StoreError>| {
        assert!(
            matches!(&result, Err(StoreError::Missing(found)) if *found == path),
            "{result:?}"
        );
    };
    missing(outbox.store.check().await);
    missing(outbox.store.find(&Scope::All, None, None, 1).await.map(drop));
    missing(
        outbox
            .store
            .retry(&OPERATOR, &[uuid::Uuid::nil()])
            .await
            .map(drop)
            .map_err(store_error),
    );
    missing(
        outbox
            .store
            .stats(&OPERATOR, &Scope::All)
            .await
            .map(drop)
            .map_err(store_error),
    );

    outbox.store.migrate().await.expect("a migration");
    outbox.run("drop table outbox_events").await;
    missing(outbox.store.check().await);
}

#[tokio::test]
async fn an_older_schema_asks_to_be_migrated() {
    let outbox = SqliteHarness::fresh().await;
    outbox
        .run("update pillarbox_migrations set version = -1, name = 'from the past'")
        .await;
    let found = outbox.store.check().await;
    assert!(
        matches!(found, Err(StoreError::Outdated { found: -1, needed }) if needed == newest()),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let outbox = SqliteHarness::fresh().await;
    outbox
        .run("insert into pillarbox_migrations (version, name) values (99, 'from the future')")
        .await;
    let before = dump(&outbox).await;
    let found = outbox.store.check().await;
    assert!(
        matches!(found, Err(StoreError::Newer { found: 99, known }) if known == newest()),
        "{found:?}"
    );
    let found = outbox.store.migrate().await;
    assert!(
        matches!(found, Err(StoreError::Newer { found: 99, known }) if known == newest()),
        "{found:?}"
    );
    assert_eq!(dump(&outbox).await, before);
}

#[tokio::test]
async fn a_schema_of_another_build_is_refused() {
    // A build from before checksums, and one with another migration of the same version.
    for change in [
        "alter table pillarbox_migrations drop column checksum",
        "update pillarbox_migrations set checksum = 'of another text'",
    ] {
        let outbox = SqliteHarness::fresh().await;
        outbox.run(change).await;
        for refused in [outbox.store.check().await, outbox.store.migrate().await.map(drop)] {
            let is_other = matches!(refused, Err(StoreError::OtherBuild { version: 1 }));
            assert!(is_other, "{refused:?}");
        }
    }
}

#[test]
fn migrations_count_from_one_without_gaps() {
    for (expected, migration) in (1..).zip(migrations()) {
        assert_eq!(migration.version, expected);
        assert!(!migration.name.is_empty() && !migration.sql.is_empty());
    }
}

/// The schema of the file.
async fn dump(outbox: &SqliteHarness) -> String {
    let sql: Vec<String> = sqlx::query_scalar(
        "select sql from sqlite_master where sql is not null and name not like 'sqlite_%' order by rowid",
    )
    .fetch_all(&outbox.application)
    .await
    .expect("a schema");
    sql.iter().map(|statement| format!("{statement};\n\n")).collect()
}

/// A change of the schema shows as a diff in the repository. `UPDATE_SCHEMA=1` writes it.
#[tokio::test]
async fn the_dump_in_the_repository_is_the_schema() {
    let header = "-- The outbox in SQLite, as the migrations leave it. Written by `UPDATE_SCHEMA=1 cargo test -p pillarbox-store --all-features schema`.\n\n";
    let schema = header.to_owned() + dump(&SqliteHarness::fresh().await).await.trim_end() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/sqlite.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("it can be made");
        std::fs::write(&path, &schema).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("docs/schema/sqlite.sql; UPDATE_SCHEMA=1 writes it");
    assert!(
        kept == schema,
        "docs/schema/sqlite.sql is not the schema; UPDATE_SCHEMA=1 writes it:\n{schema}"
    );
}

macro_rules! statements {
    ($folder:literal: $($name:literal)+) => {
        [$(($name, include_str!(concat!($folder, $name, ".sql")))),+]
    };
}

/// All but those that count: they read the newest rows and say so.
const STATEMENTS: [(&str, &str); 25] = statements! {
    "../../../src/stores/sqlite/sql/":
    "find" "choose_free" "choose_fair" "choose_keys" "choose_runs" "choose_expired"
    "claim" "route_members" "route_siblings" "route_first" "settle" "settle_delete"
    "renew" "sweep" "cap_leases" "parked_unrouted" "parked_blocking" "unpark_unrouted"
    "unpark_blocking" "retry" "delete" "skip"
    "blocked" "unserved" "destinations"
};

/// What an application asks in its own transaction.
const OF_APPLICATIONS: [(&str, &str); 2] = statements! {
    "../../../../pillarbox/src/outbox/sqlite/sql/": "enqueued_before" "ids_taken"
};

#[tokio::test]
async fn nothing_that_a_worker_asks_walks_the_table() {
    let outbox = SqliteHarness::fresh().await;
    let steps = include_str!("../../../src/stores/sqlite/sql/key_steps.sql");
    for (name, sql) in STATEMENTS.into_iter().chain(OF_APPLICATIONS) {
        let sql = sql.replace("/*key_steps*/\nselect", &format!("{steps}select"));
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(AssertSqlSafe(format!("explain query plan {sql}")))
                .fetch_all(&outbox.application)
                .await
                .expect("a plan");
        let lines: Vec<&str> = plan.iter().map(|line| line.3.as_str()).collect();
        let walks = |line: &&&str| {
            let ours = ["outbox_events", "e", "other", "head", "run", "leased", "parent"];
            let scanned = line.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            scanned.is_some_and(|table| ours.contains(&table)) && !line.contains("INDEX outbox_events_")
        };
        assert_eq!(lines.iter().find(walks), None, "{name}: {lines:#?}");
        assert!(
            lines
                .iter()
                .any(|line| line.contains("SEARCH") || line.contains("INDEX outbox_events_")),
            "{name}: {lines:#?}"
        );
    }
}

/// The newest rows of all keys would be read for each blocked one.
#[tokio::test]
async fn rows_behind_a_blocked_key_are_found_by_their_key() {
    let outbox = SqliteHarness::fresh().await;
    let (_, sql) = STATEMENTS
        .into_iter()
        .find(|(name, _)| *name == "blocked")
        .expect("is in the list");
    let plan: Vec<(i64, i64, i64, String)> =
        sqlx::query_as(AssertSqlSafe(format!("explain query plan {sql}")))
            .fetch_all(&outbox.application)
            .await
            .expect("a plan");
    let others: Vec<&str> = plan
        .iter()
        .map(|line| line.3.as_str())
        .filter(|line| line.starts_with("SEARCH other"))
        .collect();
    assert_eq!(others.len(), 4, "{plan:#?}");
    for line in others {
        assert!(
            line.contains("outbox_events_keyed") && line.contains("ordering_key=?"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn nothing_that_a_saga_asks_walks_its_tables() {
    let outbox = SqliteHarness::fresh().await;
    let asked_for = include_str!("../../../src/stores/sqlite/sql/saga_record.sql").to_owned()
        + "where seq < ?1 and id = ?3 order by seq desc limit ?4";
    let statements =
        statements! { "../../../../pillarbox/src/outbox/sqlite/sql/": "saga_lock" "saga_save" "saga_note" };
    let log = statements! { "../../../src/stores/sqlite/sql/": "saga_log" };
    for (name, sql) in statements
        .into_iter()
        .chain(log)
        .chain([("saga_record", asked_for.as_str())])
    {
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(AssertSqlSafe(format!("explain query plan {sql}")))
                .fetch_all(&outbox.application)
                .await
                .expect("a plan");
        let lines: Vec<&str> = plan.iter().map(|line| line.3.as_str()).collect();
        let walks = |line: &&&str| line.starts_with("SCAN") && !line.contains("VIRTUAL TABLE");
        assert_eq!(lines.iter().find(walks), None, "{name}: {lines:#?}");
        let by_id = |line: &&str| line.contains("pillarbox_sagas_id");
        assert!(lines.iter().any(by_id), "{name}: {lines:#?}");
    }
}
