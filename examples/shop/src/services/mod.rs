//! The services. Each runs in its own process and communicates by messages only.

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

use crate::environment::{CONCURRENCY, Environment};
use crate::{Result, signals};

/// A service of the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// Deliver events from the outbox to RabbitMQ
    Dispatcher,
    /// Run the saga
    Orders,
    /// Charge cards
    Payment,
    /// Reserve stock
    Stock,
    /// Book parcels
    Shipping,
    /// Notify customers
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

    /// Does it have a queue?
    pub(crate) fn consumes(self) -> bool {
        self != Self::Dispatcher
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Runs a service until it is asked to stop.
pub(crate) async fn serve(service: Service, environment: &Environment, until_stdin_ends: bool) -> Result<()> {
    let shutdown = signals::shutdown(until_stdin_ends)?;
    match service {
        Service::Dispatcher => dispatcher::run(environment, shutdown).await,
        Service::Orders => orders::run(environment, shutdown).await,
        Service::Payment => payment::run(environment, shutdown).await,
        Service::Stock => stock::run(environment, shutdown).await,
        Service::Shipping => shipping::run(environment, shutdown).await,
        Service::Notifications => notifications::run(environment, shutdown).await,
    }
}

/// The settings that all consumers of the shop share. An event without a handler was routed here by mistake and is rejected.
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
