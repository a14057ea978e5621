//! Handlers on SQLite.

use pillarbox_consume::rabbitmq::RabbitMq;
use pillarbox_consume::{Consumer, HandlerError, Received};
use pillarbox_store::stores::sqlite::{Options, Sqlite};
use sqlx::{SqlitePool, SqliteTransaction};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Entry, entry};
use crate::rabbitmq::Broker;
use pillarbox_testkit::wait::until;

async fn keep(
    transaction: &mut SqliteTransaction<'static>,
    event: Received<Entry>,
) -> Result<(), HandlerError> {
    sqlx::query("insert into book (number) values (?)")
        .bind(event.body.number)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_handled_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let options = Options {
        create_if_missing: true,
        ..Options::default()
    };
    let store = Sqlite::open(path.to_str().unwrap(), options).await.unwrap();
    store.migrate().await.unwrap();
    let pool = SqlitePool::connect(&format!("sqlite://{}", path.display()))
        .await
        .unwrap();
    let table = "create table book (number integer not null)";
    sqlx::raw_sql(table).execute(&pool).await.unwrap();

    let broker = Broker::fresh().await;
    let stop = CancellationToken::new();
    let consumer = Consumer::new("ledger", pool.clone()).on("EntryMade", 1, keep);
    let source = RabbitMq::new(broker.config()).unwrap();
    let mut running = JoinSet::new();
    let shutdown = stop.clone();
    running.spawn(async move { consumer.run(source, shutdown).await.unwrap() });
    broker.until_consumed().await;
    let events: Vec<_> = (0..30).map(|number| entry("a", number)).collect();
    broker.publish(&events).await;
    broker.publish(&events).await;
    let numbers = || async {
        let rows = sqlx::query_scalar("select number from book order by rowid");
        let rows: Vec<i64> = rows.fetch_all(&pool).await.unwrap();
        rows
    };
    until("all are handled", || async { numbers().await.len() >= 30 }).await;
    until("all are acknowledged", || async {
        broker.waiting(&broker.queue).await == Some(0)
    })
    .await;
    stop.cancel();
    let counts = running.join_next().await.unwrap().unwrap();
    assert_eq!(numbers().await, (0..30).collect::<Vec<_>>());
    assert_eq!((counts.handled, counts.dead), (30, 0));
    broker.clean_up().await;
}
