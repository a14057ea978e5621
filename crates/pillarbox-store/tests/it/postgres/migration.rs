//! Migrations: repeated, concurrent, by hand, and of older and newer schemas.

use std::process::Command;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::Store;
use pillarbox_store::stores::migration::Migrated;
use pillarbox_store::stores::postgres::{Options, Postgres, migrations, script};
use pillarbox_testkit::proxy::Proxy;
use pillarbox_testkit::store_suite::Harness;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::harness::{PostgresHarness, unmigrated};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::fixture::Database;
use pillarbox_testkit::wait::until;

fn newest() -> i32 {
    migrations().last().expect("there is one").version
}

#[tokio::test]
async fn migrating_twice_does_nothing_the_second_time() {
    let store = unmigrated(&variable("PILLARBOX_TEST_POSTGRES_URL"));
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
    let store = unmigrated(&variable("PILLARBOX_TEST_POSTGRES_URL"));
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

/// A migration waits for an index or for a lock. One whose network is lost does not block the next one.
#[tokio::test]
async fn a_migration_takes_as_long_as_the_database_answers() {
    let database = Database::create("migration").await;
    let network = Proxy::start(database.address()).await;
    let store = |url: &str| {
        let options = Options {
            timeout: Duration::from_secs(6),
            ..Options::default()
        };
        Postgres::new(url, options).expect("a URL")
    };
    let near = store(&database.url);
    let far = store(&network.url(&database.url));
    near.migrate().await.expect("migrates");
    let mut holder = PgConnection::connect(&database.url).await.expect("connects");
    let lock = "begin; lock table pillarbox.migrations in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut holder).await.expect("locks");
    let admin = sqlx::PgPool::connect_lazy(&database.server).expect("a URL");
    let waiting = async |number| {
        let count = "select count(*) from pg_stat_activity
             where datname = $1 and application_name = 'pillarbox' and wait_event_type = 'Lock'";
        until("the migrations wait", async || {
            let waiting: i64 = sqlx::query_scalar(count)
                .bind(&database.name)
                .fetch_one(&admin)
                .await
                .expect("looks");
            waiting == number
        })
        .await;
    };
    let far = tokio::spawn(async move { far.migrate().await });
    waiting(1).await;
    let near = tokio::spawn(async move { near.migrate().await });
    waiting(2).await;
    // Longer than an answer may take: what is waited for is that nothing happens.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(!far.is_finished() && !near.is_finished(), "they wait");

    network.black_hole();
    let far = far.await.expect("does not panic");
    assert!(matches!(far, Err(StoreError::Unavailable(_))), "{far:?}");
    sqlx::raw_sql("rollback")
        .execute(&mut holder)
        .await
        .expect("rolls back");
    let near = near.await.expect("does not panic").expect("goes on");
    assert_eq!(near.from, newest());
    drop(holder);
    database.drop().await;
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
async fn a_schema_of_another_build_is_refused() {
    // A build from before checksums, and one with another migration of the same version.
    for change in [
        "alter table pillarbox.migrations drop checksum",
        "update pillarbox.migrations set checksum = 'of another text'",
    ] {
        let harness = PostgresHarness::direct().await;
        harness.execute(change).await;
        for refused in [
            harness.store.check().await,
            harness.store.migrate().await.map(drop),
        ] {
            let error = refused.expect_err("another build's");
            assert!(matches!(error, StoreError::OtherBuild { version: 1 }), "{error}");
            let said = "the schema was created by another build of version 1: ";
            assert!(error.to_string().starts_with(said), "{error}");
        }
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn the_printed_script_makes_the_same_schema() {
    let harness = PostgresHarness::direct().await;
    let by_hand = unmigrated(&variable("PILLARBOX_TEST_POSTGRES_URL"));
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
        .arg(variable("PILLARBOX_TEST_POSTGRES_URL"))
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
