//! The orchestrator: passes every reply, timeout and operator's request to the saga. When the saga ends, the order ends too.
//!
//! **If we die here** neither the saga nor the order has changed, and the broker delivers the message again.

use bytes::Bytes;
use pillarbox::saga::message::ID;
use pillarbox::saga::{Handled, Message, Saga, Status};
use pillarbox::{Outbox, ToEvent};
use pillarbox_consume::{Handler, HandlerError, Received};
use sqlx::PgTransaction;
use tokio_util::sync::CancellationToken;

use super::{Service, consume, consumer};
use crate::Result;
use crate::environment::Environment;
use crate::messages::{OrderCancelled, OrderConfirmed};
use crate::saga::{self, NAME, Order, TOPIC};

pub(super) async fn run(environment: &Environment, shutdown: CancellationToken) -> Result<()> {
    let saga = saga::define(environment.step_timeout())?;
    let consumer = consumer(Service::Orders, &environment.pool()?).otherwise(Orchestrator { saga });
    consume(consumer, environment.queue(Service::Orders, TOPIC), shutdown).await
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
            Handled::NotOurs => Err(HandlerError::reject("the message is not for the saga `order`")),
            // Duplicate or late, or its saga was deleted.
            Handled::Ignored(_) | Handled::Unknown => Ok(()),
        }
    }
}

/// Ends the order if its saga has ended.
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
            let reason = reason(transaction, order).await?;
            close(transaction, order, "cancelled", &OrderCancelled { order, reason }).await
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
    Outbox::default()
        .by_function()
        .enqueue(transaction, event)
        .await?;
    Ok(())
}

/// Why the saga gave up: the result of its last failed command. `None` if an operator asked for it.
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
