//! What a `kafka` destination can say.

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
    /// The brokers to ask first: `host:port`, several divided by commas.
    pub brokers: String,
    /// What the topic is made of.
    #[serde(default = "default_topic")]
    pub topic: Template,
    /// What the record's key is made of. Unless said otherwise the ordering key, else the aggregate's id,
    /// else there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Template>,
    /// Added to every record; they win over the event's own.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub headers: Table,
    /// How long one record may take until it is confirmed or given up.
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
    /// Who we are to the broker, if it asks for a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
    /// Its presence turns TLS on; an empty table trusts what the machine trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Anything else that librdkafka knows, except what would break a promise.
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
    /// How they are shown to the broker.
    #[serde(default)]
    pub mechanism: Mechanism,
    /// Who.
    pub user: String,
    /// The user's password.
    pub password: Secret,
}

/// How a password is shown to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mechanism {
    /// As it is: only over TLS or on a network that is trusted.
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    /// As a proof, with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// As a proof, with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl Config {
    /// These brokers, everything else as by default.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: default_topic(),
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
