//! The sink: one message, one acknowledgement.

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::time::timeout;

use super::config::Config;
use super::encode;
use super::link::Links;
use super::settings::Settings;
use crate::headers::Added;
use crate::message::{Form, NATS, Writer};
use crate::registry::ConfigError;
use crate::template::Template;

/// NATS JetStream.
pub struct Nats {
    subject: Template,
    writer: Writer,
    links: Links,
}

impl Nats {
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
            subject: config.subject.clone(),
            writer: Writer::new(name, &NATS, added).with_form(form)?,
            links: Links::new(Settings::new(name, config)?),
        })
    }

    async fn look(&self) -> Result<(), String> {
        let link = self.links.get().await?;
        link.look(self.links.settings()).await
    }
}

#[async_trait]
impl Sink for Nats {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let stream = self.links.settings().stream.as_deref();
        let message = match encode::message(delivery, &self.subject, stream, &self.writer) {
            Ok(message) => message,
            Err(outcome) => return outcome,
        };
        match self.links.get().await {
            Ok(link) => link.publish(message).await,
            Err(reason) => Outcome::unavailable(reason),
        }
    }

    async fn check(&self) -> Result<(), String> {
        let patience = self.links.settings().connect_timeout;
        timeout(patience, self.look()).await.unwrap_or_else(|_| {
            // A connection that says nothing is of no use to anybody, even if TCP still believes in it.
            self.links.forget();
            Err(format!("NATS did not answer within {patience:?}"))
        })
    }

    async fn close(&self) {
        self.links.close().await;
    }
}
