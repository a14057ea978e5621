//! A bare relay to RabbitMQ: claims 1,000 rows, publishes them with pipelined confirms, acks them.

use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use uuid::Uuid;

use super::{Claimed, Plain};
use crate::failure::Failure;

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

    async fn publish(&self, rows: &[Claimed]) -> Result<Vec<Uuid>, Failure> {
        let mut confirms = Vec::with_capacity(rows.len());
        for row in rows {
            let properties = BasicProperties::default()
                .with_delivery_mode(2)
                .with_content_type("application/json".into())
                .with_message_id(row.id.to_string().into());
            let confirm = self
                .channel
                .basic_publish(
                    self.exchange.as_str().into(),
                    row.topic.as_str().into(),
                    BasicPublishOptions {
                        mandatory: true,
                        ..BasicPublishOptions::default()
                    },
                    row.payload.as_bytes(),
                    properties,
                )
                .await?;
            confirms.push(confirm);
        }
        for confirmation in try_join_all(confirms).await? {
            if !matches!(confirmation, Confirmation::Ack(None)) {
                return Err(Failure::new(format!(
                    "RabbitMQ did not confirm a message: {confirmation:?}"
                )));
            }
        }
        Ok(rows.iter().map(|row| row.id).collect())
    }

    pub(crate) async fn close(self) -> Result<(), Failure> {
        Ok(self.connection.close(200, "done".into()).await?)
    }
}
