//! The checked configuration, with its secrets.

use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, TlsCertificates,
};

use super::config::Config;
use crate::exposure::Login;
use crate::registry::{ConfigError, reveal};
use crate::tls::{self, Tls};

/// TCP keepalive: how long a connection is idle before the first probe, and how often the probes are.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged before the connection ends.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a connection. Holds the password, so it is not printable.
pub(super) struct Settings {
    pub(super) client: Client,
    /// `host:port`, for messages.
    pub(super) address: String,
    pub(super) connect_timeout: Duration,
}

impl Settings {
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(
            self.client.get_connection_info().addr(),
            ConnectionAddr::TcpTls { .. }
        )
    }

    pub(super) fn exposure(&self) -> Option<ConfigError> {
        let info = self.client.get_connection_info();
        let host = match info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => return None, // a socket of this machine
        };
        let login = Login {
            key: "url",
            credentials: info.redis_settings().password().map(|_| "the password"),
            is_encrypted: self.is_encrypted(),
            hosts: vec![host],
            advice: "write rediss://",
        };
        login.exposure()
    }

    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        tls::ensure_provider();
        let url = reveal("url", &config.url)?;
        // The error of the parser may repeat the URL with its password.
        let wrong = "is not a Redis URL; write for example redis://user:password@host:6379/0";
        let info = url
            .as_str()
            .into_connection_info()
            .map_err(|_| ConfigError::at("url", wrong))?;
        let address = address(info.addr())?;
        let login = login(config, info.redis_settings())?;
        let info = info.set_redis_settings(login).set_tcp_settings(tcp_settings());
        Ok(Self {
            client: client(info, config.tls.as_ref())?,
            address,
            connect_timeout: config.connect_timeout,
        })
    }
}

fn address(address: &ConnectionAddr) -> Result<String, ConfigError> {
    match address {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(ConfigError::at(
            "url",
            "ends in #insecure; verification cannot be turned off, give `tls.ca_file` instead",
        )),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Ok(format!("{host}:{port}"))
        }
        ConnectionAddr::Unix(path) => Ok(path.display().to_string()),
        _ => Err(ConfigError::at(
            "url",
            "has an address of an unknown kind; give a host and a port",
        )),
    }
}

fn login(config: &Config, in_url: &RedisConnectionInfo) -> Result<RedisConnectionInfo, ConfigError> {
    for (key, given, there) in [
        ("user", config.user.is_some(), in_url.username().is_some()),
        ("password", config.password.is_some(), in_url.password().is_some()),
    ] {
        if given && there {
            return Err(ConfigError::at(key, "is in `url` as well; keep one"));
        }
    }
    // Only with RESP3 the client library reports the end of a connection.
    let mut login = in_url.clone().set_protocol(ProtocolVersion::RESP3);
    if let Some(user) = &config.user {
        login = login.set_username(user);
    }
    if let Some(password) = &config.password {
        login = login.set_password(reveal("password", password)?);
    }
    if login.username().is_some() && login.password().is_none() {
        return Err(ConfigError::at("password", "is missing; the user needs it"));
    }
    Ok(login)
}

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

fn client(info: ConnectionInfo, tls: Option<&Tls>) -> Result<Client, ConfigError> {
    let Some(tls) = tls else {
        return Client::open(info).map_err(|_| ConfigError::at("url", "cannot be used"));
    };
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Err(ConfigError::at("tls", "needs a `url` that begins with rediss://"));
    }
    let files = tls.load()?;
    let certificates = TlsCertificates {
        root_cert: files.ca,
        client_tls: files.identity.map(|identity| ClientTlsConfig {
            client_cert: identity.cert,
            client_key: identity.key,
        }),
    };
    Client::build_with_tls(info, certificates).map_err(|error| ConfigError::at("tls", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, ConfigError> {
        let config: Config = toml::from_str(text).unwrap();
        Settings::new(&config)
    }

    fn login_of(text: &str) -> (Option<String>, Option<String>, i64) {
        let settings = parse(text).ok().unwrap();
        let login = settings.client.get_connection_info().redis_settings();
        (
            login.username().map(str::to_owned),
            login.password().map(str::to_owned),
            login.db(),
        )
    }

    #[test]
    fn a_url_and_its_parts_say_the_same() {
        let expected = (Some("shop".to_owned()), Some("p@ss".to_owned()), 2);
        assert_eq!(login_of("url = \"redis://shop:p%40ss@r:6380/2\""), expected);
        assert_eq!(
            login_of("url = \"redis://r:6380/2\"\nuser = \"shop\"\npassword = \"p@ss\""),
            expected
        );
        let without_user = login_of("url = \"redis://r\"\npassword = \"p@ss\"");
        assert_eq!(without_user, (None, Some("p@ss".to_owned()), 0));
    }

    #[test]
    fn the_address_is_shown_without_the_password() {
        let address = |text| parse(text).ok().unwrap().address;
        assert_eq!(address("url = \"redis://shop:hunter2@r\""), "r:6379");
        assert_eq!(address("url = \"rediss://r:7000\""), "r:7000");
    }

    #[test]
    fn an_invalid_setting_is_refused_at_its_key() {
        for (text, key) in [
            ("url = \"http://a:hunter2@b\"", "url"),
            ("url = \"hunter2\"", "url"),
            ("url = \"rediss://a/#insecure\"", "url"),
            (
                "url = \"redis://x:hunter2@a\"\npassword = \"hunter2\"",
                "password",
            ),
            ("url = \"redis://x:hunter2@a\"\nuser = \"x\"", "user"),
            ("url = \"redis://a\"\nuser = \"x\"", "password"),
            ("url = \"redis://a\"\ntls = {}", "tls"),
            (
                "url = \"rediss://a\"\ntls = { ca_file = \"/no/such/file\" }",
                "tls.ca_file",
            ),
            ("url = { env = \"PILLARBOX_NO_SUCH_VARIABLE\" }", "url"),
        ] {
            let error = parse(text).err().unwrap_or_else(|| panic!("{text}"));
            assert_eq!(error.key, key, "{text}");
            assert!(!error.problem.contains("hunter2"), "{error}");
        }
    }
}
