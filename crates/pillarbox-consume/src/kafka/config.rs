//! The settings of topics to consume from.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox_sinks::kafka::{Sasl, login_exposure, refused, reserved, security};
use pillarbox_sinks::registry::ConfigError;
use pillarbox_sinks::{Secret, Tls};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::in_flight::MAX_BYTES;

/// Kafka topics, consumed as a member of a group.
///
/// ```
/// use pillarbox_consume::kafka::Config;
///
/// let config = Config::new("kafka-1:9092,kafka-2:9092", "letters")
///     .topic("orders")
///     .topic("payments");
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    pub(super) brokers: String,
    pub(super) group: String,
    pub(super) topics: Vec<String>,
    pub(super) dead_topic: String,
    pub(super) declare: bool,
    pub(super) max_in_flight: usize,
    pub(super) max_in_flight_bytes: usize,
    pub(super) hand_over: Duration,
    begin: Begin,
    sasl: Option<Sasl>,
    tls: Option<Tls>,
    strict: bool,
    options: BTreeMap<String, Secret>,
}

/// Where a new group starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Begin {
    /// At the oldest record.
    #[default]
    Oldest,
    /// At the next new record. This also applies to every partition without a committed offset, whenever a member gets it:
    /// records that arrived there while it was unassigned are skipped.
    Newest,
}

/// Options that `option` must not set, and why.
const RESERVED: [(&str, &str); 9] = [
    ("group.id", "is set by the group's name"),
    ("bootstrap.servers", "is set by the brokers"),
    ("metadata.broker.list", "is set by the brokers"),
    ("auto.offset.reset", "is set by `begin`"),
    ("enable.auto.commit", PROMISE),
    ("enable.auto.offset.store", PROMISE),
    ("acks", PROMISE),
    ("enable.idempotence", PROMISE),
    ("transactional.id", PROMISE),
];
const PROMISE: &str = "cannot be changed: events could be lost";

/// The name that a member keeps across restarts (static membership).
const INSTANCE_ID: &str = "group.instance.id";
const STRATEGY: &str = "partition.assignment.strategy";
/// A member keeps the partitions that stay with it during a rebalance.
const COOPERATIVE: &str = "cooperative-sticky";
/// Every rebalance revokes and assigns all partitions.
const EAGER: &str = "roundrobin";

/// Options of consumers. A producer would warn that it ignores them.
const CONSUMER_ONLY: [&str; 14] = [
    "auto.commit.interval.ms",
    "check.crcs",
    "enable.partition.eof",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
];
/// Topics that a member does not see, as regular expressions separated by commas.
const EXCLUDED: &str = "topic.blacklist";
/// librdkafka's maximum. A received record can be published again; the topic limits its size.
const ANY_SIZE: &str = "1000000000";

impl Config {
    /// A member of this group at these brokers (`host:port`, several separated by commas). The members of a group share the
    /// partitions of their topics.
    ///
    /// Dead letters go to the topic `{group}.dead`, which the consumer creates if it does not exist.
    pub fn new(brokers: impl Into<String>, group: impl Into<String>) -> Self {
        let group = group.into();
        Self {
            brokers: brokers.into(),
            dead_topic: format!("{group}.dead"),
            group,
            topics: Vec::new(),
            declare: true,
            max_in_flight: 1_000,
            max_in_flight_bytes: MAX_BYTES,
            hand_over: Duration::from_secs(30),
            begin: Begin::default(),
            sasl: None,
            tls: None,
            strict: false,
            options: BTreeMap::new(),
        }
    }

    /// Adds a topic. A name that begins with `^` is a regular expression, which never matches the dead letter topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// Sets the topic for dead letters.
    #[must_use]
    pub fn dead_topic(mut self, topic: impl Into<String>) -> Self {
        self.dead_topic = topic.into();
        self
    }

    /// Creates nothing: the dead letter topic exists.
    #[must_use]
    pub fn declared_elsewhere(mut self) -> Self {
        self.declare = false;
        self
    }

    /// Sets where a new group starts.
    #[must_use]
    pub fn begin(mut self, begin: Begin) -> Self {
        self.begin = begin;
        self
    }

