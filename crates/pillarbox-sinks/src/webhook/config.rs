//! The keys of a `webhook` destination.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;
use crate::headers::Table;
use crate::secret::Secret;
use crate::tls::Tls;

/// A destination of `type = "webhook"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URL. After the host it may be a [template](crate::Template). It often has a token, so it is never printed.
    pub url: Secret,
    /// Headers of every request. They override those of the event.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub headers: Table,
    /// `Authorization: Bearer …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<Secret>,
    /// `Authorization: Basic …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<Basic>,
    /// Sign every request by Standard Webhooks: `whsec_…`. Give two while one replaces the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signing_secrets: Vec<Secret>,
    /// The timeout of one request, from connecting to the last byte of the answer.
    #[serde(default = "default_timeout", with = "duration")]
    pub timeout: Duration,
    /// The timeout of connecting.
    #[serde(default = "default_connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// A private CA and a client certificate.
    #[serde(default)]
    pub tls: Tls,
}

/// A user name and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Basic {
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret,
}

impl Config {
    /// A webhook at this URL, everything else at its default.
    pub fn new(url: impl Into<Secret>) -> Self {
        Self {
            url: url.into(),
            headers: Table::default(),
            bearer: None,
            basic: None,
            signing_secrets: Vec::new(),
            timeout: default_timeout(),
            connect_timeout: default_connect_timeout(),
            tls: Tls::default(),
        }
    }
}

fn default_timeout() -> Duration {
    Duration::from_secs(20)
}

fn default_connect_timeout() -> Duration {
    Duration::from_secs(10)
}

/// The shortest configuration that works, on a local server. The first key has the address.
pub(crate) const MINIMAL: &str = "\
url = \"http://127.0.0.1:8080/events\"\n";
