//! What a `nats` destination can say.

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
    /// `nats://host:4222`, or `tls://` for TLS; several servers of one cluster divided by commas. May hold
    /// user and password, or a token in the user's place.
    pub url: Secret,
    /// Who, if `url` does not say it.
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
    /// What the subject is made of.
    #[serde(default = "default_subject")]
    pub subject: Template,
    /// Added to every message; they win over the event's own.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub headers: Table,
    /// The stream that must take the messages. Unless it is named, any stream with the subject may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Create `stream` if it is not there. One that is there stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_stream: Option<CreateStream>,
    /// How long connecting may take, up to the stream.
    #[serde(default = "default_connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// Its presence turns TLS on; an empty table trusts what the machine trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// A stream that is created if it is not there: in files, without limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateStream {
    /// Which subjects it takes, for example `shop.>`.
    pub subjects: Vec<String>,
    /// On how many servers it is kept.
    #[serde(default = "one")]
    pub replicas: u8,
}

impl Config {
    /// Servers at this URL, everything else as by default.
    pub fn new(url: impl Into<Secret>) -> Self {
        Self {
            url: url.into(),
            user: None,
            password: None,
            token: None,
            credentials: None,
            subject: default_subject(),
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