    /// Sets the maximum number of records in flight, of all partitions together: 1,000 by default. Choose more than the
    /// concurrency, so that a waiting key does not delay the others.
    #[must_use]
    pub fn max_in_flight(mut self, records: usize) -> Self {
        self.max_in_flight = records.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the maximum size of the records in flight, of all partitions together: 64 MiB by default. A larger record is in
    /// flight alone.
    #[must_use]
    pub fn max_in_flight_bytes(mut self, bytes: usize) -> Self {
        self.max_in_flight_bytes = bytes;
        self
    }

    /// Sets how long running handlers may take to finish when a partition moves to another member: 30 seconds by default.
    #[must_use]
    pub fn hand_over(mut self, grace: Duration) -> Self {
        self.hand_over = grace;
        self
    }

    /// Sets the credentials.
    #[must_use]
    pub fn sasl(mut self, sasl: Sasl) -> Self {
        self.sasl = Some(sasl);
        self
    }

    /// Enables TLS. An empty value trusts the system's certificates.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Refuses to send credentials unencrypted to another machine, instead of logging a warning.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Is the connection encrypted, and are the brokers verified?
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The setting with which credentials would travel unencrypted to another machine.
    pub(super) fn exposure(&self) -> Option<ConfigError> {
        login_exposure(&self.brokers, self.sasl.as_ref(), self.tls.as_ref())
    }

    /// Sets any other librdkafka option for the consumer and for the producer of dead letters. Options that would break a
    /// guarantee are rejected.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// librdkafka's options for the consumer. They contain the password, so they must not be printed.
    pub(super) fn consumer(&self) -> Result<ClientConfig, ConfigError> {
        let mut client = self.client()?;
        client
            .set("group.id", &self.group)
            .set(
                "auto.offset.reset",
                match self.begin {
                    Begin::Oldest => "earliest",
                    Begin::Newest => "latest",
                },
            )
            // Only offsets that the subscription stores are committed: every second, and when a partition is unassigned.
            .set("enable.auto.offset.store", "false")
            .set("enable.auto.commit", "true")
            .set("auto.commit.interval.ms", "1000")
            .set("isolation.level", "read_committed")
            .set(STRATEGY, if self.has_name() { EAGER } else { COOPERATIVE })
            // Prefetch: enough to be fast, at most 16 MiB for each partition.
            .set("queued.min.messages", "1000")
            .set("queued.max.messages.kbytes", "16384");
        self.set_options(&mut client)?;
        if self.has_name()
            && client
                .get(STRATEGY)
                .is_some_and(|set| set.contains("cooperative"))
        {
            let problem = format!(
                "`{STRATEGY}` cannot be cooperative together with `{INSTANCE_ID}`: the partitions of a member that dies \
                 during a rebalance would stay unassigned (remove it, or set `{EAGER}` or `range`)"
            );
            return Err(ConfigError::at("option", problem));
        }
        self.exclude_dead_topic(&mut client);
        checked(client)
    }

    /// A regular expression must not match the dead letter topic: dead letters would be consumed again at once.
    fn exclude_dead_topic(&self, client: &mut ClientConfig) {
        let dead = format!("^{}$", self.dead_topic.replace('.', "[.]"));
        let excluded = match client.get(EXCLUDED) {
            Some(others) => format!("{others},{dead}"),
            None => dead,
        };
        client.set(EXCLUDED, excluded);
    }

    /// Does the member keep its name across restarts? Then a cooperative rebalance is not safe, because it takes two rounds. A
    /// member that dies between them rejoins the first, and the group sees no change and never starts the second.
    fn has_name(&self) -> bool {
        self.options.contains_key(INSTANCE_ID)
    }

    /// librdkafka's options for the producer of dead letters: the same brokers, confirmed by all replicas.
    pub(super) fn producer(&self) -> Result<ClientConfig, ConfigError> {
        let mut client = self.client()?;
        client
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "20000")
            .set("message.max.bytes", ANY_SIZE);
        self.set_options(&mut client)?;
        for option in CONSUMER_ONLY {
            client.remove(option);
        }
        checked(client)
    }

    fn client(&self) -> Result<ClientConfig, ConfigError> {
        for (key, problem) in [
            ("brokers", self.brokers.trim().is_empty()),
            ("group", self.group.trim().is_empty()),
            ("topics", self.topics.is_empty()),
        ] {
            if problem {
                return Err(ConfigError::at(key, "is empty"));
            }
        }
        if self.topics.contains(&self.dead_topic) {
            let problem = "is one of the topics: every dead letter would be consumed again at once";
            return Err(ConfigError::at("dead_topic", problem));
        }
        if let Some(exposure) = self.exposure().filter(|_| self.strict) {
            return Err(exposure);
        }
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", format!("pillarbox-{}", self.group))
            // Reconnects within a second instead of ten.
            .set("reconnect.backoff.max.ms", "1000")
            .set_log_level(RDKafkaLogLevel::Info);
        for (option, value) in security(self.sasl.as_ref(), self.tls.as_ref())? {
            client.set(option, value);
        }
        Ok(client)
    }

    fn set_options(&self, client: &mut ClientConfig) -> Result<(), ConfigError> {
        for (option, value) in &self.options {
            let own = RESERVED.iter().find(|(reserved, _)| reserved == option);
            if let Some(why) = own.map(|(_, why)| *why).or_else(|| reserved(option)) {
                return Err(ConfigError::at("option", format!("`{option}` {why}")));
            }
            let value = value
                .reveal()
                .map_err(|error| ConfigError::at("option", format!("`{option}` {error}")))?;
            client.set(option, value);
        }
        Ok(())
    }
}

