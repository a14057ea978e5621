//! A transaction of somebody who is no more does not hold its marks for ever.

use pillarbox_consume::{Database, HandlerError};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, PgTransaction};

use crate::environment::{fresh_name, until, variable};

const SETTING: &str = "idle_in_transaction_session_timeout";

fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect_lazy_with(options)
}

fn options() -> PgConnectOptions {
    variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap()
}

async fn patience(transaction: &mut PgTransaction<'static>) -> String {
    let show = sqlx::query_scalar("select current_setting($1)").bind(SETTING);
    show.fetch_one(&mut **transaction).await.unwrap()
}

#[tokio::test]
async fn a_transaction_in_which_nobody_says_anything_is_ended_by_the_database() {
    let pool = pool(options().options([(SETTING, "0")]));
    let mut transaction = Database::begin(&pool).await.unwrap();
    assert_eq!(patience(&mut transaction).await, "5min");
    transaction.commit().await.unwrap();
    let mut own = pool.begin().await.unwrap();
    assert_eq!(patience(&mut own).await, "0", "it was for that transaction only");
    drop(own);
    pool.close().await;
}

#[tokio::test]
async fn who_says_how_long_a_transaction_may_be_silent_is_heard() {
    for said in ["1min", "10min"] {
        let pool = pool(options().options([(SETTING, said)]));
        let mut transaction = Database::begin(&pool).await.unwrap();
        assert_eq!(patience(&mut transaction).await, said);
        drop(transaction);
        pool.close().await;
    }
}

#[tokio::test]
async fn an_attempt_that_was_silent_for_too_long_has_failed() {
    let name = fresh_name("silent");
    let (silent, watcher) = (options().options([(SETTING, "10ms")]), pool(options()));
    let pool = pool(silent.application_name(&name));
    let mut transaction = Database::begin(&pool).await.unwrap();
    until("the database has ended it", || async {
        let open = "select count(*) from pg_stat_activity where application_name = $1";
        let open = sqlx::query_scalar::<_, i64>(open).bind(&name);
        open.fetch_one(&watcher).await.unwrap() == 0
    })
    .await;
    let error = sqlx::query("select")
        .execute(&mut *transaction)
        .await
        .unwrap_err();
    assert_eq!(HandlerError::from(error).outcome().name(), "retry");
    drop(transaction);
    pool.close().await;
    watcher.close().await;
}
