//! Opens a connection to RabbitMQ, for the sink and for consumers.
//!
//! **If we die here** nothing was sent.

use lapin::uri::AMQPScheme;
use lapin::{Connection, ConnectionProperties};
use tokio::time::timeout;

use super::classify;
use super::config::Config;
use super::settings::Settings;
use super::tls;
use crate::registry::ConfigError;

/// The checked settings of a connection. For consumers: `connect` returns the connection of the client library.
#[doc(hidden)]
pub struct Dial(Settings);

impl Dial {
    /// Checks the settings of the connection, and ignores the exchange. The broker shows `name`.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        Settings::new(name, config).map(Self)
    }

    /// The broker's `host:port`.
    pub fn host(&self) -> String {
        host(&self.0)
    }

    /// Is the connection encrypted, and the broker verified?
    pub fn is_encrypted(&self) -> bool {
        self.0.is_encrypted()
    }

    /// The setting with which the password would travel unencrypted to another machine.
    pub fn exposure(&self) -> Option<ConfigError> {
        self.0.exposure()
    }

    /// Connects within `connect_timeout`.
    ///
    /// # Errors
    /// The reason and what to do, without the password.
    pub async fn connect(&self) -> Result<Connection, String> {
        match timeout(self.0.connect_timeout, connect(&self.0)).await {
            Ok(result) => result,
            Err(_) => Err(timed_out(&self.0)),
        }
    }
}

pub(super) async fn connect(settings: &Settings) -> Result<Connection, String> {
    let properties =
        ConnectionProperties::default().with_connection_name(settings.connection_name.clone().into());
    let uri = settings.uri.clone();
    let connected = match uri.scheme {
        AMQPScheme::AMQP => Connection::connect_uri(uri, properties).await,
        AMQPScheme::AMQPS => tls::connect(uri, properties, &settings.tls).await,
    };
    connected.map_err(|error| classify::not_connected(&error, settings))
}

pub(super) fn timed_out(settings: &Settings) -> String {
    format!(
        "RabbitMQ at {} did not answer within {:?}",
        host(settings),
        settings.connect_timeout
    )
}

pub(super) fn host(settings: &Settings) -> String {
    let authority = &settings.uri.authority;
    format!("{}:{}", authority.host, authority.port)
}
