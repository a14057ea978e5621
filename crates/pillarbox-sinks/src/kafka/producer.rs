//! The client of librdkafka: its health, its queue, and its end on a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox::Outcome;
use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, Producer as _};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::classify;
use super::encode::Record;
use super::settings;
use crate::connection_log::ConnectionLog;

/// How often a full queue of the client is tried again.
const ROOM: Duration = Duration::from_millis(5);

/// What the client reports beside its delivery reports.
struct Health {
    /// Was a broker reached since the last connection error?
    reached: AtomicBool,
    last_error: Mutex<Option<String>>,
    is_encrypted: bool,
    log: Arc<ConnectionLog>,
}

impl Health {
    fn new(log: Arc<ConnectionLog>, is_encrypted: bool) -> Self {
        Self {
            reached: AtomicBool::new(false),
            last_error: Mutex::new(None),
            is_encrypted,
            log,
        }
    }

    fn found(&self) {
        if !self.reached.swap(true, Ordering::Relaxed) {
            self.log.connected(self.is_encrypted);
        }
    }

    /// No broker is reachable. The errors of the single brokers came before.
    fn all_down(&self, error: &str) {
        self.reached.store(false, Ordering::Relaxed);
        self.log.down(self.last_error().as_deref().unwrap_or(error));
    }

    fn missed(&self, error: String) {
        self.reached.store(false, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn last_error(&self) -> Option<String> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Writes the log of librdkafka to ours. For consumers too.
#[doc(hidden)]
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => {
            tracing::warn!(target: "librdkafka", facility, "{message}");
        }
        // The dispatcher logs an unreachable broker once; librdkafka logs every attempt to connect.
        RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
    }
}

#[derive(Clone)]
struct Context(Arc<Health>);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        // Also for every attempt to connect; the connection's own log has an outage once a minute.
        tracing::debug!(target: "librdkafka", %error, reason);
        match code {
            Some(Code::AllBrokersDown) => self.0.all_down(reason),
            _ => self.0.missed(reason.to_owned()),
        }
    }
}

type Client = FutureProducer<Context>;

/// A client and its health.
pub(super) struct Producer {
    /// `None` only while it is being dropped.
    client: Option<Client>,
    health: Arc<Health>,
    /// How many records were queued so far.
    started: AtomicU64,
}

/// A record in the queue of the client.
pub(super) struct Queued {
    report: DeliveryFuture,
    was_idle: bool,
    started: u64,
}

impl Producer {
    pub(super) fn new(config: &ClientConfig, log: &Arc<ConnectionLog>) -> Result<Self, KafkaError> {
        let health = Arc::new(Health::new(log.clone(), settings::is_encrypted(config)));
        let client = Client::from_config_and_context(config, Context(health.clone()))?;
        Ok(Self {
            client: Some(client),
            health,
            started: AtomicU64::new(0),
        })
    }

    /// Must a broker be probed before the next record is queued?
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.health.reached.load(Ordering::Relaxed)
    }

    /// Did the client report a fatal error?
    pub(super) fn is_broken(&self) -> bool {
        self.client().client().fatal_error().is_some()
    }

    /// Queues one record, and waits until `deadline` while the queue is full.
    ///
    /// # Errors
    /// The outcome, if the client did not queue it.
    #[expect(clippy::disallowed_methods, reason = "the client has no signal for free room")]
    pub(super) async fn queue(&self, record: &Record, deadline: Instant) -> Result<Queued, Outcome> {
        let was_idle = self.client().in_flight_count() == 0;
        let started = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let report = loop {
            match self.client().send_result(record.borrowed()) {
                Ok(report) => break report,
                Err((KafkaError::MessageProduction(Code::QueueFull), _)) => {}
                Err((error, _)) => return Err(classify::not_queued(&error)),
            }
            if Instant::now() >= deadline {
                return Err(Outcome::Throttled {
                    reason: "the queue of the Kafka client is full".to_owned(),
                    after: None,
                });
            }
            sleep(ROOM).await;
        };
        Ok(Queued {
            report,
            was_idle,
            started,
        })
    }

    /// Waits for the delivery report of a queued record.
    pub(super) async fn report(&self, queued: Queued) -> Outcome {
        let Queued {
            report,
            was_idle,
            started,
        } = queued;
        match report.await {
            Ok(Ok(_)) => {
                self.health.found();
                Outcome::Delivered
            }
            Ok(Err((error, _))) => {
                let alone = was_idle && self.started.load(Ordering::Relaxed) == started;
                classify::failure(&error, alone, self.health.last_error().as_deref())
            }
            Err(_) => Outcome::connection_lost("the Kafka client ended before the confirmation"),
        }
    }

    /// Fetches the metadata of the topic, or of all topics if none is given.
    pub(super) async fn probe(self: Arc<Self>, topic: Option<String>, limit: Duration) -> Result<(), String> {
        let answer = on_own_thread("pillarbox-kafka-check", move || {
            let metadata = self.client().client().fetch_metadata(topic.as_deref(), limit);
            let metadata = metadata.map_err(|error| self.unreachable(&error))?;
            self.health.found();
            let known = metadata
                .topics()
                .iter()
                .filter(|found| Some(found.name()) == topic.as_deref());
            match known.filter_map(|found| found.error()).next() {
                None => Ok(()),
                Some(error) => Err(format!(
                    "the topic `{}` cannot be used: {}",
                    topic.unwrap_or_default(),
                    Code::from(error)
                )),
            }
        });
        answer
            .await
            .unwrap_or_else(|| Err("the thread that probes Kafka ended".to_owned()))
    }

    fn unreachable(&self, error: &KafkaError) -> String {
        let seen = self
            .health
            .last_error()
            .map(|seen| format!(": {seen}"))
            .unwrap_or_default();
        let reason = format!("Kafka cannot be reached ({error}){seen}");
        self.health.log.down(&reason);
        reason
    }

    /// Waits until every queued record has its report.
    pub(super) async fn flush(self: Arc<Self>, limit: Duration) {
        let flushed = on_own_thread("pillarbox-kafka-flush", move || self.client().flush(limit));
        if let Some(Err(error)) = flushed.await {
            tracing::warn!(%error, "kafka records without a delivery report at shutdown, will be sent again");
        }
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("only `drop` takes the client")
    }
}

/// A client that is dropped blocks until its own thread ends, so it is dropped on a thread of its own.
impl Drop for Producer {
    fn drop(&mut self) {
        let client = self.client.take();
        let ending = std::thread::Builder::new().name("pillarbox-kafka-end".to_owned());
        if let Err(error) = ending.spawn(move || drop(client)) {
            tracing::warn!(%error, "kafka client was closed on a thread of the runtime");
        }
    }
}

/// Runs blocking work on a thread of its own. `None` if the thread failed.
async fn on_own_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || done.send(work()).ok()).ok()?;
    result.await.ok()
}
