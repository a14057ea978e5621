//! The process dies at every failpoint of a unit of work, and the commands are handled again.

use pillarbox_testkit::process::{Process, ignored_test};

use super::*;

const DATABASE: &str = "PILLARBOX_TEST_DATABASE";

fn members() -> Vec<String> {
    (1..=5).map(|n| format!("member-{n}@example.com")).collect()
}

async fn invite_members(database: &impl Database) {
    for email in members() {
        database.invite(&email).await.expect("commits");
    }
}

/// Not a test: the application that the tests below kill.
#[tokio::test]
#[ignore = "run by the tests of this file"]
async fn application() {
    let address = std::env::var(DATABASE).expect("the parent process sets it");
    match address.split_once(':').expect("kind:address") {
        ("postgres", schema) => invite_members(&OnPostgres::existing(schema)).await,
        ("diesel-async", schema) => invite_members(&by_library::<OnDieselAsync>(schema)).await,
        ("diesel", schema) => invite_members(&by_library::<OnDiesel>(schema)).await,
        ("sqlite", path) => {
            let pool = pool(path.as_ref()).await;
            invite_members(&OnSqlite { pool, prefix: "" }).await;
        }
        (other, _) => panic!("{other} is no database"),
    }
}

fn by_library<D: Remote>(schema: &str) -> D {
    let url = variable("PILLARBOX_TEST_POSTGRES_URL");
    D::through(&OnPostgres::existing(schema), &url)
}

/// The application dies at its third command, and then all commands are handled again.
async fn killed_at(failpoint: &str, committed: usize, database: &impl Database, address: String) {
    let mut command = ignored_test("domain::killed::application");
    let at = format!("{failpoint}:3");
    command.env(DATABASE, address).env("PILLARBOX_ABORT_AT", &at);
    Process::start(command).aborts_at(&at).await;

    let invited = database.invited().await;
    assert_eq!(invited, members()[..committed]);
    assert_eq!(
        database.announced().await,
        invited,
        "every saved change has its event"
    );

    invite_members(database).await;
    assert_eq!(database.invited().await, members());
    assert_eq!(database.announced().await, members(), "one event each");
}

macro_rules! points {
    ($($name:ident: $failpoint:literal leaves $committed:literal,)+) => {
        mod on_postgres {
            $(
                #[tokio::test]
                #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
                async fn $name() {
                    let (harness, database) = super::on_postgres().await;
                    let address = format!("postgres:{}", harness.store.schema());
                    super::killed_at($failpoint, $committed, &database, address).await;
                    pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
                }
            )+
        }

        mod on_diesel_async {
            $(
                #[tokio::test]
                #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
                async fn $name() {
                    let (harness, database) = super::on_library::<super::OnDieselAsync>().await;
                    let address = format!("diesel-async:{}", harness.store.schema());
                    super::killed_at($failpoint, $committed, &database, address).await;
                    pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
                }
            )+
        }

        mod on_diesel {
            $(
                #[tokio::test]
                #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
                async fn $name() {
                    let (harness, database) = super::on_library::<super::OnDiesel>().await;
                    let address = format!("diesel:{}", harness.store.schema());
                    super::killed_at($failpoint, $committed, &database, address).await;
                    pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
                }
            )+
        }

        mod on_sqlite {
            $(
                #[tokio::test]
                #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
                async fn $name() {
                    let (harness, database) = super::on_sqlite().await;
                    let address = format!("sqlite:{}", harness.path().display());
                    super::killed_at($failpoint, $committed, &database, address).await;
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
