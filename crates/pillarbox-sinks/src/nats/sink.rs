//! The sink: one message, one acknowledgement.

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::time::timeout;

use super::config::Config;
use super::encode;
use super::link::Links;
use super::settings::Settings;
use crate::headers::Added;
use crate::registry::ConfigError;
use crate::template::Template;

/// NATS JetStream.
pub struct Nats {
    destination: String,
    subject: Template,
    headers: Added,
    links: Links,
}

impl Nats {
    /// The sink of the destination `name`. Connects when it is first needed.
    ///
    /// # Errors
    /// When the configuration cannot be true.
    pub fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        Ok(Self {
            destination: name.to_owned(),
            subject: config.subject.clone(),
            headers: Added::new(&config.headers, encode::legal_header)?,
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
        let message = encode::message(delivery, &self.destination, &self.subject, stream, &self.headers);
        let message = match message {
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
