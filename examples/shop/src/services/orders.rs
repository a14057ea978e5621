//! Runs the saga: every answer, timeout and wish of a person moves it on. When it ends, so does the order.
//!
//! **If we die here** neither the saga nor the order has moved, and the message comes again.

use bytes::Bytes;
use pillarbox::saga::message::ID;
use pillarbox::saga::{Handled, Message, Saga, Status};
use pillarbox::{Outbox, ToEvent};
use pillarbox_consume::{Handler, HandlerError, Received};
use sqlx::PgTransaction;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::messages::{OrderCancelled, OrderConfirmed};
use crate::places::Places;
use crate::saga::{self, NAME, Order, TOPIC};

pub(super) async fn run(places: &Places, shutdown: CancellationToken) -> Result<()> {
    let saga = saga::define(places.patience())?;
    let consumer = consumer(Service::Orders, &places.pool()?).otherwise(Orchestrator { saga });
    consume(consumer, places.queue(Service::Orders, TOPIC), shutdown).await
}

struct Orchestrator {
    saga: Saga<Order>,
}

impl Handler<PgTransaction<'static>, Bytes> for Orchestrator {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Bytes>,
    ) -> Result<(), HandlerError> {
        let headers = event.headers.iter().map(|(name, value)| (name, value.as_str()));
        let message = Message::new(headers, &event.body);
        let handled = match self.saga.handle(transaction, &message).await {
            Err(error) if error.is_final() => return Err(HandlerError::reject(error.to_string())),
            handled => handled?,
        };
        match handled {
            Handled::Moved(status) => ended(transaction, &event, status).await,
            Handled::NotOurs => Err(HandlerError::reject("it is not for the saga of an order")),
            // Doubled or late, or of an order that is long forgotten.
            Handled::Ignored(_) | Handled::Unknown => Ok(()),
        }
    }
}

/// What follows for the order.
async fn ended(
    transaction: &mut PgTransaction<'static>,
    event: &Received<Bytes>,
    status: Status,
) -> Result<(), HandlerError> {
    let order: i64 = event.headers.get(ID).map_or("", String::as_str).parse()?;
    match status {
        Status::Running | Status::Compensating => Ok(()),
        Status::Completed => close(transaction, order, "confirmed", &OrderConfirmed { order }).await,
        Status::Compensated => {
            let why = reason(transaction, order).await?;
            close(transaction, order, "cancelled", &OrderCancelled { order, why }).await
        }
    }
}

async fn close(
    transaction: &mut PgTransaction<'static>,
    order: i64,
    status: &str,
    event: &(impl ToEvent + Sync),
) -> Result<(), HandlerError> {
    sqlx::query("update shop.orders set status = $2 where id = $1")
        .bind(order)
        .bind(status)
        .execute(&mut **transaction)
        .await?;
    Outbox::default().enqueue(transaction, event).await?;
    Ok(())
}

/// Why the saga was given up: what the last command came to. Nothing if a person wanted it so.
async fn reason(transaction: &mut PgTransaction<'static>, order: i64) -> Result<Option<String>, sqlx::Error> {
    let select = "select l.step || ': ' || coalesce(l.detail, l.what)
         from pillarbox.saga_log l join pillarbox.sagas s on s.seq = l.saga
         where s.name = $1 and s.id = $2 and l.action = 'command' and l.what in ('refused', 'failed', 'timed out')
         order by l.seq desc limit 1";
    sqlx::query_scalar(select)
        .bind(NAME)
        .bind(order.to_string())
        .fetch_optional(&mut **transaction)
        .await
}
