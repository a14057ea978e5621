//! The databases of the shop: PostgreSQL and SQLite.

use std::path::Path;

use pillarbox::{EnqueueError, Outbox};
use pillarbox_store::stores::sqlite;
use sqlx::{PgPool, SqlitePool};
use uuid::Uuid;

use super::shop::{Ending, Order, OrderDatabase, Row};

/// PostgreSQL. Writers of one key wait for each other, because the outbox locks the key.
#[derive(Clone)]
pub(super) struct Postgres {
    pool: PgPool,
    outbox: Outbox,
}

impl Postgres {
    pub(super) async fn open(pool: PgPool) -> Self {
        sqlx::query(
            "create table public.purchases (
               number bigint generated always as identity primary key,
               id uuid not null, key text, topic text not null
             )",
        )
        .execute(&pool)
        .await
        .expect("a table for purchases");
        Self {
            pool,
            outbox: Outbox::default().serialised(),
        }
    }

    async fn try_write(&self, orders: &[Order], ending: Ending) -> Result<(), Box<dyn std::error::Error>> {
        let mut transaction = self.pool.begin().await?;
        let events: Vec<_> = orders.iter().map(Order::event).collect();
        // The event first, because it locks the key. The number comes second.
        self.outbox.enqueue_all(&mut transaction, &events).await?;
        sqlx::query(
            "insert into public.purchases (id, key, topic)
             select id, key, topic
             from unnest($1::uuid[], $2::text[], $3::text[]) with ordinality as o (id, key, topic, place)
             order by place",
        )
        .bind(orders.iter().map(|order| order.id).collect::<Vec<_>>())
        .bind(orders.iter().map(|order| order.key.clone()).collect::<Vec<_>>())
        .bind(orders.iter().map(|order| order.topic.clone()).collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await?;
        match ending {
            Ending::Commit => transaction.commit().await?,
            Ending::RollBack => transaction.rollback().await?,
        }
        Ok(())
    }
}

impl OrderDatabase for Postgres {
    async fn write(&self, orders: &[Order], ending: Ending) -> Result<(), String> {
        let written = self.try_write(orders, ending).await;
        written.map_err(|error| error.to_string())
    }

    async fn orders(&self) -> Vec<Order> {
        let orders: Vec<(i64, Uuid, Option<String>, String)> =
            sqlx::query_as("select number, id, key, topic from public.purchases")
                .fetch_all(&self.pool)
                .await
                .expect("the purchases can be read");
        orders.into_iter().map(order).collect()
    }

    async fn rows(&self) -> Vec<Row> {
        let rows: Vec<(Uuid, i64, Option<String>, String, i32)> = sqlx::query_as(
            "select coalesce(parent_id, id), seq, destination, status, attempts from pillarbox.outbox_events",
        )
        .fetch_all(&self.pool)
        .await
        .expect("the outbox can be read");
        rows.into_iter().map(row).collect()
    }

    async fn unfinished(&self) -> i64 {
        sqlx::query_scalar(
            "select count(*) from pillarbox.outbox_events where status in ('pending', 'processing')",
        )
        .fetch_one(&self.pool)
        .await
        .expect("the database answers")
    }

    async fn in_flight_of(&self, worker: Uuid) -> i64 {
        sqlx::query_scalar(
            "select count(*) from pillarbox.outbox_events where status = 'processing' and locked_by = $1",
        )
        .bind(worker)
        .fetch_one(&self.pool)
        .await
        .expect("the database answers")
    }

    async fn leases_expired(&self, worker: Uuid) -> bool {
        sqlx::query_scalar(
            "select not exists (
               select from pillarbox.outbox_events
               where status = 'processing' and locked_by = $1 and locked_until >= now()
             ) and not exists (select from pillarbox.leases where worker = $1 and until >= now())
             and not exists (select from pillarbox.lane_ranges where owner = $1 and leased_until >= now())",
        )
        .bind(worker)
        .fetch_one(&self.pool)
        .await
        .expect("the database answers")
    }
}

/// A SQLite file, where one transaction writes at a time.
#[derive(Clone)]
pub(super) struct Sqlite {
    pool: SqlitePool,
}

