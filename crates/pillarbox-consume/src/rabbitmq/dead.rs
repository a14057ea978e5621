//! A message that is given up on: published to the queue for dead letters, confirmed.
//!
//! One at a time: the client hands a returned message to whichever confirmation comes next, and only of one that was alone
//! on its channel is it known which it was.
//!
//! On a connection of their own: a broker that runs out of memory or disk blocks connections that publish, and nothing is
//! written on such a one any more, acknowledgements included.
//!
//! **If we die here** the letter may be there and the message comes again: it may be there twice, never not at all.

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
use crate::dead::{DeadLetter, is_ours};

/// To be written to disk by the broker.
const PERSISTENT: u8 = 2;
/// How long a broker that is not blocked may take to answer. A queue of many nodes writes to the disks of most of them.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often to look whether it is.
const TICK: Duration = Duration::from_secs(1);

/// Where dead letters are published.
pub(super) struct Graves {
    dial: Arc<Dial>,
    config: Arc<Config>,
    /// Made when it is first needed, and kept as long as it is of use.
    way: Mutex<Option<Way>>,
}

/// The way there.
struct Way {
    connection: Connection,
    channel: Channel,
}

impl Graves {
    pub(super) fn new(dial: Arc<Dial>, config: Arc<Config>) -> Self {
        Self {
            dial,
            config,
            way: Mutex::new(None),
        }
    }

    /// Publishes a copy. A queue that somebody deleted is declared again for the next try.
    pub(super) async fn bury(
        &self,
        properties: &BasicProperties,
        body: &[u8],
        letter: &DeadLetter,
    ) -> Result<(), String> {
        let mut slot = self.way.lock().await;
        let way = self.way(slot.take()).await?;
        let publish = self.publish(&way.channel, with_reason(properties, letter), body);
        match answer(&way.connection, publish).await? {
            Ok(Confirmation::Ack(None)) => {
                *slot = Some(way);
                Ok(())
            }
            Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => {
                if self.config.declare {
                    let declare = topology::declare_dead(&way.channel, &self.config);
                    answer(&way.connection, declare).await??;
                }
                *slot = Some(way);
                Err(format!("there was no queue `{}`", self.config.dead_queue))
            }
            Ok(Confirmation::Nack(None)) => {
                *slot = Some(way);
                Err("the broker could not take the dead letter (nack)".to_owned())
            }
            Ok(Confirmation::NotRequested) => Err("the channel lost its confirm mode".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn publish(
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

    /// The way there, or a new one if that is of no use.
    async fn way(&self, before: Option<Way>) -> Result<Way, String> {
        if let Some(way) = before.filter(|way| way.channel.status().connected()) {
            return Ok(way);
        }
        let connection = self.dial.connect().await?;
        let channel = answer(&connection, open(&connection)).await?;
        Ok(Way {
            channel: channel.map_err(|error| error.to_string())?,
            connection,
        })
    }

    /// Says goodbye, if anybody was ever there.
    pub(super) async fn close(&self) {
        if let Some(way) = self.way.lock().await.take() {
            way.connection.close(200, "goodbye".into()).await.ok();
        }
    }
}

async fn open(connection: &Connection) -> Result<Channel, Error> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// What the broker answers, unless it is silent without a reason. One that is blocked answers when it is not any more: to
/// ask it again would only leave another copy on the way.
async fn answer<T>(connection: &Connection, answer: impl Future<Output = T>) -> Result<T, String> {
    let mut answer = pin!(answer);
    let mut silent = Duration::ZERO;
    while silent < PATIENCE {
        match timeout(TICK, &mut answer).await {
            Ok(answer) => return Ok(answer),
            Err(_) if connection.status().blocked() => silent = Duration::ZERO,
            Err(_) => silent += TICK,
        }
    }
    Err(format!("the broker did not answer within {PATIENCE:?}"))
}

/// The properties of the message, but for those that would make the letter expire, be refused (`user_id` has to be our
/// own) or be copied elsewhere (`CC`), and with the reason.
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
    fn a_letter_is_the_message_with_a_reason_and_without_what_would_lose_it() {
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
