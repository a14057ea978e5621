//! The database ends an idle transaction, so that a consumer that died does not hold its marks.

use std::time::Duration;

use pillarbox_consume::{Database, HandlerError};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, PgTransaction};

use pillarbox_testkit::environment::unique_name;
use pillarbox_testkit::wait::until;

use crate::ledger::Ledger;

const SETTING: &str = "idle_in_transaction_session_timeout";

fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect_lazy_with(options)
}

async fn timeout(transaction: &mut PgTransaction<'static>) -> String {
    let show = sqlx::query_scalar("select current_setting($1)").bind(SETTING);
    show.fetch_one(&mut **transaction).await.unwrap()
}

#[tokio::test]
async fn an_idle_transaction_is_ended_by_the_database() {
    let ledger = Ledger::create().await;
    let pool = pool(ledger.login().options([(SETTING, "0")]));
    let mut transaction = Database::begin(&pool, Duration::from_secs(60)).await.unwrap();
    assert_eq!(timeout(&mut transaction).await, "5min");
    transaction.commit().await.unwrap();
    let mut own = pool.begin().await.unwrap();
    assert_eq!(
        timeout(&mut own).await,
        "0",
        "it applies to that transaction only"
    );
    drop(own);
    pool.close().await;
    ledger.drop().await;
}

#[tokio::test]
async fn a_timeout_that_the_application_sets_is_kept() {
    let ledger = Ledger::create().await;
    for set in ["1min", "10min"] {
        let pool = pool(ledger.login().options([(SETTING, set)]));
        let mut transaction = Database::begin(&pool, Duration::from_secs(60)).await.unwrap();
        assert_eq!(timeout(&mut transaction).await, set);
        drop(transaction);
        pool.close().await;
    }
    ledger.drop().await;
}

#[tokio::test]
async fn an_attempt_whose_transaction_was_ended_is_retried() {
    let (ledger, name) = (Ledger::create().await, unique_name("idle"));
    let idle = ledger.login().options([(SETTING, "10ms")]);
    let pool = pool(idle.application_name(&name));
    let mut transaction = Database::begin(&pool, Duration::from_secs(60)).await.unwrap();
    until("the database has ended it", || async {
        let open = "select count(*) from pg_stat_activity where application_name = $1";
        let open = sqlx::query_scalar::<_, i64>(open).bind(&name);
        open.fetch_one(&ledger.owner).await.unwrap() == 0
    })
    .await;
    let error = sqlx::query("select")
        .execute(&mut *transaction)
        .await
        .unwrap_err();
    assert_eq!(HandlerError::from(error).outcome().name(), "retry");
    drop(transaction);
    pool.close().await;
    ledger.drop().await;
}
