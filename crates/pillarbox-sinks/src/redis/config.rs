//! The keys of a `redis` destination.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;
use crate::headers::Table;
use crate::secret::Secret;
use crate::template::Template;
use crate::tls::Tls;

/// A destination of `type = "redis"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `redis://user:password@host:6379/0`, or `rediss://` for TLS.
    pub url: Secret,
    /// The user, if it is not in `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password, of the user or of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// The template of the stream's key.
    #[serde(default = "default_stream")]
    pub stream: Template,
    /// What `stream` may be: texts, or beginnings such as `orders.*`. Any other event is rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Fields of every entry. They override the headers of the event.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub headers: Table,
    /// Trim the stream to about this many entries, whether they are read or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_len: Option<NonZeroU64>,
    /// The timeout of connecting.
    #[serde(default = "default_connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// A private CA and a client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

impl Config {
    /// A server at this URL, everything else at its default.
    pub fn new(url: impl Into<Secret>) -> Self {
        Self {
            url: url.into(),
            user: None,
            password: None,
            stream: default_stream(),
            allow: Vec::new(),
            headers: Table::default(),
            max_len: None,
            connect_timeout: default_connect_timeout(),
            tls: None,
        }
    }
}

fn default_stream() -> Template {
    Template::parse("{topic}").expect("`topic` is a known name")
}

fn default_connect_timeout() -> Duration {
    Duration::from_secs(10)
}

/// The shortest configuration that works, on a local server. The first key has the address.
pub(crate) const MINIMAL: &str = "\
url = \"redis://127.0.0.1:6379\"\n\
# An event with the topic `orders` is added to the stream `events:orders`.\n\
stream = \"events:{topic}\"\n";
