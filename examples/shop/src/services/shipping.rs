//! Books parcels, and cancels them.

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::duty::{Duty, Said, on_duty};
use crate::messages::{BookParcel, CancelParcel};
use crate::places::Places;

pub(super) async fn run(places: &Places, shutdown: CancellationToken) -> Result<()> {
    let pool = places.pool()?;
    let consumer = consumer(Service::Shipping, &pool)
        .on("BookParcel", 1, on_duty(Book, &pool, places))
        .on("CancelParcel", 1, on_duty(Cancel, &pool, places));
    consume(consumer, places.queue(Service::Shipping, "shipping"), shutdown).await
}

struct Book;

impl Duty for Book {
    type Told = BookParcel;
    const SERVICE: Service = Service::Shipping;

    async fn carry_out(&self, connection: &mut PgConnection, told: &BookParcel) -> Result<Said, sqlx::Error> {
        if told.address == "nowhere" {
            return Ok(Said::Refused("nobody delivers there"));
        }
        let insert = "insert into shipping.parcels (order_id, address, status) values ($1, $2, 'booked') \
                      on conflict (order_id) do nothing";
        sqlx::query(insert)
            .bind(told.order)
            .bind(&told.address)
            .execute(&mut *connection)
            .await?;
        let select = "select status = 'booked' from shipping.parcels where order_id = $1";
        let is_booked: bool = sqlx::query_scalar(select)
            .bind(told.order)
            .fetch_one(connection)
            .await?;
        Ok(if is_booked {
            Said::done()
        } else {
            Said::Refused("it was cancelled already")
        })
    }
}

struct Cancel;

impl Duty for Cancel {
    type Told = CancelParcel;
    const SERVICE: Service = Service::Shipping;

    async fn carry_out(
        &self,
        connection: &mut PgConnection,
        told: &CancelParcel,
    ) -> Result<Said, sqlx::Error> {
        let upsert = "insert into shipping.parcels as p (order_id, address, status) values ($1, '', 'barred') \
                      on conflict (order_id) do update set status = 'cancelled' where p.status = 'booked'";
        sqlx::query(upsert).bind(told.order).execute(connection).await?;
        Ok(Said::done())
    }
}
