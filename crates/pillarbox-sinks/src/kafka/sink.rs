//! The sink: one record, one report.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use pillarbox::{Delivery, Outcome, Sink};
use rdkafka::ClientConfig;
use tokio::time::Instant;

use super::config::Config;
use super::encode;
use super::producer::Producer;
use super::settings;
use crate::address::Address;
use crate::connection_log::ConnectionLog;
use crate::headers::Added;
use crate::message::{Form, KAFKA, Writer};
use crate::registry::ConfigError;
use crate::template::Template;

/// The timeout of a probe.
const CHECK: Duration = Duration::from_secs(5);
/// For how long the result of a probe is used for the records that waited meanwhile.
const STALE: Duration = Duration::from_secs(1);

/// Kafka.
pub struct Kafka {
    topic: Address,
    key: Option<Template>,
    writer: Writer,
    timeout: Duration,
    client_config: ClientConfig,
    log: Arc<ConnectionLog>,
    current: Mutex<Current>,
    /// Queues records with a key one at a time, in the order of their calls.
    turn: tokio::sync::Mutex<()>,
}

struct Current {
    producer: Arc<Producer>,
    /// A probe in progress, which all records share that need one.
    asking: Option<Asking>,
    /// When it began.
    asked: Instant,
}

type Asking = Shared<BoxFuture<'static, Result<(), String>>>;

impl Kafka {
    /// The sink of the destination `name`, in the plain format. It connects in the background.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        Self::with_form(name, config, &Form::Plain)
    }

    pub(crate) fn with_form(name: &str, config: &Config, form: &Form) -> Result<Self, ConfigError> {
        let added = Added::new(&config.headers, encode::legal_header)?;
        let writer = Writer::new(name, &KAFKA, added).with_form(form);
        let client_config = settings::client_config(name, config)?;
        let log = Arc::new(ConnectionLog::of_destination(name, config.brokers.clone()));
        let producer = Producer::new(&client_config, &log).map_err(|error| settings::refused(&error))?;
        Ok(Self {
            topic: Address::new("topic", &config.topic, &config.allow, '.')?,
            key: config.key.clone(),
            writer,
            timeout: config.timeout,
            client_config,
            log,
            current: Mutex::new(Current {
                producer: Arc::new(producer),
                asking: None,
                asked: Instant::now(),
            }),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// The producer, or a new one after a fatal error.
    fn producer(&self) -> Result<Arc<Producer>, String> {
        let mut current = self.current();
        if current.producer.is_broken() {
            let producer = Producer::new(&self.client_config, &self.log).map_err(|error| {
                format!(
                    "Kafka client cannot be created after a fatal error: {}",
                    settings::refused(&error)
                )
            })?;
            current.producer = Arc::new(producer);
            current.asking = None;
        }
        Ok(current.producer.clone())
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is a broker reachable? Callers share one probe, also for a moment after it ended.
    async fn ask(&self, producer: &Arc<Producer>, stale: Duration) -> Result<(), String> {
        let asking = {
            let mut current = self.current();
            let recent = current.asked.elapsed() < CHECK + stale;
            let holds = |asking: &&Asking| match asking.peek() {
                None => true,
                Some(answer) => answer.is_err() && recent && !stale.is_zero(),
            };
            match current.asking.as_ref().filter(holds) {
                Some(asking) => asking.clone(),
                None => {
                    let topic = self.topic.constant().map(str::to_owned);
                    let asking = producer.clone().probe(topic, CHECK.min(self.timeout));
                    current.asked = Instant::now();
                    current.asking.insert(asking.boxed().shared()).clone()
                }
            }
        };
        asking.await
    }
}

#[async_trait]
impl Sink for Kafka {
    /// A queued record is sent even if the call is dropped.
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let record = match encode::record(delivery, &self.topic, self.key.as_ref(), &self.writer) {
            Ok(record) => record,
            Err(outcome) => return outcome,
        };
        // Records with a key are queued in the order of their calls, also while the queue is full.
        let turn = match delivery.lane {
            Some(_) => Some(self.turn.lock().await),
            None => None,
        };
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(reason) => return Outcome::unavailable(reason),
        };
        let deadline = Instant::now() + self.timeout;
        // In the queue of a client without brokers the record would wait and use up its attempt.
        if producer.is_in_doubt()
            && let Err(reason) = self.ask(&producer, STALE).await
            && producer.is_in_doubt()
        {
            return Outcome::unavailable(reason);
        }
        let handed = producer.queue(&record, deadline).await;
        drop(turn);
        match handed {
            Ok(handed) => producer.report(handed).await,
            Err(outcome) => outcome,
        }
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.topic.part(delivery, self.writer.destination())
    }

    async fn check(&self) -> Result<(), String> {
        let producer = self.producer()?;
        self.ask(&producer, Duration::ZERO).await
    }

    async fn close(&self) {
        let producer = self.current().producer.clone();
        producer.flush(self.timeout).await;
    }
}
