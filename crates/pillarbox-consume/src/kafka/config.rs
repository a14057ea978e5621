//! What can be said of topics to consume from.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox_sinks::kafka::{Sasl, refused, security};
use pillarbox_sinks::registry::ConfigError;
use pillarbox_sinks::{Secret, Tls};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// Topics of Kafka, consumed as a member of a group.
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
    pub(super) held: usize,
    pub(super) hand_over: Duration,
    begin: Begin,
    sasl: Option<Sasl>,
    tls: Option<Tls>,
    options: BTreeMap<String, Secret>,
}

/// Where a group begins that never consumed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Begin {
    /// At the oldest record that there is.
    #[default]
    Oldest,
    /// At the first record that comes from now on. Also in every partition in which nothing was done so far, whenever a
    /// member gets it: what was sent there while nobody had it is skipped.
    Newest,
}

/// Options that `option` may not set, and why.
const RESERVED: [(&str, &str); 10] = [
    ("group.id", "has a name of its own: the group"),
    ("bootstrap.servers", "has a name of its own: the brokers"),
    ("metadata.broker.list", "has a name of its own: the brokers"),
    ("sasl.password", "has a name of its own: `sasl`"),
    ("auto.offset.reset", "has a name of its own: `begin`"),
    ("enable.auto.commit", PROMISE),
    ("enable.auto.offset.store", PROMISE),
    ("acks", PROMISE),
    ("enable.idempotence", PROMISE),
    ("transactional.id", PROMISE),
];
const PROMISE: &str = "cannot be changed: an event would not be safe any more";

/// The name that a member keeps over restarts.
const NAME: &str = "group.instance.id";
const STRATEGY: &str = "partition.assignment.strategy";
/// Partitions that stay with a member are not taken away and given back.
const BY_AND_BY: &str = "cooperative-sticky";
/// All partitions are given back, and shared out anew.
const AT_ONCE: &str = "roundrobin";

