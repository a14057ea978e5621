//! The keys of a `nats` destination.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;
use crate::headers::Table;
use crate::secret::Secret;
use crate::template::Template;
use crate::tls::Tls;

/// A destination of `type = "nats"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `nats://host:4222`, or `tls://` for TLS. Servers of one cluster are separated by commas. It may have a user and a
    /// password, or a token in the place of the user.
    pub url: Secret,
    /// The user, if it is not in `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A token instead of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The contents of a credentials file (`.creds`) instead of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Secret>,
    /// The template of the subject.
    #[serde(default = "default_subject")]
    pub subject: Template,
    /// What `subject` may be: texts, or beginnings such as `orders.*`. Any other event is rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Headers of every message. They override those of the event.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub headers: Table,
    /// The stream that must store the messages. By default any stream with the subject may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Create `stream` if it does not exist. An existing stream stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_stream: Option<CreateStream>,
    /// The timeout of connecting, up to the stream.
    #[serde(default = "default_connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// Turns TLS on. An empty table trusts the CAs of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// A stream that is created if it does not exist: in files, without limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateStream {
    /// The subjects that it stores, for example `shop.>`.
    pub subjects: Vec<String>,
    /// The number of replicas.
    #[serde(default = "one")]
    pub replicas: u8,
}

impl Config {
    /// Servers at this URL, everything else at its default.
    pub fn new(url: impl Into<Secret>) -> Self {
        Self {
            url: url.into(),
            user: None,
            password: None,
            token: None,
            credentials: None,
            subject: default_subject(),
            allow: Vec::new(),
            headers: Table::default(),
            stream: None,
            create_stream: None,
            connect_timeout: default_connect_timeout(),
            tls: None,
        }
    }
}

fn default_subject() -> Template {
    Template::parse("{topic}").expect("`topic` is a known name")
}

fn default_connect_timeout() -> Duration {
    Duration::from_secs(10)
}

fn one() -> u8 {
    1
}

/// The shortest configuration that works, on a local server. The first key has the address.
pub(crate) const MINIMAL: &str = "\
url = \"nats://127.0.0.1:4222\"\n\
# An event with the topic `orders` has the subject `events.orders`. A stream of JetStream must store `events.>`.\n\
subject = \"events.{topic}\"\n";
