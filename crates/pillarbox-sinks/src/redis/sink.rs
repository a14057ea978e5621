//! The sink: one entry, one answer.

use std::num::NonZeroU64;

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::time::timeout;

use super::classify;
use super::config::Config;
use super::encode;
use super::link::Links;
use super::settings::Settings;
use crate::headers::Added;
use crate::message::{Form, REDIS, Writer};
use crate::registry::ConfigError;
use crate::template::Template;

/// Redis streams.
pub struct Redis {
    stream: Template,
    writer: Writer,
    max_len: Option<NonZeroU64>,
    links: Links,
}

impl Redis {
    /// The sink of the destination `name`, in the plain format. Connects when it is first needed.
    ///
    /// # Errors
    /// When the configuration cannot be true.
    pub fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        Self::with_form(name, config, &Form::Plain)
    }

    pub(crate) fn with_form(name: &str, config: &Config, form: &Form) -> Result<Self, ConfigError> {
        let added = Added::new(&config.headers, encode::legal_header)?;
        Ok(Self {
            stream: config.stream.clone(),
            writer: Writer::new(name, &REDIS, added).with_form(form)?,
            max_len: config.max_len,
            links: Links::new(Settings::new(config)?),
        })
    }

    /// A server that answers PING and takes no entries is no good. What it says of the one key that we ask
    /// about (a user without rights to it, another node's) says nothing about those that events go to.
    async fn look(&self) -> Result<(), String> {
        let link = self.links.get().await?;
        let Err(error) = link.look().await else {
            return Ok(());
        };
        if classify::is_wrong_server(&error) {
            self.links.forget();
        }
        match classify::failure(&error) {
            Outcome::Unavailable { reason } | Outcome::ConnectionLost { reason } => Err(reason),
            Outcome::Delivered
            | Outcome::Retry { .. }
            | Outcome::Reject { .. }
            | Outcome::Throttled { .. }
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
        let link = match self.links.get().await {
            Ok(link) => link,
            Err(reason) => return Outcome::unavailable(reason),
        };
        let Err(error) = link.add(&entry).await else {
            return Outcome::Delivered;
        };
        if classify::is_wrong_server(&error) {
            self.links.forget();
        }
        classify::failure(&error)
    }

    async fn check(&self) -> Result<(), String> {
        let settings = self.links.settings();
        let patience = settings.connect_timeout;
        timeout(patience, self.look()).await.unwrap_or_else(|_| {
            // A connection that says nothing is of no use to anybody, even if TCP still believes in it.
            self.links.forget();
            Err(format!(
                "Redis at {} did not answer within {patience:?}",
                settings.place
            ))
        })
    }

    async fn close(&self) {
        self.links.close().await;
    }
}
