//! How a connection is made, also by those who consume.
//!
//! **If we die here** nothing was sent.

use lapin::{Connection, ConnectionBuilder, ConnectionProperties};
use tokio::time::timeout;

use super::classify;
use super::config::Config;
use super::settings::Settings;
use crate::registry::ConfigError;

/// Where a broker is and who we are to it, checked. For consumers: its connection is that of the library beneath.
#[doc(hidden)]
pub struct Dial(Settings);

impl Dial {
    /// What the configuration says of the connection; the exchange is not looked at. `name` is what the broker shows.
    ///
    /// # Errors
    /// When the configuration cannot be true.
    pub fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        Settings::new(name, config).map(Self)
    }

    /// Connects, within the time that the configuration gives it.
    ///
    /// # Errors
    /// In words that a person can act on, and that never show the password.
    pub async fn connect(&self) -> Result<Connection, String> {
        let patience = self.0.connect_timeout;
        match timeout(patience, connect(&self.0)).await {
            Ok(result) => result,
            Err(_) => Err(silence(&self.0)),
        }
    }
}

pub(super) async fn connect(settings: &Settings) -> Result<Connection, String> {
    let properties =
        ConnectionProperties::default().with_connection_name(settings.connection_name.clone().into());
    let builder = ConnectionBuilder::new().map_err(|error| error.to_string())?;
    builder
        .with_uri(settings.uri.clone())
        .with_properties(properties)
        .with_tls_config(settings.tls.clone())
        .connect()
        .await
        .map_err(|error| classify::not_connected(&error, settings))
}

pub(super) fn silence(settings: &Settings) -> String {
    let authority = &settings.uri.authority;
    format!(
        "RabbitMQ at {}:{} did not answer within {:?}",
        authority.host, authority.port, settings.connect_timeout
    )
}
