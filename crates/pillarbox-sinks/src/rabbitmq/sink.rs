//! The sink: one message, one confirmation.

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::classify;
use super::config::Config;
use super::encode;
use super::link::Links;
use super::settings::Settings;
use crate::headers::Added;
use crate::message::{AMQP, Form, Writer};
use crate::registry::ConfigError;
use crate::template::Template;

/// RabbitMQ.
pub struct RabbitMq {
    routing_key: Template,
    writer: Writer,
    links: Links,
    /// Messages with a key are handed over in the order in which they came, also while the connection is opened.
    turn: Mutex<()>,
}

impl RabbitMq {
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
            routing_key: config.routing_key.clone(),
            writer: Writer::new(name, &AMQP, added).with_form(form)?,
            links: Links::new(Settings::new(name, config)?),
            turn: Mutex::new(()),
        })
    }

    async fn look(&self) -> Result<(), String> {
        let link = self.links.get().await?;
        if link.is_blocked() {
            return Err("the broker blocks publishers; look at its memory and disk alarms".to_owned());
        }
        let settings = self.links.settings();
        if settings.exchange.as_str().is_empty() {
            return Ok(()); // the exchange without a name is always there
        }
        link.declare(settings, true).await
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
        let link = match self.links.get_soon().await {
            Ok(link) => link,
            Err(reason) => return Outcome::unavailable(reason),
        };
        if link.is_blocked() {
            return classify::blocked();
        }
        if header_size > link.frame_max() {
            return Outcome::reject(format!(
                "the headers take up to {} bytes; the broker allows {} in a frame",
                header_size,
                link.frame_max()
            ));
        }
        let ticket = link.hand_over(message, delivery.lane);
        drop(turn);
        ticket.outcome().await
    }

    fn keeps_order(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), String> {
        let patience = self.links.settings().connect_timeout;
        timeout(patience, self.look()).await.unwrap_or_else(|_| {
            // A connection that says nothing is of no use to anybody, even if TCP still believes in it.
            self.links.forget();
            Err(format!("RabbitMQ did not answer within {patience:?}"))
        })
    }

    async fn close(&self) {
        self.links.close().await;
    }
}
