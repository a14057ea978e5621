//! The source: one connection, one channel that receives and acknowledges.
//!
//! A connection that is lost makes everything that came on it void: the broker gives it to whoever is next, and an
//! acknowledgement of ours would be of another message by then. The receipts know by the channel that they came on.
//!
//! The client's own recovery stays off, because it would hide exactly that. And what is asked of a connection that is lost
//! meanwhile may stay unanswered for ever: so nobody waits for it longer than the connection lasts.
//!
//! **If we die here** the broker gives everything that was not acknowledged to the next consumer, in its order.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Acker, BasicProperties, Channel, Connection};
use pillarbox_sinks::rabbitmq::Dial;
use pillarbox_sinks::registry::ConfigError;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::dead::Graves;
use super::{read, topology};
use crate::dead::DeadLetter;
use crate::settings::outage;
use crate::source::sealed::Listen;
use crate::source::{Inlet, Lane, Message, Receipt};

/// How long a farewell may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// Messages from a queue of RabbitMQ.
pub struct RabbitMq {
    dial: Dial,
    to_graves: Arc<Dial>,
    config: Arc<Config>,
}

impl RabbitMq {
    /// What the configuration says. Connects when the consumer runs.
    ///
    /// # Errors
    /// When the configuration cannot be true.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        for name in [&config.queue, &config.dead_queue] {
            if name.is_empty() {
                return Err(ConfigError::at("queue", "has no name"));
            }
            topology::short(name).map_err(|problem| ConfigError::at("queue", problem))?;
        }
        if config.queue == config.dead_queue {
            let problem = "is the queue itself: what is given up on would come again at once";
            return Err(ConfigError::at("dead_queue", problem));
        }
        Ok(Self {
            dial: Dial::new(&format!("consumer of {}", config.queue), &config.broker)?,
            to_graves: Arc::new(Dial::new(
                &format!("dead letters of {}", config.queue),
                &config.broker,
            )?),
            config: Arc::new(config),
        })
    }

    async fn open(&self, consumer: &str) -> Result<Link, String> {
        let connection = self.dial.connect().await?;
        // A broker that let us in may still say nothing more.
        let patience = self.config.broker.connect_timeout;
        let silent = || {
            Err(format!(
                "RabbitMQ let us in and did not answer within {patience:?}"
            ))
        };
        let attached = timeout(patience, self.attach(connection, consumer));
        attached.await.unwrap_or_else(|_| silent())
    }

    async fn attach(&self, connection: Connection, consumer: &str) -> Result<Link, String> {
        let words = |error: lapin::Error| error.to_string();
        if self.config.declare {
            let channel = connection.create_channel().await.map_err(words)?;
            topology::declare(&channel, &self.config).await?;
        }
        let channel = connection.create_channel().await.map_err(words)?;
        channel
            .basic_qos(self.config.prefetch, BasicQosOptions::default())
            .await
            .map_err(words)?;
        let tag: String = consumer.chars().take(60).collect();
        let deliveries = channel
            .basic_consume(
                topology::short(&self.config.queue)?,
                tag.into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await
            .map_err(|error| format!("the queue `{}` cannot be consumed: {error}", self.config.queue))?;
        Ok(Link {
            graves: Arc::new(Graves::new(self.to_graves.clone(), self.config.clone())),
            connection,
            channel,
            deliveries,
            gone: CancellationToken::new(),
        })
    }
}

#[async_trait]
impl Listen for RabbitMq {
    #[expect(clippy::disallowed_methods, reason = "the wait before the next connection")]
    async fn listen(self: Box<Self>, consumer: &str, inlet: Inlet, end: CancellationToken) {
        let patience = outage();
        let mut in_vain = 0;
        while !end.is_cancelled() {
            let opened = tokio::select! {
                biased;
                () = end.cancelled() => return,
                opened = self.open(consumer) => opened,
            };
            match opened {
                Ok(link) => {
                    in_vain = 0;
                    tracing::info!(consumer, queue = self.config.queue, "consuming");
                    let ended = link.receive(&inlet, &end).await;
                    if let Some(reason) = ended {
                        tracing::warn!(consumer, reason, "the connection ended; connecting again");
                    }
                }
                Err(reason) => tracing::warn!(
                    consumer,
                    reason,
                    "RabbitMQ is not there; trying again until it is"
                ),
            }
            in_vain += 1;
            let delay = patience.delay(in_vain, fastrand::f64()).unwrap_or_default();
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                () = sleep(delay) => {}
            }
        }
    }
}

