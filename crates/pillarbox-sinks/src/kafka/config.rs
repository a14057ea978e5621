//! The keys of a `kafka` destination.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;
use crate::headers::Table;
use crate::secret::Secret;
use crate::template::Template;
use crate::tls::Tls;

/// A destination of `type = "kafka"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The bootstrap brokers: `host:port`, separated by commas.
    pub brokers: String,
    /// The template of the topic.
    #[serde(default = "default_topic")]
    pub topic: Template,
    /// What `topic` may be: texts, or beginnings such as `orders.*`. Any other event is rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// The template of the record's key. The default is the ordering key, else the aggregate's id, else no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Template>,
    /// Headers of every record. They override those of the event.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub headers: Table,
    /// The timeout of one record, until it is confirmed.
    #[serde(default = "default_timeout", with = "duration")]
    pub timeout: Duration,
    /// How long records are collected into one request.
    #[serde(default = "default_linger", with = "duration")]
    pub linger: Duration,
    /// How batches are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// The largest record, in bytes; the broker's `message.max.bytes` should be the same.
    #[serde(default = "default_max_message_bytes")]
    pub max_message_bytes: u32,
    /// The user and password, if the broker needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
    /// Turns TLS on. An empty table trusts the CAs of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Other options of librdkafka, except those that would break a guarantee.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Secret>,
}

/// How batches are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// A user and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sasl {
    /// How the password is sent.
    #[serde(default)]
    pub mechanism: Mechanism,
    /// The user.
    pub user: String,
    /// The user's password.
    pub password: Secret,
}

/// How a password is sent to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mechanism {
    /// In plain text: only over TLS, or on a trusted network.
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    /// As a challenge response, with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// As a challenge response, with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl Config {
    /// These brokers, everything else at its default.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: default_topic(),
            allow: Vec::new(),
            key: None,
            headers: Table::default(),
            timeout: default_timeout(),
            linger: default_linger(),
            compression: Compression::default(),
            max_message_bytes: default_max_message_bytes(),
            sasl: None,
            tls: None,
            options: BTreeMap::new(),
        }
    }
}

fn default_topic() -> Template {
    Template::parse("{topic}").expect("`topic` is a known name")
}

fn default_timeout() -> Duration {
    Duration::from_secs(20)
}

fn default_linger() -> Duration {
    Duration::from_millis(5)
}

/// Kafka's own default for `message.max.bytes`.
fn default_max_message_bytes() -> u32 {
    1_048_588
}

/// The shortest configuration that works, on a local server. The first key has the address.
pub(crate) const MINIMAL: &str = "\
brokers = \"127.0.0.1:9092\"\n\
# An event with the topic `orders` becomes a record of `events.orders`.\n\
topic = \"events.{topic}\"\n";
