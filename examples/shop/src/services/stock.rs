//! Reserves what is on hand, and puts it back.

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::duty::{Duty, Said, on_duty};
use crate::messages::{ReleaseStock, ReserveStock};
use crate::places::Places;

pub(super) async fn run(places: &Places, shutdown: CancellationToken) -> Result<()> {
    let pool = places.pool()?;
    let consumer = consumer(Service::Stock, &pool)
        .on("ReserveStock", 1, on_duty(Reserve, &pool, places))
        .on("ReleaseStock", 1, on_duty(Release, &pool, places));
    consume(consumer, places.queue(Service::Stock, "stock"), shutdown).await
}

struct Reserve;

impl Duty for Reserve {
    type Told = ReserveStock;
    const SERVICE: Service = Service::Stock;

    /// The row first: whoever comes with the same order meanwhile waits for it.
    async fn carry_out(
        &self,
        connection: &mut PgConnection,
        told: &ReserveStock,
    ) -> Result<Said, sqlx::Error> {
        let insert = "insert into stock.reservations (order_id, item, quantity, status) \
                      values ($1, $2, $3, 'reserved') on conflict (order_id) do nothing";
        let inserted = sqlx::query(insert)
            .bind(told.order)
            .bind(&told.item)
            .bind(told.quantity)
            .execute(&mut *connection)
            .await?;
        if inserted.rows_affected() == 0 {
            return answer_again(connection, told.order).await;
        }
        if take(connection, told).await? {
            return Ok(Said::done());
        }
        bar(connection, told.order).await?;
        Ok(Said::Refused("there is not enough in stock"))
    }
}

/// What is said to an order that is known.
async fn answer_again(connection: &mut PgConnection, order: i64) -> Result<Said, sqlx::Error> {
    let select = "select status = 'reserved' from stock.reservations where order_id = $1";
    let is_reserved: bool = sqlx::query_scalar(select)
        .bind(order)
        .fetch_one(connection)
        .await?;
    Ok(if is_reserved {
        Said::done()
    } else {
        Said::Refused("it was refused or released before")
    })
}

/// False if there is not enough.
async fn take(connection: &mut PgConnection, told: &ReserveStock) -> Result<bool, sqlx::Error> {
    let update = "update stock.items set on_hand = on_hand - $2 where item = $1 and on_hand >= $2";
    let taken = sqlx::query(update)
        .bind(&told.item)
        .bind(told.quantity)
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

impl Duty for Release {
    type Told = ReleaseStock;
    const SERVICE: Service = Service::Stock;

    async fn carry_out(
        &self,
        connection: &mut PgConnection,
        told: &ReleaseStock,
    ) -> Result<Said, sqlx::Error> {
        let insert = "insert into stock.reservations (order_id, item, quantity, status) \
                      values ($1, '', 0, 'barred') on conflict (order_id) do nothing";
        sqlx::query(insert)
            .bind(told.order)
            .execute(&mut *connection)
            .await?;
        let give_back = "with released as (update stock.reservations set status = 'released' \
                         where order_id = $1 and status = 'reserved' returning item, quantity) \
                         update stock.items i set on_hand = on_hand + r.quantity from released r where i.item = r.item";
        sqlx::query(give_back)
            .bind(told.order)
            .execute(connection)
            .await?;
        Ok(Said::done())
    }
}