/// An open connection.
struct Link {
    connection: Connection,
    channel: Channel,
    /// Dropped before the channel is closed, it would be cancelled: another process would be handed later messages while
    /// earlier ones are still held here.
    deliveries: lapin::Consumer,
    graves: Arc<Graves>,
    /// Cancelled when the link is over, for everybody who waits for an answer on it.
    gone: CancellationToken,
}

impl Link {
    /// Hands messages on until the connection ends, and says why; or until the end.
    async fn receive(mut self, inlet: &Inlet, end: &CancellationToken) -> Option<String> {
        let _over = self.gone.clone().drop_guard();
        loop {
            let delivery = tokio::select! {
                biased;
                () = end.cancelled() => {
                    self.goodbye().await;
                    return None;
                }
                delivery = self.deliveries.next() => delivery,
            };
            match delivery {
                Some(Ok(delivery)) => inlet.put(message(delivery, &self.graves, &self.gone)),
                Some(Err(error)) => return Some(self.lost(error.to_string()).await),
                None => {
                    let reason = "the broker cancelled the consumer; is the queue deleted?";
                    return Some(self.lost(reason.to_owned()).await);
                }
            }
        }
    }

    /// Whatever is left of the connection goes, and with it everything that came on it.
    async fn lost(self, reason: String) -> String {
        self.gone.cancel();
        self.goodbye().await;
        reason
    }

    /// Closes the channel, which gives back what was not acknowledged, in its order.
    async fn goodbye(self) {
        let said = timeout(GOODBYE, async {
            self.channel.close(200, "goodbye".into()).await.ok();
            self.connection.close(200, "goodbye".into()).await.ok();
            self.graves.close().await;
        });
        if said.await.is_err() {
            tracing::warn!("RabbitMQ did not answer a goodbye within {GOODBYE:?}");
        }
    }
}

fn message(delivery: Delivery, graves: &Arc<Graves>, gone: &CancellationToken) -> Message {
    let body = Bytes::from(delivery.data);
    let event = read::event(&delivery.properties, body.clone(), delivery.routing_key.as_str());
    Message {
        lane: event.as_ref().ok().and_then(Lane::of),
        event,
        receipt: Box::new(Held {
            acker: delivery.acker,
            properties: delivery.properties,
            body,
            graves: graves.clone(),
            gone: gone.clone(),
        }),
        _room: None,
    }
}

/// A message that the broker lent us.
struct Held {
    acker: Acker,
    properties: BasicProperties,
    body: Bytes,
    graves: Arc<Graves>,
    /// The connection that it came on is lost.
    gone: CancellationToken,
}

#[async_trait]
impl Receipt for Held {
    fn begin(&self) -> bool {
        self.acker.usable() && !self.gone.is_cancelled()
    }

    async fn acknowledge(&self) {
        let acked = self.acker.ack(BasicAckOptions::default());
        match self.gone.run_until_cancelled(acked).await {
            Some(Ok(true)) => {}
            Some(Ok(false)) | None => {
                tracing::debug!("the connection ended before the acknowledgement; the message comes again")
            }
            Some(Err(error)) => tracing::debug!(%error, "not acknowledged; the message comes again"),
        }
    }

    async fn bury(&self, letter: &DeadLetter) -> Result<(), String> {
        let buried = self.graves.bury(&self.properties, &self.body, letter);
        let lost = || Err("the connection ended before the confirmation".to_owned());
        self.gone.run_until_cancelled(buried).await.unwrap_or_else(lost)
    }
}
