//! The client: made anew after a fatal error, asked whether anybody is there, and ended without
//! blocking the runtime.

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

/// How long to wait before asking again whether the client's queue has room.
const ROOM: Duration = Duration::from_millis(5);

/// What the client says beside its answers.
#[derive(Default)]
pub(super) struct Health {
    /// Has anybody been reached since somebody was last missed?
    reached: AtomicBool,
    last_error: Mutex<Option<String>>,
}

impl Health {
    fn found(&self) {
        self.reached.store(true, Ordering::Relaxed);
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

/// What the library beneath says, in our log. For consumers too.
#[doc(hidden)]
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => {
            tracing::warn!(target: "librdkafka", facility, "{message}");
        }
        // A broker that is away is said once by the dispatcher, not for every attempt to connect.
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
        tracing::info!(target: "librdkafka", %error, reason);
        match code {
            // It only repeats what was said of each of them.
            Some(Code::AllBrokersDown) => self.0.reached.store(false, Ordering::Relaxed),
            _ => self.0.missed(reason.to_owned()),
        }
    }
}

type Client = FutureProducer<Context>;

/// A client and what is known of its health.
pub(super) struct Producer {
    /// `None` only while it is being dropped.
    client: Option<Client>,
    health: Arc<Health>,
    /// How many records were handed over so far.
    started: AtomicU64,
}

/// A record that the client has.
pub(super) struct Handed {
    report: DeliveryFuture,
    was_idle: bool,
    started: u64,
}

impl Producer {
    pub(super) fn new(config: &ClientConfig) -> Result<Self, KafkaError> {
        let health = Arc::new(Health::default());
        let client = Client::from_config_and_context(config, Context(health.clone()))?;
        Ok(Self {
            client: Some(client),
            health,
            started: AtomicU64::new(0),
        })
    }

    /// Is there a reason to ask before sending whether anybody is there?
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.health.reached.load(Ordering::Relaxed)
    }

    /// Is it of no more use?
    pub(super) fn is_broken(&self) -> bool {
        self.client().client().fatal_error().is_some()
    }

    /// Hands one record over, and waits at the most until `deadline` for a place in the queue.
    ///
    /// # Errors
    /// What came of it, if the client did not take it.
    #[expect(clippy::disallowed_methods, reason = "the client has no signal for free room")]
    pub(super) async fn hand_over(&self, record: &Record, deadline: Instant) -> Result<Handed, Outcome> {
        let was_idle = self.client().in_flight_count() == 0;
        let started = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let report = loop {
            match self.client().send_result(record.borrowed()) {
                Ok(report) => break report,
                Err((KafkaError::MessageProduction(Code::QueueFull), _)) => {}
                Err((error, _)) => return Err(classify::not_taken(&error)),
            }
            if Instant::now() >= deadline {
                return Err(Outcome::Throttled {
                    reason: "the queue of the Kafka client stays full".to_owned(),
                    after: None,
                });
            }
            sleep(ROOM).await;
        };
        Ok(Handed {
            report,
            was_idle,
            started,
        })
    }

    /// Waits for the report of a record that was handed over.
    pub(super) async fn report(&self, handed: Handed) -> Outcome {
        let Handed {
            report,
            was_idle,
            started,
        } = handed;
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

    /// Asks the brokers what they know of the topic, or of all if none is given.
    pub(super) async fn look(
        self: Arc<Self>,
        topic: Option<String>,
        patience: Duration,
    ) -> Result<(), String> {
        let answer = off_the_runtime("pillarbox-kafka-check", move || {
            let metadata = self.client().client().fetch_metadata(topic.as_deref(), patience);
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
            .unwrap_or_else(|| Err("the thread that asks Kafka ended".to_owned()))
    }

    fn unreachable(&self, error: &KafkaError) -> String {
        let seen = self
            .health
            .last_error()
            .map(|seen| format!(": {seen}"))
            .unwrap_or_default();
        format!("Kafka cannot be reached ({error}){seen}")
    }

    /// Waits until everything that was handed over has its report.
    pub(super) async fn flush(self: Arc<Self>, patience: Duration) {
        let flushed = off_the_runtime("pillarbox-kafka-flush", move || self.client().flush(patience));
        if let Some(Err(error)) = flushed.await {
            tracing::warn!(%error, "not every Kafka record had its report in time; they will be sent again");
        }
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("only `drop` takes the client")
    }
}

/// The client waits for its own thread when it is dropped: not on one of the runtime's.
impl Drop for Producer {
    fn drop(&mut self) {
        let client = self.client.take();
        let ending = std::thread::Builder::new().name("pillarbox-kafka-end".to_owned());
        if let Err(error) = ending.spawn(move || drop(client)) {
            tracing::warn!(%error, "the Kafka client was ended on a thread of the runtime");
        }
    }
}

/// Runs what blocks on a thread of its own. `None` if it did not come to an end.
async fn off_the_runtime<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || done.send(work()).ok()).ok()?;
    result.await.ok()
}