impl Sqlite {
    /// Creates a file with an outbox.
    pub(super) async fn create(path: &Path) -> Self {
        let store = sqlite::Sqlite::create(path).await.expect("a file");
        store.migrate().await.expect("migrates");
        store.use_wal().await.expect("a journal");
        store.close().await;
        let path = path.to_str().expect("a path in UTF-8");
        let options = sqlite::connect_options(path, &sqlite::Options::default()).expect("a path");
        let pool = SqlitePool::connect_with(options)
            .await
            .expect("the file can be opened");
        sqlx::query(
            "create table purchases (
               number integer primary key autoincrement, id text not null, key text, topic text not null
             )",
        )
        .execute(&pool)
        .await
        .expect("a table for purchases");
        Self { pool }
    }

    /// A worker that is frozen inside of a transaction blocks all writers, which try again.
    async fn begin(&self) -> Result<sqlx::Transaction<'static, sqlx::Sqlite>, EnqueueError> {
        loop {
            match sqlite::begin(&self.pool).await {
                Err(EnqueueError::Busy) => {}
                begun => return begun,
            }
        }
    }

    async fn try_write(&self, orders: &[Order], ending: Ending) -> Result<(), Box<dyn std::error::Error>> {
        let mut transaction = self.begin().await?;
        for order in orders {
            sqlx::query("insert into purchases (id, key, topic) values (?, ?, ?)")
                .bind(order.id.to_string())
                .bind(&order.key)
                .bind(&order.topic)
                .execute(&mut *transaction)
                .await?;
        }
        let events: Vec<_> = orders.iter().map(Order::event).collect();
        Outbox::default().enqueue_all(&mut transaction, &events).await?;
        match ending {
            Ending::Commit => transaction.commit().await?,
            Ending::RollBack => transaction.rollback().await?,
        }
        Ok(())
    }
}

impl OrderDatabase for Sqlite {
    async fn write(&self, orders: &[Order], ending: Ending) -> Result<(), String> {
        let written = self.try_write(orders, ending).await;
        written.map_err(|error| error.to_string())
    }

    async fn orders(&self) -> Vec<Order> {
        let orders: Vec<(i64, String, Option<String>, String)> =
            sqlx::query_as("select number, id, key, topic from purchases")
                .fetch_all(&self.pool)
                .await
                .expect("the purchases can be read");
        let read = orders
            .into_iter()
            .map(|(number, id, key, topic)| (number, uuid(&id), key, topic));
        read.map(order).collect()
    }

    async fn rows(&self) -> Vec<Row> {
        let rows: Vec<(String, i64, Option<String>, String, i32)> = sqlx::query_as(
            "select coalesce(parent_id, id), seq, destination, status, attempts from outbox_events",
        )
        .fetch_all(&self.pool)
        .await
        .expect("the outbox can be read");
        let read = rows
            .into_iter()
            .map(|(event, seq, destination, status, attempts)| {
                (uuid(&event), seq, destination, status, attempts)
            });
        read.map(row).collect()
    }

    async fn unfinished(&self) -> i64 {
        sqlx::query_scalar("select count(*) from outbox_events where status in ('pending', 'processing')")
            .fetch_one(&self.pool)
            .await
            .expect("the file can be read")
    }

    async fn in_flight_of(&self, worker: Uuid) -> i64 {
        sqlx::query_scalar("select count(*) from outbox_events where status = 'processing' and locked_by = ?")
            .bind(worker.to_string())
            .fetch_one(&self.pool)
            .await
            .expect("the file can be read")
    }

    async fn leases_expired(&self, worker: Uuid) -> bool {
        sqlx::query_scalar(
            "select not exists (
               select 1 from outbox_events where status = 'processing' and locked_by = ?
                 and locked_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
             )",
        )
        .bind(worker.to_string())
        .fetch_one(&self.pool)
        .await
        .expect("the file can be read")
    }
}

fn uuid(text: &str) -> Uuid {
    text.parse().expect("a UUID")
}

fn order((number, id, key, topic): (i64, Uuid, Option<String>, String)) -> Order {
    Order {
        number,
        id,
        key,
        topic,
    }
}

fn row((event, seq, destination, status, attempts): (Uuid, i64, Option<String>, String, i32)) -> Row {
    Row {
        event,
        seq,
        destination,
        status,
        attempts,
    }
}
