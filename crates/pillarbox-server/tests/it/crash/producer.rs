//! The application: orders, each committed with its event in one transaction.

use std::time::Duration;

use pillarbox::{Event, Outbox};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// One in this many transactions is rolled back.
const ROLLED_BACK: usize = 5;

/// An order service. Its table `orders` is the truth about what was committed.
#[derive(Clone)]
pub(super) struct Producer {
    pool: PgPool,
    outbox: Outbox,
}

impl Producer {
    pub(super) async fn new(pool: PgPool, outbox: Outbox) -> Self {
        sqlx::query("create table public.orders (id uuid primary key, payload jsonb not null)")
            .execute(&pool)
            .await
            .expect("a table for orders");
        Self { pool, outbox }
    }

    /// Commits this many orders, one transaction each. Others between them are rolled back, and the last one loses its
    /// connection.
    pub(super) async fn commit(&self, orders: usize) {
        for n in 0..orders {
            self.transaction(1).await.expect("commits");
            if n % ROLLED_BACK == 0 {
                self.roll_back().await.expect("rolls back");
            }
        }
        self.lose_connection().await;
    }

    /// Commits one order whose event has this type, and returns its id. The event is a plain INSERT, as in an application
    /// in another language.
    pub(super) async fn commit_one(&self, event_type: &str, payload: Value) -> Uuid {
        let id = Uuid::now_v7();
        let mut transaction = self.pool.begin().await.expect("begins");
        insert_orders(&mut transaction, &[(id, payload.clone())])
            .await
            .expect("an order");
        sqlx::query(
            "insert into pillarbox.outbox_events (id, namespace, topic, event_type, payload)
             values ($1, 'shop', 'orders', $2, $3)",
        )
        .bind(id)
        .bind(event_type)
        .bind(&payload)
        .execute(&mut *transaction)
        .await
        .expect("an event");
        transaction.commit().await.expect("commits");
        id
    }

    /// One transaction with this many orders.
    pub(super) async fn transaction(&self, orders: usize) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        self.write(&mut transaction, orders).await?;
        transaction.commit().await
    }

    async fn roll_back(&self) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        self.write(&mut transaction, 1).await?;
        transaction.rollback().await
    }

    /// The database ends the connection before the commit, as it does when the application dies.
    async fn lose_connection(&self) {
        let mut transaction = self.pool.begin().await.expect("begins");
        self.write(&mut transaction, 1).await.expect("writes");
        let cut = sqlx::query("select pg_terminate_backend(pg_backend_pid())");
        cut.execute(&mut *transaction)
            .await
            .expect_err("the connection is lost");
        transaction.commit().await.expect_err("the commit fails");
    }

    async fn write(&self, connection: &mut PgConnection, orders: usize) -> Result<(), sqlx::Error> {
        let orders: Vec<(Uuid, Value)> = (0..orders)
            .map(|_| Uuid::now_v7())
            .map(|id| (id, payload(id)))
            .collect();
        insert_orders(connection, &orders).await?;
        let events = orders.iter().map(|(id, payload)| {
            let event = Event::new("shop", "orders").id(*id).event_type("OrderPlaced");
            event.json(payload).expect("a value is JSON")
        });
        let enqueued = self
            .outbox
            .enqueue_all(connection, &events.collect::<Vec<_>>())
            .await;
        enqueued
            .map(|_| ())
            .map_err(|error| sqlx::Error::Protocol(error.to_string()))
    }

    /// Places orders in the background, also while the database is unavailable.
    pub(super) fn start_load(&self) -> Load {
        let stop = CancellationToken::new();
        let (producer, stopped) = (self.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(10));
            while !stopped.is_cancelled() {
                tick.tick().await;
                // A commit whose answer is lost may have happened. The table of orders tells.
                if producer.transaction(fastrand::usize(1..=12)).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                if fastrand::usize(..ROLLED_BACK) == 0 {
                    producer.roll_back().await.ok();
                }
            }
        });
        Load { task, stop }
    }
}

/// A task that places orders in the background.
pub(super) struct Load {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Load {
    /// Returns when the last transaction has ended.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("the producer does not panic");
    }
}

/// Writes orders: the business change that the events describe.
async fn insert_orders(connection: &mut PgConnection, orders: &[(Uuid, Value)]) -> Result<(), sqlx::Error> {
    let (ids, payloads): (Vec<Uuid>, Vec<Value>) = orders.iter().cloned().unzip();
    sqlx::query("insert into public.orders (id, payload) select * from unnest($1::uuid[], $2::jsonb[])")
        .bind(ids)
        .bind(payloads)
        .execute(connection)
        .await
        .map(|_| ())
}

/// Values that a careless encoder could change.
fn payload(id: Uuid) -> Value {
    json!({
        "order": id,
        "total": "19.90",
        "quantity": 9_007_199_254_740_993_i64,
        "note": "Grüße \u{1F4EE} \"quoted\" \\ \n\t</script>",
        "lines": [{"sku": "a-1", "price": 1.5}, null, true, []],
    })
}
