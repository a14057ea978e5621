//! The sink: one entry, one answer.

use std::num::NonZeroU64;

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::time::timeout;

use super::classify;
use super::config::Config;
use super::connection::Connection;
use super::encode;
use super::settings::Settings;
use crate::address::Address;
use crate::connector::Connector;
use crate::headers::Added;
use crate::message::{Form, REDIS, Writer};
use crate::registry::ConfigError;

/// Redis streams.
pub struct Redis {
    stream: Address,
    writer: Writer,
    max_len: Option<NonZeroU64>,
    connector: Connector<Connection>,
}

impl Redis {
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
            stream: Address::new("stream", &config.stream, &config.allow, ':')?,
            writer: Writer::new(name, &REDIS, added).with_form(form),
            max_len: config.max_len,
            connector: Connector::new(name, Settings::new(config)?),
        })
    }

    /// A server that answers PING and accepts no entries is unavailable. An error that concerns the probe's own key (no
    /// permission, another node has it) says nothing about the streams of events, so it counts as available.
    async fn probe(&self) -> Result<(), String> {
        let connection = self.connector.get().await?;
        let Err(error) = connection.probe().await else {
            return Ok(());
        };
        if classify::is_wrong_server(&error) {
            self.connector.reset();
        }
        match classify::failure(&error) {
            Outcome::Unavailable { reason }
            | Outcome::ConnectFailed { reason }
            | Outcome::ConnectionLost { reason } => Err(reason),
            Outcome::Delivered
            | Outcome::Retry { .. }
            | Outcome::Reject { .. }
            | Outcome::Throttled { .. }
            | Outcome::ThrottledPart { .. }
            | Outcome::Disable { .. } => Ok(()),
        }
    }
}

#[async_trait]
impl Sink for Redis {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let entry = match encode::entry(delivery, &self.stream, self.max_len, &self.writer) {
            Ok(entry) => entry,
            Err(outcome) => return outcome,
        };
        let connection = match self.connector.get().await {
            Ok(connection) => connection,
            Err(reason) => return Outcome::unavailable(reason),
        };
        let Err(error) = connection.add(&entry).await else {
            return Outcome::Delivered;
        };
        if classify::is_wrong_server(&error) {
            self.connector.reset();
        }
        classify::failure(&error)
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.stream.part(delivery, self.writer.destination())
    }

    async fn check(&self) -> Result<(), String> {
        let settings = self.connector.settings();
        let limit = settings.connect_timeout;
        timeout(limit, self.probe()).await.unwrap_or_else(|_| {
            // The connection is useless, even if TCP keeps it open.
            self.connector.reset();
            Err(format!(
                "Redis at {} did not answer within {limit:?}",
                settings.address
            ))
        })
    }

    async fn close(&self) {
        self.connector.close().await;
    }
}
