//! The subscription: one connection with one channel that receives and acknowledges.
//!
//! When the connection is lost, the broker delivers its messages to the next consumer. An acknowledgement sent later could hit
//! another message, so each receipt knows the channel that it came on.
//!
//! The client's own recovery stays off, because it would hide the loss. A request on a lost connection may never be answered,
//! so every wait ends with the connection.
//!
//! **If we die here** the broker delivers every unacknowledged message to the next consumer, in its order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Acker, BasicProperties, Channel, Connection};
use pillarbox_sinks::ConnectionLog;
use pillarbox_sinks::rabbitmq::Dial;
use pillarbox_sinks::registry::ConfigError;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::dead_letters::DeadLetters;
use super::prefetch::Prefetch;
use super::{read, topology};
use crate::dead_letter::DeadLetter;
use crate::in_flight::{Held, InFlight};
use crate::settings::reconnect_policy;
use crate::subscription::sealed::Listen;
use crate::subscription::{Message, MessageSender, OrderingKey, Receipt};

/// How long closing may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Receives from a RabbitMQ queue.
pub struct RabbitMq {
    dial: Dial,
    dead_letter_dial: Arc<Dial>,
    config: Arc<Config>,
}

impl RabbitMq {
    /// A subscription with this configuration. It connects when the consumer runs.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        for name in [&config.queue, &config.dead_queue] {
            if name.is_empty() {
                return Err(ConfigError::at("queue", "is empty"));
            }
            topology::short(name).map_err(|problem| ConfigError::at("queue", problem))?;
        }
        if config.queue == config.dead_queue {
            let problem = "is the queue itself: every dead letter would be consumed again at once";
            return Err(ConfigError::at("dead_queue", problem));
        }
        let dial = Dial::new(&format!("consumer of {}", config.queue), &config.broker)?;
        if let Some(exposure) = dial.exposure().filter(|_| config.strict) {
            return Err(exposure);
        }
        Ok(Self {
            dial,
            dead_letter_dial: Arc::new(Dial::new(
                &format!("dead letters of {}", config.queue),
                &config.broker,
            )?),
            config: Arc::new(config),
        })
    }

    async fn open(&self, consumer: &str, prefetch: u16) -> Result<Link, String> {
        let connection = self.dial.connect().await?;
        // A broker may accept the connection and then stay silent.
        let limit = self.config.broker.connect_timeout;
        let silent = || {
            Err(format!(
                "no answer from the broker within {limit:?} after the connection was opened"
            ))
        };
        let attached = timeout(limit, self.attach(connection, consumer, prefetch));
        attached.await.unwrap_or_else(|_| silent())
    }

    async fn attach(&self, connection: Connection, consumer: &str, prefetch: u16) -> Result<Link, String> {
        let text = |error: lapin::Error| error.to_string();
        if self.config.declare {
            let channel = connection.create_channel().await.map_err(text)?;
            topology::declare(&channel, &self.config).await?;
        }
        let channel = connection.create_channel().await.map_err(text)?;
        channel
            .basic_qos(prefetch, BasicQosOptions::default())
            .await
            .map_err(text)?;
        let tag: String = consumer.chars().take(60).collect();
        let deliveries = channel
            .basic_consume(
                topology::short(&self.config.queue)?,
                tag.into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await
            .map_err(|error| format!("queue `{}` cannot be consumed: {error}", self.config.queue))?;
        Ok(Link {
            dead_letters: Arc::new(DeadLetters::new(
                self.dead_letter_dial.clone(),
                self.config.clone(),
            )),
            connection,
            channel,
            deliveries,
            lost: CancellationToken::new(),
            // The broker bounds the number.
            in_flight: InFlight::new(usize::MAX, self.config.max_in_flight_bytes),
        })
    }
}

