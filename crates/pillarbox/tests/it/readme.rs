//! The README's examples run as they stand there.

use pillarbox::Store;
use pillarbox::stores::postgres::{Options, Postgres};
use sqlx::AssertSqlSafe;

use crate::postgres::{request, service};

const README: &str = include_str!("../../../../README.md");
const THIS: &str = include_str!("readme.rs");

// README begins
use pillarbox::{Event, Outbox};
use serde_json::json;

async fn place_order(pool: &sqlx::PgPool, order: i64) -> Result<(), Box<dyn std::error::Error>> {
    let outbox = Outbox::default();
    let mut transaction = pool.begin().await?;
    sqlx::query("insert into orders (id) values ($1)")
        .bind(order)
        .execute(&mut *transaction)
        .await?;
    let event = Event::new("shop", "orders")
        .event_type("OrderCreated")
        .aggregate("order", order.to_string())
        .dedupe_key(format!("order-{order}/created"))
        .json(&json!({ "order": order }))?;
    outbox.enqueue(&mut transaction, &event).await?;
    transaction.commit().await?; // both, or neither
    Ok(())
}
// README ends

/// What stands between the fences of the first block of this language.
fn block(language: &str) -> &'static str {
    let (_, rest) = README
        .split_once(&format!("```{language}\n"))
        .expect("the block begins");
    rest.split_once("```").expect("the block ends").0
}

#[test]
fn the_rust_example_is_this_code() {
    let (_, rest) = THIS.split_once("// README begins\n").expect("begins");
    let (code, _) = rest.split_once("// README ends").expect("ends");
    assert_eq!(block("rust,no_run"), code);
}

#[tokio::test]
async fn both_examples_enqueue_what_they_say() {
    let server = service("PILLARBOX_TEST_POSTGRES_URL");
    let database = format!("readme_{}", uuid::Uuid::new_v4().simple());
    let admin = sqlx::PgPool::connect_lazy(&server).expect("a URL");
    let run = async |sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&admin)
            .await
            .expect("the statement runs");
    };
    run(format!("create database {database}")).await;
    let url = format!(
        "{}/{database}",
        server.rsplit_once('/').expect("a URL with a database").0
    );
    let store = Postgres::new(&url, Options::default()).expect("a URL");
    store.migrate().await.expect("migrates");
    let pool = store.pool();
    sqlx::raw_sql("create table orders (id bigint primary key)")
        .execute(&pool)
        .await
        .expect("creates");

    place_order(&pool, 42).await.expect("places the order");
    sqlx::raw_sql(block("sql"))
        .execute(&pool)
        .await
        .expect("the SQL example runs");

    let claimed = store.claim(&request(10)).await.expect("claims");
    let told: Vec<_> = claimed
        .iter()
        .map(|delivery| delivery.event.aggregate_id.as_deref())
        .collect();
    assert_eq!(told, [Some("42"), Some("43")]);
    let orders: Vec<i64> = sqlx::query_scalar("select id from orders order by id")
        .fetch_all(&pool)
        .await
        .expect("reads");
    assert_eq!(orders, [42, 43]);
    store.close().await;
    run(format!("drop database {database} with (force)")).await;
}
