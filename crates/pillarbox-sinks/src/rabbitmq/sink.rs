//! The sink: messages in, one outcome for each as soon as it is known.

use async_trait::async_trait;
use futures_util::future::join;
use pillarbox::{Delivery, Outcome, Outcomes, Sink};
use tokio::sync::mpsc::unbounded_channel;

use super::channel::Job;
use super::config::Config;
use super::encode;
use super::pool::{Outgoing, Pool};
use super::reply::Reply;
use super::settings::Settings;
use crate::address::Address;
use crate::headers::Added;
use crate::message::{AMQP, Form, Writer};
use crate::registry::ConfigError;

/// RabbitMQ.
pub struct RabbitMq {
    routing_key: Address,
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
        if config.exchange.is_empty() && config.allow.is_empty() && !config.routing_key.is_constant() {
            return Err(ConfigError::at(
                "allow",
                "is missing: without an exchange every event chooses a queue; list the queues, such as [\"orders\", \"mail.*\"]",
            ));
        }
        Ok(Self {
            routing_key: Address::new("routing_key", &config.routing_key, &config.allow, '.')?,
            writer: Writer::new(name, &AMQP, added).with_form(form),
            pool: Pool::new(name, Settings::new(name, config)?),
        })
    }
}

#[async_trait]
impl Sink for RabbitMq {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let outcomes = Outcomes::default();
        self.deliver_all(&[delivery], &outcomes).await;
        let outcome = outcomes.take().into_iter().next();
        outcome.map_or_else(
            || Outcome::retry("the sink reported no outcome"),
            |(_, outcome)| outcome,
        )
    }

    fn can_batch(&self, _: &Delivery) -> bool {
        true
    }

    async fn deliver_all(&self, deliveries: &[&Delivery], outcomes: &Outcomes) {
        let (replies, mut answers) = unbounded_channel();
        let mut messages = Vec::with_capacity(deliveries.len());
        for (index, delivery) in deliveries.iter().enumerate() {
            match encode::message(delivery, &self.routing_key, &self.writer) {
                Err(outcome) => outcomes.report(index, outcome),
                Ok((message, header_size)) => {
                    let (member, in_flight) = self.pool.choose(delivery.lane);
                    let reply = Reply::new(replies.clone(), index, in_flight);
                    messages.push(Outgoing {
                        job: Job { message, reply },
                        header_size,
                        lane: delivery.lane,
                        member,
                    });
                }
            }
        }
        drop(replies); // the last outcome ends the call
        let report = async {
            while let Some((index, outcome)) = answers.recv().await {
                outcomes.report(index, outcome);
            }
        };
        join(self.pool.publish(messages), report).await;
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