#[async_trait]
impl Listen for RabbitMq {
    #[expect(clippy::disallowed_methods, reason = "the wait before the next connection")]
    async fn listen(self: Box<Self>, consumer: &str, sender: MessageSender, end: CancellationToken) {
        if let Some(exposure) = self.dial.exposure() {
            tracing::warn!(consumer, reason = %exposure, "credentials are sent unencrypted");
        }
        let retry = reconnect_policy();
        let log = ConnectionLog::of_consumer(consumer, self.dial.host());
        let mut prefetch = Prefetch::new(self.config.prefetch, self.config.calm, Instant::now());
        let mut failures = 0;
        while !end.is_cancelled() {
            let opened = tokio::select! {
                biased;
                () = end.cancelled() => return,
                opened = self.open(consumer, prefetch.get()) => opened,
            };
            match opened {
                Ok(link) => {
                    failures = 0;
                    log.connected(self.dial.is_encrypted());
                    sender.connected(true);
                    match link.receive(&mut prefetch, &sender, &end).await {
                        End::Stopped => return,
                        End::Lost(reason) => {
                            sender.connected(false);
                            log.lost(Some(&reason));
                        }
                        End::TooLarge => {
                            tracing::warn!(
                                consumer,
                                queue = self.config.queue,
                                max_in_flight_bytes = self.config.max_in_flight_bytes,
                                prefetch = prefetch.get(),
                                "messages in flight too large; reconnecting with a smaller prefetch"
                            );
                            continue;
                        }
                        End::Small => {
                            tracing::info!(
                                consumer,
                                queue = self.config.queue,
                                prefetch = prefetch.get(),
                                "messages in flight small again; reconnecting with a larger prefetch"
                            );
                            continue;
                        }
                    }
                }
                Err(reason) => log.failed(&reason),
            }
            failures += 1;
            let delay = retry.delay(failures, fastrand::f64()).unwrap_or_default();
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
    /// Dropped only after the channel is closed. Dropping it earlier cancels the consumer: another process would get later
    /// messages while earlier ones are in flight here.
    deliveries: lapin::Consumer,
    dead_letters: Arc<DeadLetters>,
    /// Cancelled when the connection is over; ends every wait for an answer on it.
    lost: CancellationToken,
    in_flight: InFlight,
}

/// Why a link ended.
enum End {
    Stopped,
    Lost(String),
    /// The messages in flight exceed the limit of their bytes. The broker only takes them back with the channel.
    TooLarge,
    /// The messages in flight have been small for some time: more of them fit.
    Small,
}

impl Link {
    /// Receives until the consumer stops or the connection ends.
    async fn receive(
        mut self,
        prefetch: &mut Prefetch,
        sender: &MessageSender,
        end: &CancellationToken,
    ) -> End {
        let _lost = self.lost.clone().drop_guard();
        loop {
            let delivery = tokio::select! {
                biased;
                () = end.cancelled() => {
                    self.close().await;
                    return End::Stopped;
                }
                delivery = self.deliveries.next() => delivery,
            };
            match delivery {
                Some(Ok(delivery)) => {
                    let held = self
                        .in_flight
                        .try_hold(read::len(&delivery.properties, &delivery.data));
                    if held.is_none() && prefetch.get() > 1 {
                        prefetch.halve(Instant::now());
                        self.abandon().await;
                        return End::TooLarge;
                    }
                    if prefetch.received(self.in_flight.is_half_free(), Instant::now()) {
                        self.abandon().await;
                        return End::Small;
                    }
                    sender.send(message(delivery, held, &self.dead_letters, &self.lost));
                }
                Some(Err(error)) => {
                    self.abandon().await;
                    return End::Lost(error.to_string());
                }
                None => {
                    self.abandon().await;
                    let reason = "the broker cancelled the consumer (was the queue deleted?)";
                    return End::Lost(reason.to_owned());
                }
            }
        }
    }

    /// Closes what is left of a lost connection. The receipts of its messages become void.
    async fn abandon(self) {
        self.lost.cancel();
        self.close().await;
    }

    /// Closes the channel: the broker requeues the unacknowledged messages in their order.
    async fn close(self) {
        let closed = timeout(CLOSE_TIMEOUT, async {
            self.channel.close(200, "closing".into()).await.ok();
            self.connection.close(200, "closing".into()).await.ok();
            self.dead_letters.close().await;
        });
        if closed.await.is_err() {
            tracing::warn!(timeout = ?CLOSE_TIMEOUT, "connection did not close in time");
        }
    }
}

fn message(
    delivery: Delivery,
    held: Option<Held>,
    dead_letters: &Arc<DeadLetters>,
    lost: &CancellationToken,
) -> Message {
    let body = Bytes::from(delivery.data);
    let event = read::event(&delivery.properties, body.clone(), delivery.routing_key.as_str());
    Message {
        ordering_key: event.as_ref().ok().and_then(OrderingKey::of),
        event,
        receipt: Box::new(MessageReceipt {
            acker: delivery.acker,
            properties: delivery.properties,
            body,
            dead_letters: dead_letters.clone(),
            lost: lost.clone(),
            held: Mutex::new(held),
        }),
    }
}

/// A message in flight.
struct MessageReceipt {
    acker: Acker,
    properties: BasicProperties,
    body: Bytes,
    dead_letters: Arc<DeadLetters>,
    /// Cancelled when the connection that it came on is lost.
    lost: CancellationToken,
    /// Its room among the messages in flight.
    held: Mutex<Option<Held>>,
}

#[async_trait]
impl Receipt for MessageReceipt {
    fn begin(&self) -> bool {
        self.acker.usable() && !self.lost.is_cancelled()
    }

    async fn lost(&self) {
        self.lost.cancelled().await;
    }

    async fn acknowledge(&self) {
        // Before the broker learns of it: it then sends the next message, which may arrive before this one is dropped.
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
        let acked = self.acker.ack(BasicAckOptions::default());
        match self.lost.run_until_cancelled(acked).await {
            Some(Ok(true)) => {}
            Some(Ok(false)) | None => {
                tracing::debug!("not acknowledged, connection lost; the broker delivers the message again")
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "not acknowledged; the broker delivers the message again");
            }
        }
    }

    async fn publish_dead_letter(&self, letter: &DeadLetter) -> Result<(), String> {
        let published = self.dead_letters.publish(&self.properties, &self.body, letter);
        let unconfirmed = || Err("the connection was lost before the confirmation".to_owned());
        self.lost
            .run_until_cancelled(published)
            .await
            .unwrap_or_else(unconfirmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_acknowledged_message_takes_no_room_although_it_is_not_dropped() {
        let config = Config::new("amqp://guest:guest@127.0.0.1:1", "letters");
        let dial = Dial::new("dead letters of letters", &config.broker).unwrap();
        let dead_letters = Arc::new(DeadLetters::new(Arc::new(dial), Arc::new(config)));
        let in_flight = InFlight::new(usize::MAX, 1024 * 1024);
        let held = in_flight.try_hold(1024 * 1024);
        assert!(held.is_some() && in_flight.try_hold(1).is_none());
        let delivery = Delivery::mock(1, "events".into(), "letters".into(), false, Vec::new());
        let message = message(delivery, held, &dead_letters, &CancellationToken::new());
        message.receipt.acknowledge().await;
        assert!(in_flight.try_hold(1024 * 1024).is_some());
    }
}
