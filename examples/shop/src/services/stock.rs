//! Reserves and releases stock.

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::environment::Environment;
use crate::messages::{ReleaseStock, ReserveStock};
use crate::task::{Reply, Task, handler};

pub(super) async fn run(environment: &Environment, shutdown: CancellationToken) -> Result<()> {
    let pool = environment.pool()?;
    let consumer = consumer(Service::Stock, &pool)
        .on("ReserveStock", 1, handler(Reserve, &pool, environment))
        .on("ReleaseStock", 1, handler(Release, &pool, environment));
    consume(consumer, environment.queue(Service::Stock, "stock"), shutdown).await
}

struct Reserve;

impl Task for Reserve {
    type Input = ReserveStock;
    const SERVICE: Service = Service::Stock;

    /// Inserts the row first, so that a concurrent command of the same order waits for it.
    async fn perform(
        &self,
        connection: &mut PgConnection,
        input: &ReserveStock,
    ) -> Result<Reply, sqlx::Error> {
        let insert = "insert into stock.reservations (order_id, item, quantity, status) \
                      values ($1, $2, $3, 'reserved') on conflict (order_id) do nothing";
        let inserted = sqlx::query(insert)
            .bind(input.order)
            .bind(&input.item)
            .bind(input.quantity)
            .execute(&mut *connection)
            .await?;
        if inserted.rows_affected() == 0 {
            return repeat_reply(connection, input.order).await;
        }
        if take(connection, input).await? {
            return Ok(Reply::done());
        }
        bar(connection, input.order).await?;
        Ok(Reply::Refused("not enough in stock"))
    }
}

/// Repeats the reply for an order that has a row.
async fn repeat_reply(connection: &mut PgConnection, order: i64) -> Result<Reply, sqlx::Error> {
    let select = "select status = 'reserved' from stock.reservations where order_id = $1";
    let is_reserved: bool = sqlx::query_scalar(select)
        .bind(order)
        .fetch_one(connection)
        .await?;
    Ok(if is_reserved {
        Reply::done()
    } else {
        Reply::Refused("the reservation was refused or released before")
    })
}

/// Returns false if there is not enough.
async fn take(connection: &mut PgConnection, input: &ReserveStock) -> Result<bool, sqlx::Error> {
    let update = "update stock.items set on_hand = on_hand - $2 where item = $1 and on_hand >= $2";
    let taken = sqlx::query(update)
        .bind(&input.item)
        .bind(input.quantity)
        .execute(connection)
        .await?;
    Ok(taken.rows_affected() == 1)
}

async fn bar(connection: &mut PgConnection, order: i64) -> Result<(), sqlx::Error> {
    sqlx::query("update stock.reservations set status = 'barred' where order_id = $1")
        .bind(order)
        .execute(connection)
        .await?;
    Ok(())
}

struct Release;

impl Task for Release {
    type Input = ReleaseStock;
    const SERVICE: Service = Service::Stock;

    async fn perform(
        &self,
        connection: &mut PgConnection,
        input: &ReleaseStock,
    ) -> Result<Reply, sqlx::Error> {
        let insert = "insert into stock.reservations (order_id, item, quantity, status) \
                      values ($1, '', 0, 'barred') on conflict (order_id) do nothing";
        sqlx::query(insert)
            .bind(input.order)
            .execute(&mut *connection)
            .await?;
        let give_back = "with released as (update stock.reservations set status = 'released' \
                         where order_id = $1 and status = 'reserved' returning item, quantity) \
                         update stock.items i set on_hand = on_hand + r.quantity from released r where i.item = r.item";
        sqlx::query(give_back)
            .bind(input.order)
            .execute(connection)
            .await?;
        Ok(Reply::done())
    }
}
