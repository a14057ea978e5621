//! Delivers events from the outbox to RabbitMQ. In production the daemon does this (`pillarbox run`). Here the dispatcher is
//! embedded, so that the shop is one program.
//!
//! **If we die here** another dispatcher takes over when the lease expires.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, RetryPolicy, Sink};
use pillarbox_dispatch::{Destination, Dispatcher, OnDead, Policy, Settings};
use pillarbox_sinks::rabbitmq::{Config, RabbitMq};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::Service;
use crate::Result;
use crate::environment::Environment;
use crate::faults::{self, Mode};

pub(super) async fn run(environment: &Environment, shutdown: CancellationToken) -> Result<()> {
    let config = Config::new(environment.amqp.as_str(), environment.exchange());
    let sink = Repeating {
        sink: RabbitMq::new("rabbitmq", &config)?,
        pool: environment.pool()?,
    };
    let lease = environment.lease();
    // A queue that is not declared yet causes a retry: soon, and without limit.
    let retry = RetryPolicy::exponential(Duration::from_millis(200), Duration::from_secs(5));
    let policy = Policy::default()
        .retry(retry)
        .timeout(lease / 2)
        .on_dead(OnDead::Continue);
    let destination = Destination::new("rabbitmq", sink).policy(policy).concurrency(32);
    let settings = Settings {
        lease,
        timeout: lease / 2,
        poll_interval: Duration::from_millis(50),
        ..Settings::default()
    };
    let dispatcher = Dispatcher::builder(Arc::new(environment.store()?))
        .settings(settings)
        .destination(destination)
        .build()?;
    dispatcher.run(shutdown).await;
    Ok(())
}

/// The fault `twice`: publishes every message a second time, with identical content. An example of a sink that wraps a sink.
struct Repeating {
    sink: RabbitMq,
    pool: PgPool,
}

#[async_trait]
impl Sink for Repeating {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let first = self.sink.deliver(delivery).await;
        let mode = faults::read(&self.pool, Service::Dispatcher).await;
        if first == Outcome::Delivered && mode.is_ok_and(|mode| mode == Mode::Twice) {
            return self.sink.deliver(delivery).await;
        }
        first
    }

    async fn check(&self) -> std::result::Result<(), String> {
        self.sink.check().await
    }

    async fn close(&self) {
        self.sink.close().await;
    }
}
