//! Charges cards, and gives the money back.

use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Service, consume, consumer};
use crate::Result;
use crate::duty::{Duty, Said, on_duty};
use crate::messages::{ChargeCard, Charged, RefundCard};
use crate::places::Places;

pub(super) async fn run(places: &Places, shutdown: CancellationToken) -> Result<()> {
    let pool = places.pool()?;
    let consumer = consumer(Service::Payment, &pool)
        .on("ChargeCard", 1, on_duty(Charge, &pool, places))
        .on("RefundCard", 1, on_duty(Refund, &pool, places));
    consume(consumer, places.queue(Service::Payment, "payment"), shutdown).await
}

struct Charge;

impl Duty for Charge {
    type Told = ChargeCard;
    const SERVICE: Service = Service::Payment;

    async fn carry_out(&self, connection: &mut PgConnection, told: &ChargeCard) -> Result<Said, sqlx::Error> {
        if told.card == "expired" {
            return Ok(Said::Refused("the card has expired"));
        }
        let insert = "insert into payment.charges (order_id, cents, status) values ($1, $2, 'charged') \
                      on conflict (order_id) do nothing";
        sqlx::query(insert)
            .bind(told.order)
            .bind(told.cents)
            .execute(&mut *connection)
            .await?;
        let select = "select charge, status = 'charged' from payment.charges where order_id = $1";
        let (charge, is_charged): (Uuid, bool) = sqlx::query_as(select)
            .bind(told.order)
            .fetch_one(connection)
            .await?;
        Ok(if is_charged {
            Said::done_with(&Charged { charge })
        } else {
            Said::Refused("it was refunded already")
        })
    }
}

struct Refund;

impl Duty for Refund {
    type Told = RefundCard;
    const SERVICE: Service = Service::Payment;

    async fn carry_out(&self, connection: &mut PgConnection, told: &RefundCard) -> Result<Said, sqlx::Error> {
        let upsert = "insert into payment.charges as c (order_id, cents, status) values ($1, 0, 'barred') \
                      on conflict (order_id) do update set status = 'refunded' where c.status = 'charged'";
        sqlx::query(upsert).bind(told.order).execute(connection).await?;
        Ok(Said::done())
    }
}