/// Validates the options now, so that a mistake is reported at the start.
fn checked(client: ClientConfig) -> Result<ClientConfig, ConfigError> {
    client.create_native_config().map_err(|error| refused(&error))?;
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox_sinks::kafka::Mechanism;

    fn config() -> Config {
        Config::new("127.0.0.1:9092", "letters").topic("orders")
    }

    #[test]
    fn only_stored_offsets_are_committed() {
        let client = config().consumer().unwrap();
        assert_eq!(client.get("enable.auto.offset.store"), Some("false"));
        assert_eq!(client.get("isolation.level"), Some("read_committed"));
        assert_eq!(client.get("auto.offset.reset"), Some("earliest"));
        let client = config().producer().unwrap();
        assert_eq!(client.get("acks"), Some("all"));
    }

    #[test]
    fn options_that_break_a_guarantee_are_rejected() {
        for (option, _) in RESERVED {
            let error = config().option(option, "1").consumer().unwrap_err();
            assert!(error.problem.starts_with(&format!("`{option}` ")), "{error}");
        }
        for option in [
            "enable.ssl.certificate.verification",
            "plugin.library.paths",
            "sasl.password",
            "ssl.ca.location",
            "test.mock.num.brokers",
        ] {
            let error = config().option(option, "1").consumer().unwrap_err();
            assert!(
                error.problem.starts_with(&format!("`{option}` cannot be set")),
                "{error}"
            );
        }
        assert!(config().option("fetch.wait.max.ms", "50").consumer().is_ok());
    }

    #[test]
    fn a_strict_consumer_sends_no_credentials_unencrypted() {
        let config = |brokers: &str| {
            let sasl = Sasl {
                mechanism: Mechanism::default(),
                user: "u".to_owned(),
                password: "hunter2".into(),
            };
            Config::new(brokers, "letters").topic("orders").sasl(sasl)
        };
        assert!(config("mq:9092").consumer().is_ok() && config("mq:9092").exposure().is_some());
        let error = config("mq:9092").strict().consumer().unwrap_err();
        assert_eq!(error.key, "sasl");
        assert!(config("localhost:9092").strict().consumer().is_ok());
        assert!(config("mq:9092").tls(Tls::default()).strict().consumer().is_ok());
    }

    #[test]
    fn options_reach_the_producer_of_dead_letters() {
        let config = config()
            .option("compression.type", "gzip")
            .option("fetch.min.bytes", "10");
        let client = config.producer().unwrap();
        assert_eq!(client.get("fetch.min.bytes"), None, "a producer would warn");
        assert_eq!(client.get("compression.type"), Some("gzip"));
        assert_eq!(client.get("message.max.bytes"), Some(ANY_SIZE));
        let small = config.option("message.max.bytes", "2000").producer().unwrap();
        assert_eq!(small.get("message.max.bytes"), Some("2000"));
    }

    #[test]
    fn the_dead_letter_topic_is_excluded_beside_configured_ones() {
        let excluded = |config: Config| config.consumer().unwrap().get(EXCLUDED).map(str::to_owned);
        assert_eq!(excluded(config()).as_deref(), Some("^letters[.]dead$"));
        let own = config().option(EXCLUDED, "^a,^b");
        assert_eq!(excluded(own).as_deref(), Some("^a,^b,^letters[.]dead$"));
    }

    #[test]
    fn members_with_a_fixed_name_rebalance_eagerly() {
        let strategy = |config: &Config| {
            config
                .consumer()
                .map(|client| client.get(STRATEGY).map(str::to_owned))
        };
        assert_eq!(
            strategy(&config()).unwrap().as_deref(),
            Some("cooperative-sticky")
        );
        let named = config().option(INSTANCE_ID, "a");
        assert_eq!(strategy(&named).unwrap().as_deref(), Some("roundrobin"));
        let named = named.option(STRATEGY, "range");
        assert_eq!(strategy(&named).unwrap().as_deref(), Some("range"));
        let error = strategy(&named.option(STRATEGY, "cooperative-sticky")).unwrap_err();
        assert!(error.problem.contains("(remove it, or set"), "{error}");
    }

    #[test]
    fn invalid_values_are_rejected_with_their_key() {
        for (config, key) in [
            (Config::new(" ", "letters").topic("orders"), "brokers"),
            (Config::new("a:1", "").topic("orders"), "group"),
            (Config::new("a:1", "letters"), "topics"),
            (config().dead_topic("orders"), "dead_topic"),
            (config().option("fetch.wait.max.ms", "soon"), "options"),
        ] {
            assert_eq!(config.consumer().unwrap_err().key, key);
        }
    }
}
