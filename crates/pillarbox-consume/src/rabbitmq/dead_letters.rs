//! Publishes dead letters to their queue, with publisher confirms.
//!
//! One at a time: the client attaches a returned message to the next confirmation. Only with one publish in flight is it clear
//! which message was returned.
//!
//! On a connection of its own: a broker that is short of memory or disk blocks connections that publish. Acknowledgements on
//! such a connection would be blocked too.
//!
//! **If we die here** the dead letter may be published and the broker delivers the message again. It may exist twice, and is
//! never lost.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Error};
use pillarbox_sinks::rabbitmq::Dial;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::config::Config;
use super::topology;
use crate::dead_letter::{DeadLetter, is_ours};

/// The delivery mode of messages that the broker writes to disk.
const PERSISTENT: u8 = 2;
/// How long an unblocked broker may take to answer. A quorum queue writes to the disks of most nodes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How often to check whether it is blocked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Publishes dead letters.
pub(super) struct DeadLetters {
    dial: Arc<Dial>,
    config: Arc<Config>,
    /// Opened for the first dead letter, and kept while it works.
    publisher: Mutex<Option<Publisher>>,
}

/// A connection with a channel in confirm mode.
struct Publisher {
    connection: Connection,
    channel: Channel,
}

impl DeadLetters {
    pub(super) fn new(dial: Arc<Dial>, config: Arc<Config>) -> Self {
        Self {
            dial,
            config,
            publisher: Mutex::new(None),
        }
    }

    /// Publishes a copy. If the queue was deleted, declares it again for the next try.
    pub(super) async fn publish(
        &self,
        properties: &BasicProperties,
        body: &[u8],
        letter: &DeadLetter,
    ) -> Result<(), String> {
        let mut slot = self.publisher.lock().await;
        let publisher = self.open(slot.take()).await?;
        let publish = self.send(&publisher.channel, with_reason(properties, letter), body);
        match answer(&publisher.connection, publish).await? {
            Ok(Confirmation::Ack(None)) => {
                *slot = Some(publisher);
                Ok(())
            }
            Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => {
                if self.config.declare {
                    let declare = topology::declare_dead_queue(&publisher.channel, &self.config);
                    answer(&publisher.connection, declare).await??;
                }
                *slot = Some(publisher);
                Err(format!("the queue `{}` did not exist", self.config.dead_queue))
            }
            Ok(Confirmation::Nack(None)) => {
                *slot = Some(publisher);
                Err("the broker rejected the dead letter (nack)".to_owned())
            }
            Ok(Confirmation::NotRequested) => Err("the channel is not in confirm mode".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn send(
        &self,
        channel: &Channel,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<Confirmation, Error> {
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let queue = self.config.dead_queue.as_str().into();
        let confirm = channel
            .basic_publish("".into(), queue, options, body, properties)
            .await?;
        confirm.await
    }

    /// The open publisher if it is still connected, else a new one.
    async fn open(&self, before: Option<Publisher>) -> Result<Publisher, String> {
        if let Some(publisher) = before.filter(|before| before.channel.status().connected()) {
            return Ok(publisher);
        }
        let connection = self.dial.connect().await?;
        let channel = answer(&connection, confirm_channel(&connection)).await?;
        Ok(Publisher {
            channel: channel.map_err(|error| error.to_string())?,
            connection,
        })
    }

    /// Closes the connection, if one was opened.
    pub(super) async fn close(&self) {
        if let Some(publisher) = self.publisher.lock().await.take() {
            publisher.connection.close(200, "closing".into()).await.ok();
        }
    }
}

async fn confirm_channel(connection: &Connection) -> Result<Channel, Error> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// The broker's answer, or an error if it is silent. A blocked broker answers when it is unblocked; publishing again would only
/// add a copy.
async fn answer<T>(connection: &Connection, answer: impl Future<Output = T>) -> Result<T, String> {
    let mut answer = pin!(answer);
    let mut silent = Duration::ZERO;
    while silent < ANSWER_TIMEOUT {
        match timeout(CHECK_INTERVAL, &mut answer).await {
            Ok(answer) => return Ok(answer),
            Err(_) if connection.status().blocked() => silent = Duration::ZERO,
            Err(_) => silent += CHECK_INTERVAL,
        }
    }
    Err(format!("no answer from the broker within {ANSWER_TIMEOUT:?}"))
}

/// The message's properties with the reason. It drops properties that would make the dead letter expire, be rejected (`user_id`
/// must be our own) or be copied elsewhere (`CC`).
fn with_reason(properties: &BasicProperties, letter: &DeadLetter) -> BasicProperties {
    let mut kept = BasicProperties::default().with_delivery_mode(PERSISTENT);
    macro_rules! keep {
        ($($get:ident => $set:ident),+) => {
            $(if let Some(value) = properties.$get().clone() {
                kept = kept.$set(value);
            })+
        };
    }
    keep!(
        content_type => with_content_type,
        content_encoding => with_content_encoding,
        priority => with_priority,
        correlation_id => with_correlation_id,
        reply_to => with_reply_to,
        message_id => with_message_id,
        timestamp => with_timestamp,
        kind => with_type,
        app_id => with_app_id
    );
    kept.with_headers(headers(properties.headers().as_ref(), letter))
}

fn headers(before: Option<&FieldTable>, letter: &DeadLetter) -> FieldTable {
    let mut headers = FieldTable::default();
    let is_kept = |name: &str| !is_ours(name) && !matches!(name, "CC" | "BCC");
    for (name, value) in before.into_iter().flat_map(FieldTable::inner) {
        if is_kept(name.as_str()) {
            headers.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in letter.headers() {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_dead_letter_is_the_message_with_a_reason_and_without_what_would_lose_it() {
        let mut table = FieldTable::default();
        for name in ["x-own", "CC", "pillarbox-dead-reason", "pillarbox-id"] {
            table.insert(name.into(), AMQPValue::LongString("before".into()));
        }
        let properties = BasicProperties::default()
            .with_expiration("1000".into())
            .with_user_id("shop".into())
            .with_message_id("m".into())
            .with_type("OrderCreated".into())
            .with_headers(table);
        let letter = DeadLetter {
            reason: "no such order".to_owned(),
            consumer: "letters".to_owned(),
            attempts: 3,
            at: datetime!(2026-01-02 03:04:05 UTC),
        };
        let dead = with_reason(&properties, &letter);
        assert_eq!((dead.expiration(), dead.user_id()), (&None, &None));
        assert_eq!(dead.message_id().as_ref().unwrap().as_str(), "m");
        assert_eq!(dead.kind().as_ref().unwrap().as_str(), "OrderCreated");
        assert_eq!(*dead.delivery_mode(), Some(2));
        let headers = dead.headers().as_ref().unwrap().inner();
        let text = |value: &str| AMQPValue::LongString(value.into());
        assert_eq!(headers["x-own"], text("before"));
        assert_eq!(headers["pillarbox-id"], text("before"));
        assert_eq!(headers["pillarbox-dead-reason"], text("no such order"));
        assert_eq!(headers["pillarbox-dead-attempts"], text("3"));
        assert!(!headers.contains_key("CC"));
    }
}
