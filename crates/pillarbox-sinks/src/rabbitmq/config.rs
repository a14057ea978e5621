//! The keys of a `rabbitmq` destination.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;
use crate::headers::Table;
use crate::secret::Secret;
use crate::template::Template;
use crate::tls::Tls;

/// A destination of `type = "rabbitmq"`. It has either `url`, or `host` and the keys after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Secret>,
    /// The broker's host, instead of `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its port; 5672, or 5671 with `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The user; `guest` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// The virtual host; `/` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<String>,
    /// The exchange that messages are published to.
    pub exchange: String,
    /// What kind of exchange: `topic`, `direct`, `fanout`, `headers` or a plugin's `x-…`.
    #[serde(default = "default_kind")]
    pub kind: String,
    /// Declare the exchange as durable when connecting? Otherwise it must exist.
    #[serde(default = "yes")]
    pub declare: bool,
    /// The template of the routing key.
    #[serde(default = "default_routing_key")]
    pub routing_key: Template,
    /// What `routing_key` may be: texts, or beginnings such as `orders.*`. Any other event is rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Headers of every message. They override those of the event.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub headers: Table,
    /// Does an unroutable message count as not delivered?
    #[serde(default = "yes")]
    pub mandatory: bool,
    /// How many connections share the events, 1 to 100. Those of one ordering key always take the same.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// The interval of heartbeats in both directions.
    #[serde(default = "default_heartbeat", with = "duration")]
    pub heartbeat: Duration,
    /// The timeout of connecting, up to the declared exchange.
    #[serde(default = "default_connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// A private CA and a client certificate. With `host`, it turns TLS on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

impl Config {
    /// A broker at this URL and an exchange there, everything else at its default.
    pub fn new(url: impl Into<Secret>, exchange: impl Into<String>) -> Self {
        Self {
            url: Some(url.into()),
            host: None,
            port: None,
            user: None,
            password: None,
            vhost: None,
            exchange: exchange.into(),
            kind: default_kind(),
            declare: true,
            routing_key: default_routing_key(),
            allow: Vec::new(),
            headers: Table::default(),
            mandatory: true,
            connections: default_connections(),
            heartbeat: default_heartbeat(),
            connect_timeout: default_connect_timeout(),
            tls: None,
        }
    }
}

fn default_kind() -> String {
    "topic".to_owned()
}

fn yes() -> bool {
    true
}

fn default_routing_key() -> Template {
    Template::parse("{topic}").expect("`topic` is a known name")
}

fn default_connections() -> usize {
    1
}

/// RabbitMQ's own recommendation lies between 5 and 20 seconds.
fn default_heartbeat() -> Duration {
    Duration::from_secs(20)
}

fn default_connect_timeout() -> Duration {
    Duration::from_secs(10)
}

/// The shortest configuration that works, on a local server. The first key has the address.
pub(crate) const MINIMAL: &str = "\
url = \"amqp://guest:guest@127.0.0.1:5672/%2f\"\n\
exchange = \"events\"\n\
# The routing key is the event's topic, unless `routing_key` is set.\n\
# Bind a queue to the exchange: a message that no queue takes is retried.\n";
