//! Charges and refunds cards.

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Service, consume, consumer};
use crate::Result;
use crate::environment::Environment;
use crate::messages::{ChargeCard, Charged, RefundCard};
use crate::task::{Reply, Task, handler};

pub(super) async fn run(environment: &Environment, shutdown: CancellationToken) -> Result<()> {
    let pool = environment.pool()?;
    let consumer = consumer(Service::Payment, &pool)
        .on("ChargeCard", 1, handler(Charge, &pool, environment))
        .on("RefundCard", 1, handler(Refund, &pool, environment));
    consume(consumer, environment.queue(Service::Payment, "payment"), shutdown).await
}

struct Charge;

impl Task for Charge {
    type Input = ChargeCard;
    const SERVICE: Service = Service::Payment;

    async fn perform(&self, connection: &mut PgConnection, input: &ChargeCard) -> Result<Reply, sqlx::Error> {
        if input.card == "expired" {
            return Ok(Reply::Refused("the card has expired"));
        }
        let insert = "insert into payment.charges (order_id, cents, status) values ($1, $2, 'charged') \
                      on conflict (order_id) do nothing";
        sqlx::query(insert)
            .bind(input.order)
            .bind(input.cents)
            .execute(&mut *connection)
            .await?;
        let select = "select charge, status = 'charged' from payment.charges where order_id = $1";
        let (charge, is_charged): (Uuid, bool) = sqlx::query_as(select)
            .bind(input.order)
            .fetch_one(connection)
            .await?;
        Ok(if is_charged {
            Reply::done_with(&Charged { charge })
        } else {
            Reply::Refused("the charge was refunded before")
        })
    }
}

struct Refund;

impl Task for Refund {
    type Input = RefundCard;
    const SERVICE: Service = Service::Payment;

    async fn perform(&self, connection: &mut PgConnection, input: &RefundCard) -> Result<Reply, sqlx::Error> {
        let upsert = "insert into payment.charges as c (order_id, cents, status) values ($1, 0, 'barred') \
                      on conflict (order_id) do update set status = 'refunded' where c.status = 'charged'";
        sqlx::query(upsert).bind(input.order).execute(connection).await?;
        Ok(Reply::done())
    }
}
