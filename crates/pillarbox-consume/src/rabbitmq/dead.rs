//! A message that is given up on: published to the queue for dead letters, confirmed.
//!
//! One at a time: the client hands a returned message to whichever confirmation comes next, and only of one that was alone
//! on its channel is it known which it was.
//!
//! **If we die here** the letter may be there and the message comes again: it may be there twice, never not at all.

use std::sync::Arc;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Error};
use tokio::sync::Mutex;

use super::config::Config;
use super::topology;
use crate::dead::{DeadLetter, is_ours};

/// To be written to disk by the broker.
const PERSISTENT: u8 = 2;

/// Where dead letters are published, on one connection.
pub(super) struct Graves {
    connection: Arc<Connection>,
    config: Arc<Config>,
    channel: Mutex<Option<Channel>>,
}

impl Graves {
    pub(super) fn new(connection: Arc<Connection>, config: Arc<Config>) -> Self {
        Self {
            connection,
            config,
            channel: Mutex::new(None),
        }
    }

    /// Publishes a copy. A queue that somebody deleted is declared again for the next try.
    pub(super) async fn bury(
        &self,
        properties: &BasicProperties,
        body: &[u8],
        letter: &DeadLetter,
    ) -> Result<(), String> {
        let mut slot = self.channel.lock().await;
        let channel = self
            .channel(slot.take())
            .await
            .map_err(|error| error.to_string())?;
        let confirmed = self
            .publish(&channel, with_reason(properties, letter), body)
            .await;
        match confirmed {
            Ok(Confirmation::Ack(None)) => {
                *slot = Some(channel);
                Ok(())
            }
            Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => {
                if self.config.declare {
                    topology::declare_dead(&channel, &self.config).await?;
                }
                Err(format!("there was no queue `{}`", self.config.dead_queue))
            }
            Ok(Confirmation::Nack(None)) => {
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

    /// The channel, or a new one if there is none of use.
    async fn channel(&self, before: Option<Channel>) -> Result<Channel, Error> {
        if let Some(channel) = before.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }
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
