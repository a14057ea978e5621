//! The sink: one message, one acknowledgement.

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::time::timeout;

use super::config::Config;
use super::connection::Connection;
use super::encode;
use super::settings::Settings;
use crate::address::Address;
use crate::connector::Connector;
use crate::headers::Added;
use crate::message::{Form, NATS, Writer};
use crate::registry::ConfigError;

/// NATS JetStream.
pub struct Nats {
    subject: Address,
    writer: Writer,
    connector: Connector<Connection>,
}

impl Nats {
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
            subject: Address::new("subject", &config.subject, &config.allow, '.')?,
            writer: Writer::new(name, &NATS, added).with_form(form),
            connector: Connector::new(name, Settings::new(name, config)?),
        })
    }

    async fn probe(&self) -> Result<(), String> {
        let connection = self.connector.get().await?;
        connection.probe(self.connector.settings()).await
    }
}

#[async_trait]
impl Sink for Nats {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let stream = self.connector.settings().stream.as_deref();
        let message = match encode::message(delivery, &self.subject, stream, &self.writer) {
            Ok(message) => message,
            Err(outcome) => return outcome,
        };
        match self.connector.get().await {
            Ok(connection) => connection.publish(message).await,
            Err(reason) => Outcome::unavailable(reason),
        }
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.subject.part(delivery, self.writer.destination())
    }

    async fn check(&self) -> Result<(), String> {
        let limit = self.connector.settings().connect_timeout;
        timeout(limit, self.probe()).await.unwrap_or_else(|_| {
            // The connection is useless, even if TCP keeps it open.
            self.connector.reset();
            Err(format!("NATS did not answer within {limit:?}"))
        })
    }

    async fn close(&self) {
        self.connector.close().await;
    }
}
