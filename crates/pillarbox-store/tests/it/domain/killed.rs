//! The process is killed at every point of a unit of work, and the commands are handled again.

use std::process::Command;

use super::*;

const DATABASE: &str = "PILLARBOX_TEST_DATABASE";

fn everybody() -> Vec<String> {
    (1..=5).map(|n| format!("member-{n}@example.com")).collect()
}

async fn invite_everybody(database: &impl Database) {
    for email in everybody() {
        database.invite(&email).await.expect("commits");
    }
}

/// Not a test of its own: the application, which those below run and kill.
#[tokio::test]
#[ignore = "run by the tests of this file"]
async fn application() {
    let place = std::env::var(DATABASE).expect("said by the test that runs this");
    match place.split_once(':').expect("kind:place") {
        ("postgres", schema) => invite_everybody(&OnPostgres::existing(schema)).await,
        ("sqlite", path) => {
            let pool = pool(path.as_ref()).await;
            invite_everybody(&OnSqlite { pool, prefix: "" }).await;
        }
        (other, _) => panic!("{other} is no database"),
    }
}

/// Kills the application at its third command, and handles all commands again.
async fn killed_at(failpoint: &str, committed: usize, database: &impl Database, place: String) {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "domain::killed::application",
            "--ignored",
            "--nocapture",
        ])
        .env(DATABASE, place)
        .env("PILLARBOX_ABORT_AT", format!("{failpoint}:3"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("failpoint {failpoint}: ")), "{said}");
    assert!(!output.status.success());

    let invited = database.invited().await;
    assert_eq!(invited, everybody()[..committed]);
    assert_eq!(
        database.told().await,
        invited,
        "what is saved is told, and nothing else"
    );

    invite_everybody(database).await;
    assert_eq!(database.invited().await, everybody());
    assert_eq!(database.told().await, everybody(), "once each");
}

macro_rules! points {
    ($($name:ident: $failpoint:literal leaves $committed:literal,)+) => {
        mod on_postgres {
            $(
                #[tokio::test]
                #[cfg_attr(not(feature = "failpoints"), ignore = "wants the feature `failpoints`")]
                async fn $name() {
                    let (harness, database) = super::on_postgres().await;
                    let place = format!("postgres:{}", harness.store.schema());
                    super::killed_at($failpoint, $committed, &database, place).await;
                    pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
                }
            )+
        }

        mod on_sqlite {
            $(
                #[tokio::test]
                #[cfg_attr(not(feature = "failpoints"), ignore = "wants the feature `failpoints`")]
                async fn $name() {
                    let (harness, database) = super::on_sqlite().await;
                    let place = format!("sqlite:{}", harness.path().display());
                    super::killed_at($failpoint, $committed, &database, place).await;
                }
            )+
        }
    };
}

points! {
    dying_before_the_save: "before_save" leaves 2,
    dying_after_the_save: "after_save" leaves 2,
    dying_after_the_enqueue: "after_enqueue" leaves 2,
    dying_before_the_commit: "before_commit" leaves 2,
    dying_after_the_commit: "after_commit" leaves 3,
}
