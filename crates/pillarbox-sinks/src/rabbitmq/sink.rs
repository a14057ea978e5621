//! The sink: one message, one confirmation.

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::classify;
use super::config::Config;
use super::connection::Connection;
use super::encode;
use super::settings::Settings;
use crate::connector::Connector;
use crate::headers::Added;
use crate::message::{AMQP, Form, Writer};
use crate::registry::ConfigError;
use crate::template::Template;

/// RabbitMQ.
pub struct RabbitMq {
    routing_key: Template,
    writer: Writer,
    connector: Connector<Connection>,
    /// Queues events with a key in the order of their calls, also while the connection is opened.
    turn: Mutex<()>,
}

impl RabbitMq {
    /// The sink of the destination `name`, in the plain format. It connects for the first event.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        Self::with_form(name, config, &Form::Plain)
    }

    pub(crate) fn with_form(name: &str, config: &Config, form: &Form) -> Result<Self, ConfigError> {
        let added = Added::new(&config.headers, encode::legal_header)?;
        Ok(Self {
            routing_key: config.routing_key.clone(),
            writer: Writer::new(name, &AMQP, added).with_form(form)?,
            connector: Connector::new(name, Settings::new(name, config)?),
            turn: Mutex::new(()),
        })
    }

    async fn probe(&self) -> Result<(), String> {
        let connection = self.connector.get().await?;
        if connection.is_blocked() {
            return Err("RabbitMQ blocks publishers (check its memory and disk alarms)".to_owned());
        }
        let settings = self.connector.settings();
        if settings.exchange.as_str().is_empty() {
            return Ok(()); // the default exchange always exists
        }
        connection.declare(settings, true).await
    }
}

#[async_trait]
impl Sink for RabbitMq {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let encoded = encode::message(delivery, &self.routing_key, &self.writer);
        let (message, header_size) = match encoded {
            Ok(encoded) => encoded,
            Err(outcome) => return outcome,
        };
        let turn = match delivery.lane {
            Some(_) => Some(self.turn.lock().await),
            None => None,
        };
        let connection = match self.connector.get_recent().await {
            Ok(connection) => connection,
            Err(reason) => return Outcome::unavailable(reason),
        };
        if connection.is_blocked() {
            return classify::blocked();
        }
        if header_size > connection.frame_max() {
            return Outcome::reject(format!(
                "the headers take up to {} bytes; the broker allows {} in a frame",
                header_size,
                connection.frame_max()
            ));
        }
        let receipt = connection.publish(message, delivery.lane);
        drop(turn);
        receipt.outcome().await
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.routing_key.part(delivery, self.writer.destination())
    }

    async fn check(&self) -> Result<(), String> {
        let limit = self.connector.settings().connect_timeout;
        timeout(limit, self.probe()).await.unwrap_or_else(|_| {
            // The connection is useless, even if TCP keeps it open.
            self.connector.reset();
            Err(format!("RabbitMQ did not answer within {limit:?}"))
        })
    }

    async fn close(&self) {
        self.connector.close().await;
    }
}
