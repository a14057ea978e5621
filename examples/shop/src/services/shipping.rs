//! Books and cancels parcels.

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::environment::Environment;
use crate::messages::{BookParcel, CancelParcel};
use crate::task::{Reply, Task, handler};

pub(super) async fn run(environment: &Environment, shutdown: CancellationToken) -> Result<()> {
    let pool = environment.pool()?;
    let consumer = consumer(Service::Shipping, &pool)
        .on("BookParcel", 1, handler(Book, &pool, environment))
        .on("CancelParcel", 1, handler(Cancel, &pool, environment));
    consume(
        consumer,
        environment.queue(Service::Shipping, "shipping"),
        shutdown,
    )
    .await
}

struct Book;

impl Task for Book {
    type Input = BookParcel;
    const SERVICE: Service = Service::Shipping;

    async fn perform(&self, connection: &mut PgConnection, input: &BookParcel) -> Result<Reply, sqlx::Error> {
        if input.address == "nowhere" {
            return Ok(Reply::Refused("no carrier delivers to this address"));
        }
        let insert = "insert into shipping.parcels (order_id, address, status) values ($1, $2, 'booked') \
                      on conflict (order_id) do nothing";
        sqlx::query(insert)
            .bind(input.order)
            .bind(&input.address)
            .execute(&mut *connection)
            .await?;
        let select = "select status = 'booked' from shipping.parcels where order_id = $1";
        let is_booked: bool = sqlx::query_scalar(select)
            .bind(input.order)
            .fetch_one(connection)
            .await?;
        Ok(if is_booked {
            Reply::done()
        } else {
            Reply::Refused("the parcel was cancelled before")
        })
    }
}

struct Cancel;

impl Task for Cancel {
    type Input = CancelParcel;
    const SERVICE: Service = Service::Shipping;

    async fn perform(
        &self,
        connection: &mut PgConnection,
        input: &CancelParcel,
    ) -> Result<Reply, sqlx::Error> {
        let upsert = "insert into shipping.parcels as p (order_id, address, status) values ($1, '', 'barred') \
                      on conflict (order_id) do update set status = 'cancelled' where p.status = 'booked'";
        sqlx::query(upsert).bind(input.order).execute(connection).await?;
        Ok(Reply::done())
    }
}
