//! The sink: one message, one confirmation.

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};

use super::classify;
use super::config::Config;
use super::encode;
use super::pool::Pool;
use super::settings::Settings;
use crate::headers::Added;
use crate::message::{AMQP, Form, Writer};
use crate::registry::ConfigError;
use crate::template::Template;

/// RabbitMQ.
pub struct RabbitMq {
    routing_key: Template,
    writer: Writer,
    pool: Pool,
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
            pool: Pool::new(name, Settings::new(name, config)?),
        })
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
        let mut taken = match self.pool.take(delivery.lane).await {
            Ok(taken) => taken,
            Err(reason) => return Outcome::unavailable(reason),
        };
        if taken.connection.is_blocked() {
            return classify::blocked();
        }
        let frame_max = taken.connection.frame_max();
        if header_size > frame_max {
            return Outcome::reject(format!(
                "the headers take up to {header_size} bytes; the broker allows {frame_max} in a frame"
            ));
        }
        let receipt = taken.connection.publish(message, delivery.lane);
        taken.queued();
        receipt.outcome().await
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.routing_key.part(delivery, self.writer.destination())
    }

    async fn check(&self) -> Result<(), String> {
        self.pool.check().await
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
