//! Migrations: twice, at once, by hand, and what is older or newer.

use std::process::Command;

use pillarbox::StoreError;
use pillarbox::stores::migration::Migrated;
use pillarbox::stores::postgres::{migrations, script};
use pillarbox::{Store, stores::postgres::Postgres};
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;

use super::harness::{PostgresHarness, service, unmigrated};

fn newest() -> i32 {
    migrations().last().expect("there is one").version
}

#[tokio::test]
async fn migrating_twice_does_nothing_the_second_time() {
    let store = unmigrated(&service("PILLARBOX_TEST_POSTGRES_URL"));
    assert!(matches!(store.check().await, Err(StoreError::Missing(_))));
    assert_eq!(
        store.migrate().await.expect("migrates"),
        Migrated {
            from: 0,
            to: newest()
        }
    );
    assert_eq!(
        store.migrate().await.expect("again"),
        Migrated {
            from: newest(),
            to: newest()
        }
    );
    store.check().await.expect("the outbox is there");
}

#[tokio::test]
async fn eight_that_migrate_at_once_do_it_once() {
    let store = unmigrated(&service("PILLARBOX_TEST_POSTGRES_URL"));
    let runs = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.migrate().await.expect("migrates") })
    });
    let mut first = 0;
    for run in runs.collect::<Vec<_>>() {
        first += i32::from(run.await.expect("does not panic").from == 0);
    }
    assert_eq!(first, 1);
}

#[tokio::test]
async fn a_newer_and_an_older_schema_say_what_to_do() {
    let harness = PostgresHarness::direct().await;
    harness
        .execute("insert into pillarbox.migrations (version, name) values (99, 'from the future')")
        .await;
    let error = harness.store.check().await.expect_err("newer");
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("use a newer pillarbox"));
    assert!(matches!(
        harness.store.migrate().await,
        Err(StoreError::Newer { found: 99, .. })
    ));

    harness.execute("delete from pillarbox.migrations").await;
    harness
        .execute("insert into pillarbox.migrations (version, name) values (-1, 'from the past')")
        .await;
    let error = harness.store.check().await.expect_err("older");
    assert!(error.to_string().contains("run `pillarbox migrate`"), "{error}");
    harness.clean_up().await;
}

#[tokio::test]
async fn the_printed_script_makes_the_same_schema() {
    let harness = PostgresHarness::direct().await;
    let by_hand = unmigrated(&service("PILLARBOX_TEST_POSTGRES_URL"));
    let sql = script(by_hand.schema()).expect("a sound name");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&harness.pool)
        .await
        .expect("the script runs");
    by_hand.check().await.expect("the outbox is there");
    assert_eq!(dump(&by_hand), dump(&harness.store));
    harness.clean_up().await;
}

#[tokio::test]
async fn the_schema_in_the_repository_is_the_schema() {
    let harness = PostgresHarness::direct().await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/postgres.sql");
    let found = dump(&harness.store);
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &found).expect("writes the dump");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        found, kept,
        "run this test with UPDATE_SCHEMA=1 and look at the difference"
    );
    harness.clean_up().await;
}

/// What pg_dump says of the schema, without what depends on the server or the schema's name.
fn dump(store: &Postgres) -> String {
    let output = Command::new("pg_dump")
        .args([
            "--schema-only",
            "--no-owner",
            "--no-privileges",
            "--schema",
            store.schema(),
        ])
        .arg(service("PILLARBOX_TEST_POSTGRES_URL"))
        .output()
        .expect("pg_dump is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)
        .expect("is text")
        .replace(store.schema(), "pillarbox");
    let mut kept = String::new();
    for line in text.lines() {
        let noise = line.starts_with("--")
            || line.starts_with("SET ")
            || line.starts_with("SELECT pg_catalog")
            || line.starts_with('\\');
        let blank = line.is_empty() && kept.ends_with("\n\n");
        if !noise && !blank {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept.trim().to_owned() + "\n"
}
