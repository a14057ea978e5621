//! A bare relay to RabbitMQ: claims 1,000 rows, publishes them with pipelined confirms, acks them.

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, PublisherConfirm};
use uuid::Uuid;

use super::{Claimed, Plain};
use crate::failure::Failure;

/// How many messages wait for their confirmation if nothing but publishing is measured.
const UNCONFIRMED: usize = 1024;

/// A connection with one channel in confirm mode.
pub(crate) struct Relay {
    connection: Connection,
    channel: Channel,
    exchange: String,
}

impl Relay {
    pub(crate) async fn connect(url: &str, exchange: &str) -> Result<Self, Failure> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self {
            connection,
            channel,
            exchange: exchange.to_owned(),
        })
    }

    /// Drains the table into the exchange.
    pub(crate) async fn drain(&self, plain: &mut Plain<'_>) -> Result<(), Failure> {
        let mut claimed = plain.turn(&[]).await?;
        while !claimed.is_empty() {
            let ids = self.publish(&claimed).await?;
            claimed = plain.turn(&ids).await?;
        }
        Ok(())
    }

    /// Publishes as many messages without a database, always [`UNCONFIRMED`] at once.
    pub(crate) async fn publish_only(&self, rows: u32) -> Result<(), Failure> {
        let body = "x".repeat(300);
        let publish = |_| async {
            let confirm = self
                .publish_one(Uuid::now_v7(), "orders", body.as_bytes())
                .await?;
            is_acked(&confirm.await?)
        };
        let published = stream::iter(0..rows).map(publish).buffer_unordered(UNCONFIRMED);
        published.try_collect().await
    }

    async fn publish(&self, rows: &[Claimed]) -> Result<Vec<Uuid>, Failure> {
        let mut confirms = Vec::with_capacity(rows.len());
        for row in rows {
            let confirm = self.publish_one(row.id, &row.topic, row.payload.as_bytes());
            confirms.push(confirm.await?);
        }
        for confirmation in try_join_all(confirms).await? {
            is_acked(&confirmation)?;
        }
        Ok(rows.iter().map(|row| row.id).collect())
    }

    async fn publish_one(&self, id: Uuid, topic: &str, body: &[u8]) -> Result<PublisherConfirm, Failure> {
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_content_type("application/json".into())
            .with_message_id(id.to_string().into());
        let mandatory = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let (exchange, topic) = (self.exchange.as_str().into(), topic.into());
        Ok(self
            .channel
            .basic_publish(exchange, topic, mandatory, body, properties)
            .await?)
    }

    pub(crate) async fn close(self) -> Result<(), Failure> {
        Ok(self.connection.close(200, "done".into()).await?)
    }
}

fn is_acked(confirmation: &Confirmation) -> Result<(), Failure> {
    match confirmation {
        Confirmation::Ack(None) => Ok(()),
        other => Err(Failure::new(format!(
            "RabbitMQ did not confirm a message: {other:?}"
        ))),
    }
}
