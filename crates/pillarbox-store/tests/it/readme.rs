//! The examples of the README run unchanged.

use std::time::Duration;

use pillarbox_store::Store;
use pillarbox_store::stores::postgres::{Options, Postgres};
use sqlx::AssertSqlSafe;

use crate::postgres::request;
use pillarbox_testkit::fixture::Database;

const README: &str = include_str!("../../../../README.md");
const THIS: &str = include_str!("readme.rs");

// README begins
use pillarbox::{Event, Outbox};
use serde::Serialize;

#[derive(Serialize, Event)]
#[event(namespace = "shop", topic = "orders", type = "OrderCreated")]
struct OrderCreated {
    #[event(aggregate = "order")]
    order: i64,
}

async fn place_order(pool: &sqlx::PgPool, order: i64) -> Result<(), Box<dyn std::error::Error>> {
    let outbox = Outbox::default();
    let mut transaction = pool.begin().await?;
    sqlx::query("insert into orders (id) values ($1)")
        .bind(order)
        .execute(&mut *transaction)
        .await?;
    let created = OrderCreated { order };
    outbox.enqueue(&mut transaction, &created).await?;
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

/// What stands between the fences of every block of SQL.
fn every_block_of_sql(text: &str) -> Vec<&str> {
    let blocks = text.split("```sql\n").skip(1);
    blocks
        .map(|rest| rest.split_once("```").expect("the block ends").0)
        .collect()
}

/// A database with an outbox in the schema of the examples, and a table of orders.
struct Shop {
    database: Database,
    store: Postgres,
}

impl Shop {
    async fn open() -> Self {
        let database = Database::create("readme").await;
        let options = Options {
            // A stall of the machine proves nothing.
            timeout: Duration::from_secs(120),
            ..Options::default()
        };
        let store = Postgres::new(&database.url, options).expect("a URL");
        store.migrate().await.expect("migrates");
        execute(&store.pool(), "create table orders (id bigint primary key)").await;
        Self { database, store }
    }

    async fn orders(&self) -> Vec<i64> {
        let orders = sqlx::query_scalar("select id from orders order by id");
        orders.fetch_all(&self.store.pool()).await.expect("reads")
    }

    async fn close(self) {
        self.store.close().await;
        self.database.drop().await;
    }
}

async fn execute(pool: &sqlx::PgPool, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await;
    done.unwrap_or_else(|error| panic!("{error}: {sql}"));
}

#[tokio::test]
async fn both_examples_enqueue_what_they_say() {
    let shop = Shop::open().await;
    place_order(&shop.store.pool(), 42)
        .await
        .expect("places the order");
    execute(&shop.store.pool(), block("sql")).await;
    let claimed = shop.store.claim(&request(10)).await.expect("claims");
    let enqueued: Vec<_> = claimed
        .iter()
        .map(|delivery| delivery.event.aggregate_id.as_deref())
        .collect();
    assert_eq!(enqueued, [Some("42"), Some("43")]);
    assert_eq!(shop.orders().await, [42, 43]);
    shop.close().await;
}

#[tokio::test]
async fn the_sql_of_the_page_for_producers_runs() {
    let page = include_str!("../../../../docs/producers/README.md");
    let shop = Shop::open().await;
    for block in every_block_of_sql(page) {
        execute(&shop.store.pool(), block).await;
    }
    // The dedupe key of the last block is that of the first.
    let claimed = shop.store.claim(&request(10)).await.expect("claims");
    let enqueued: Vec<_> = claimed
        .iter()
        .map(|delivery| delivery.event.event_type.as_deref().unwrap_or_default())
        .collect();
    assert_eq!(enqueued, ["StockReserved", "StockReserved", "OrderCreated"]);
    assert_eq!(shop.orders().await, [42]);
    shop.close().await;
}

#[tokio::test]
async fn the_page_for_producers_lists_every_argument_in_order() {
    let page = include_str!("../../../../docs/producers/README.md");
    let (_, table) = page.split_once("| argument | type |").expect("the table begins");
    let (table, _) = table.split_once("\n\n").expect("the table ends");
    let row = |line: &str| {
        let mut cells = line
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').to_owned());
        Some((cells.nth(1)?, cells.next()?))
    };
    let shown: Vec<(String, String)> = table.lines().skip(2).filter_map(row).collect();

    let shop = Shop::open().await;
    let arguments = "select name, case format_type(type, null)
          when 'timestamp with time zone' then 'timestamptz' when 'integer' then 'int'
          else format_type(type, null) end
        from pg_proc, unnest(proargnames, string_to_array(proargtypes::text, ' ')::oid[]) as a (name, type)
        where oid = 'pillarbox.enqueue'::regproc";
    let arguments: Vec<(String, String)> = sqlx::query_as(arguments)
        .fetch_all(&shop.store.pool())
        .await
        .expect("asks");
    assert_eq!(shown, arguments);
    shop.close().await;
}