/// What only those who receive know. Those who send would warn of each that it is ignored.
const RECEIVING: [&str; 14] = [
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
/// Topics that are not there for a member, as regular expressions divided by commas.
const HIDDEN: &str = "topic.blacklist";
/// The most that librdkafka takes. What was received can be sent on: the topic decides how large a record may be.
const ANY_SIZE: &str = "1000000000";

impl Config {
    /// A member of this group, at these brokers (`host:port`, several divided by commas). The members of a group share
    /// the partitions of their topics among each other.
    ///
    /// What is given up on goes to the topic `{group}.dead`, which is created if it is not there.
    pub fn new(brokers: impl Into<String>, group: impl Into<String>) -> Self {
        let group = group.into();
        Self {
            brokers: brokers.into(),
            dead_topic: format!("{group}.dead"),
            group,
            topics: Vec::new(),
            declare: true,
            held: 1_000,
            hand_over: Duration::from_secs(30),
            begin: Begin::default(),
            sasl: None,
            tls: None,
            options: BTreeMap::new(),
        }
    }

    /// Adds a topic. One that begins with `^` is a regular expression; the topic for what is given up on is left out of
    /// what it matches.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// Sets the topic for what is given up on.
    #[must_use]
    pub fn dead_topic(mut self, topic: impl Into<String>) -> Self {
        self.dead_topic = topic.into();
        self
    }

    /// Creates nothing: the topic for what is given up on is there already.
    #[must_use]
    pub fn declared_elsewhere(mut self) -> Self {
        self.declare = false;
        self
    }

    /// Sets where a group begins that never consumed before.
    #[must_use]
    pub fn begin(mut self, begin: Begin) -> Self {
        self.begin = begin;
        self
    }

    /// Sets how many records are held here at the most, of all partitions together; 1,000 unless said otherwise. More
    /// than are handled at once, so that a key that waits does not hold up the others.
    #[must_use]
    pub fn held(mut self, records: usize) -> Self {
        self.held = records.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// Sets how long handlers that are at work may take to finish when a partition goes to another member; 30 seconds
    /// unless said otherwise.
    #[must_use]
    pub fn hand_over(mut self, grace: Duration) -> Self {
        self.hand_over = grace;
        self
    }

    /// Sets who we are to the brokers.
    #[must_use]
    pub fn sasl(mut self, sasl: Sasl) -> Self {
        self.sasl = Some(sasl);
        self
    }

    /// Turns TLS on; an empty one trusts what the machine trusts.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets anything else that librdkafka knows, except what would break a promise: for those who receive, and for those
    /// who send dead letters.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// What librdkafka is told by those who receive. Holds the password, so it must not be printed.
    pub(super) fn receiving(&self) -> Result<ClientConfig, ConfigError> {
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
            // Only what is stored by us is committed, every second and when a partition is handed over.
            .set("enable.auto.offset.store", "false")
            .set("enable.auto.commit", "true")
            .set("auto.commit.interval.ms", "1000")
            .set("isolation.level", "read_committed")
            .set(STRATEGY, if self.has_name() { AT_ONCE } else { BY_AND_BY })
            // What librdkafka fetches ahead: enough to be quick, 16 MiB for each partition at the most.
            .set("queued.min.messages", "1000")
            .set("queued.max.messages.kbytes", "16384");
        self.set_options(&mut client)?;
        if self.has_name()
            && client
                .get(STRATEGY)
                .is_some_and(|set| set.contains("cooperative"))
        {
            let problem = format!(
                "`{STRATEGY}` cannot be cooperative together with `{NAME}`: nobody would consume the partitions of a member \
                 that dies while they are shared out; leave it out, or set it to `{AT_ONCE}` or `range`"
            );
            return Err(ConfigError::at("option", problem));
        }
        self.hide_the_dead(&mut client);
        checked(client)
    }

    /// A pattern may match the topic for what is given up on too, which would come again at once.
    fn hide_the_dead(&self, client: &mut ClientConfig) {
        let dead = format!("^{}$", self.dead_topic.replace('.', "[.]"));
        let hidden = match client.get(HIDDEN) {
            Some(others) => format!("{others},{dead}"),
            None => dead,
        };
        client.set(HIDDEN, hidden);
    }

    /// Does the member keep a name over restarts? Then partitions cannot be shared out by and by, which takes two rounds: one
    /// that dies between them comes back into the first, and the group, which sees nothing new, never begins the second.
    fn has_name(&self) -> bool {
        self.options.contains_key(NAME)
    }

    /// What librdkafka is told by those who send dead letters: the same brokers, and confirmed by all of them.
    pub(super) fn sending(&self) -> Result<ClientConfig, ConfigError> {
        let mut client = self.client()?;
        client
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "20000")
            .set("message.max.bytes", ANY_SIZE);
        self.set_options(&mut client)?;
        for option in RECEIVING {
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
            let problem = "is one of the topics: what is given up on would come again at once";
            return Err(ConfigError::at("dead_topic", problem));
        }
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", format!("pillarbox-{}", self.group))
            // A broker that is back is noticed within a second instead of ten.
            .set("reconnect.backoff.max.ms", "1000")
            .set_log_level(RDKafkaLogLevel::Info);
        for (option, value) in security(self.sasl.as_ref(), self.tls.as_ref())? {
            client.set(option, value);
        }
        Ok(client)
    }

    fn set_options(&self, client: &mut ClientConfig) -> Result<(), ConfigError> {
        for (option, value) in &self.options {
            if let Some((_, why)) = RESERVED.iter().find(|(reserved, _)| reserved == option) {
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

/// Asked now, so that a mistake is told at the start.
fn checked(client: ClientConfig) -> Result<ClientConfig, ConfigError> {
    client.create_native_config().map_err(|error| refused(&error))?;
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("127.0.0.1:9092", "letters").topic("orders")
    }

    #[test]
    fn only_what_is_done_is_committed() {
        let client = config().receiving().unwrap();
        assert_eq!(client.get("enable.auto.offset.store"), Some("false"));
        assert_eq!(client.get("isolation.level"), Some("read_committed"));
        assert_eq!(client.get("auto.offset.reset"), Some("earliest"));
        let client = config().sending().unwrap();
        assert_eq!(client.get("acks"), Some("all"));
    }

    #[test]
    fn what_would_break_a_promise_is_refused() {
        for (option, _) in RESERVED {
            let error = config().option(option, "1").receiving().unwrap_err();
            assert!(error.problem.starts_with(&format!("`{option}` ")), "{error}");
        }
        assert!(config().option("fetch.wait.max.ms", "50").receiving().is_ok());
    }

    #[test]
    fn options_reach_those_who_send_dead_letters_as_well() {
        let config = config()
            .option("compression.type", "gzip")
            .option("fetch.min.bytes", "10");
        let client = config.sending().unwrap();
        assert_eq!(client.get("fetch.min.bytes"), None, "they would warn of it");
        assert_eq!(client.get("compression.type"), Some("gzip"));
        assert_eq!(client.get("message.max.bytes"), Some(ANY_SIZE));
        let small = config.option("message.max.bytes", "2000").sending().unwrap();
        assert_eq!(small.get("message.max.bytes"), Some("2000"));
    }

    #[test]
    fn the_topic_for_dead_letters_is_hidden_beside_those_that_are_named() {
        let hidden = |config: Config| config.receiving().unwrap().get(HIDDEN).map(str::to_owned);
        assert_eq!(hidden(config()).as_deref(), Some("^letters[.]dead$"));
        let own = config().option(HIDDEN, "^a,^b");
        assert_eq!(hidden(own).as_deref(), Some("^a,^b,^letters[.]dead$"));
    }

    #[test]
    fn members_with_a_name_share_out_at_once() {
        let strategy = |config: &Config| {
            config
                .receiving()
                .map(|client| client.get(STRATEGY).map(str::to_owned))
        };
        assert_eq!(
            strategy(&config()).unwrap().as_deref(),
            Some("cooperative-sticky")
        );
        let named = config().option(NAME, "a");
        assert_eq!(strategy(&named).unwrap().as_deref(), Some("roundrobin"));
        let named = named.option(STRATEGY, "range");
        assert_eq!(strategy(&named).unwrap().as_deref(), Some("range"));
        let error = strategy(&named.option(STRATEGY, "cooperative-sticky")).unwrap_err();
        assert!(error.problem.contains("leave it out"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused_at_its_key() {
        for (config, key) in [
            (Config::new(" ", "letters").topic("orders"), "brokers"),
            (Config::new("a:1", "").topic("orders"), "group"),
            (Config::new("a:1", "letters"), "topics"),
            (config().dead_topic("orders"), "dead_topic"),
            (config().option("fetch.wait.max.ms", "soon"), "options"),
        ] {
            assert_eq!(config.receiving().unwrap_err().key, key);
        }
    }
}
