//! The services. Each runs in a process of its own and knows the others by their messages only.

pub(crate) mod dispatcher;
mod notifications;
mod orders;
mod payment;
mod shipping;
mod stock;

use std::fmt;

use clap::ValueEnum;
use pillarbox::RetryPolicy;
use pillarbox_consume::rabbitmq::{Config, RabbitMq};
use pillarbox_consume::{Consumer, Unknown};
use sqlx::PgPool;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::places::{CONCURRENCY, Places};
use crate::{Result, signals};

/// Who there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// Gets what is in the outbox to RabbitMQ
    Dispatcher,
    /// Runs the saga
    Orders,
    /// Charges cards
    Payment,
    /// Reserves stock
    Stock,
    /// Books parcels
    Shipping,
    /// Tells customers
    Notifications,
}

impl Service {
    pub(crate) const ALL: [Self; 6] = [
        Self::Dispatcher,
        Self::Orders,
        Self::Payment,
        Self::Stock,
        Self::Shipping,
        Self::Notifications,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher",
            Self::Orders => "orders",
            Self::Payment => "payment",
            Self::Stock => "stock",
            Self::Shipping => "shipping",
            Self::Notifications => "notifications",
        }
    }

    /// Has it a queue of its own?
    pub(crate) fn consumes(self) -> bool {
        self != Self::Dispatcher
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Runs a service until it is told to stop.
pub(crate) async fn serve(service: Service, places: &Places, until_stdin_ends: bool) -> Result<()> {
    let shutdown = signals::shutdown(until_stdin_ends)?;
    match service {
        Service::Dispatcher => dispatcher::run(places, shutdown).await,
        Service::Orders => orders::run(places, shutdown).await,
        Service::Payment => payment::run(places, shutdown).await,
        Service::Stock => stock::run(places, shutdown).await,
        Service::Shipping => shipping::run(places, shutdown).await,
        Service::Notifications => notifications::run(places, shutdown).await,
    }
}

/// What all consumers of the shop have in common. What nobody here handles was sent here by mistake.
fn consumer(service: Service, pool: &PgPool) -> Consumer<PgPool> {
    Consumer::new(service.to_string(), pool.clone())
        .concurrency(CONCURRENCY)
        .retry(RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(10)).max_attempts(10))
        .unknown(Unknown::Reject)
        .grace(Duration::from_secs(10))
}

async fn consume(consumer: Consumer<PgPool>, queue: Config, shutdown: CancellationToken) -> Result<()> {
    consumer.run(RabbitMq::new(queue)?, shutdown).await?;
    Ok(())
}
