//! The checked configuration, with its secrets.

use std::time::Duration;

use lapin::ExchangeKind;
use lapin::types::ShortString;
use lapin::uri::{AMQPScheme, AMQPUri};

use super::config::Config;
use crate::exposure::Login;
use crate::registry::{ConfigError, reveal};
use crate::tls::{self, Loaded, Tls};

/// A destination with more connections would take more from its broker than it gets back.
const MOST_CONNECTIONS: usize = 100;

/// The settings of a connection. Holds the password, so it is not printable.
pub(super) struct Settings {
    /// Of the destination or the consumer.
    pub(super) name: String,
    pub(super) connection_name: String,
    pub(super) uri: AMQPUri,
    /// The key with the host.
    key: &'static str,
    pub(super) tls: Loaded,
    pub(super) exchange: ShortString,
    pub(super) kind: ExchangeKind,
    pub(super) declare: bool,
    pub(super) mandatory: bool,
    pub(super) connections: usize,
    pub(super) connect_timeout: Duration,
}

impl Settings {
    pub(super) fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        tls::ensure_provider();
        let mut uri = match (&config.url, &config.host) {
            (Some(url), None) => from_url(config, &reveal("url", url)?)?,
            (None, Some(host)) => from_parts(config, host)?,
            (Some(_), Some(_)) => {
                return Err(ConfigError::at("host", "and `url` exclude each other; keep one"));
            }
            (None, None) => {
                return Err(ConfigError::at("url", "is missing; give `url`, or `host`"));
            }
        };
        if uri.vhost.is_empty() {
            uri.vhost = "/".to_owned(); // amqp://host/ means the default vhost
        }
        uri.query.heartbeat.get_or_insert(heartbeat(config.heartbeat)?);
        let exchange = ShortString::try_new(config.exchange.as_str())
            .map_err(|_| ConfigError::at("exchange", "is longer than the 255 bytes that AMQP allows"))?;
        Ok(Self {
            name: name.to_owned(),
            connection_name: format!("pillarbox {name}"),
            uri,
            key: if config.url.is_some() { "url" } else { "host" },
            tls: config
                .tls
                .as_ref()
                .map(Tls::load)
                .transpose()?
                .unwrap_or_default(),
            // The default exchange has no name, always exists and cannot be declared.
            declare: config.declare && !config.exchange.is_empty(),
            exchange,
            mandatory: config.mandatory,
            connections: connections(config.connections)?,
            kind: exchange_kind(&config.kind)?,
            connect_timeout: config.connect_timeout,
        })
    }
}

impl Settings {
    pub(super) fn is_encrypted(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// There is always a password: `guest`, unless another is given.
    pub(super) fn exposure(&self) -> Option<ConfigError> {
        let login = Login {
            key: self.key,
            credentials: Some("the password"),
            is_encrypted: self.is_encrypted(),
            hosts: vec![self.uri.authority.host.as_str()],
            advice: "write amqps://, or `tls = {}` beside `host`",
        };
        login.exposure()
    }
}

fn from_url(config: &Config, url: &str) -> Result<AMQPUri, ConfigError> {
    for (key, given) in [
        ("port", config.port.is_some()),
        ("user", config.user.is_some()),
        ("password", config.password.is_some()),
        ("vhost", config.vhost.is_some()),
    ] {
        if given {
            return Err(ConfigError::at(
                key,
                "belongs to `host`; write it into `url`, or give `host` instead",
            ));
        }
    }
    // The error of the parser may repeat the URL with its password.
    let wrong = "is not an AMQP URL; write for example amqp://user:password@host:5672/vhost";
    let uri: AMQPUri = url.parse().map_err(|_| ConfigError::at("url", wrong))?;
    if url.contains("//[") || url.contains("@[") {
        return Err(ConfigError::at(
            "url",
            "cannot hold an IPv6 address; give `host` and `port` instead",
        ));
    }
    if config.tls.is_some() && uri.scheme == AMQPScheme::AMQP {
        return Err(ConfigError::at("tls", "needs a `url` that begins with amqps://"));
    }
    Ok(uri)
}

fn from_parts(config: &Config, host: &str) -> Result<AMQPUri, ConfigError> {
    let mut uri = AMQPUri::default();
    let (scheme, default_port) = match config.tls {
        Some(_) => (AMQPScheme::AMQPS, 5671),
        None => (AMQPScheme::AMQP, 5672),
    };
    uri.scheme = scheme;
    uri.authority.host = host.to_owned();
    uri.authority.port = config.port.unwrap_or(default_port);
    if let Some(user) = &config.user {
        uri.authority.userinfo.username = user.clone();
    }
    if let Some(password) = &config.password {
        uri.authority.userinfo.password = reveal("password", password)?;
    }
    if let Some(vhost) = &config.vhost {
        uri.vhost = vhost.clone();
    }
    Ok(uri)
}

fn connections(count: usize) -> Result<usize, ConfigError> {
    match count {
        1..=MOST_CONNECTIONS => Ok(count),
        _ => Err(ConfigError::at("connections", "must be between 1 and 100")),
    }
}

fn heartbeat(every: Duration) -> Result<u16, ConfigError> {
    match u16::try_from(every.as_secs()) {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(ConfigError::at(
            "heartbeat",
            "must be between 1 second and 18 hours; 20s is a good value",
        )),
    }
}

fn exchange_kind(kind: &str) -> Result<ExchangeKind, ConfigError> {
    match kind {
        "topic" => Ok(ExchangeKind::Topic),
        "direct" => Ok(ExchangeKind::Direct),
        "fanout" => Ok(ExchangeKind::Fanout),
        "headers" => Ok(ExchangeKind::Headers),
        plugin if plugin.starts_with("x-") && plugin.len() <= 255 => {
            Ok(ExchangeKind::Custom(plugin.to_owned()))
        }
        other => Err(ConfigError::at(
            "kind",
            format!("`{other}` is unknown; the kinds are topic, direct, fanout, headers and x-… of a plugin"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, ConfigError> {
        let config: Config = toml::from_str(&format!("exchange = \"events\"\n{text}")).unwrap();
        Settings::new("queue", &config)
    }

    #[test]
    fn a_url_and_its_parts_say_the_same() {
        let url = parse("url = \"amqp://shop:hunter2@mq:5673/%2fshop\"")
            .ok()
            .unwrap()
            .uri;
        let parts =
            parse("host = \"mq\"\nport = 5673\nuser = \"shop\"\npassword = \"hunter2\"\nvhost = \"/shop\"");
        assert!(url == parts.ok().unwrap().uri);
        assert_eq!(url.query.heartbeat, Some(20));
    }

    #[test]
    fn tls_beside_a_host_chooses_the_port() {
        let uri = parse("host = \"mq\"\ntls = {}").ok().unwrap().uri;
        assert_eq!((uri.scheme, uri.authority.port), (AMQPScheme::AMQPS, 5671));
    }

    #[test]
    fn no_vhost_is_the_first_one() {
        for url in ["amqp://mq", "amqp://mq/", "amqp://mq/%2f"] {
            assert_eq!(
                parse(&format!("url = \"{url}\"")).ok().unwrap().uri.vhost,
                "/",
                "{url}"
            );
        }
    }

    #[test]
    fn an_invalid_setting_is_refused_at_its_key() {
        for (text, key) in [
            ("", "url"),
            ("url = \"amqp://a\"\nhost = \"a\"", "host"),
            ("url = \"amqp://a\"\npassword = \"x\"", "password"),
            ("url = \"amqp://[::1]:5672\"", "url"),
            ("url = \"http://a:hunter2@b\"", "url"),
            ("url = \"hunter2\"", "url"),
            ("url = \"amqp://a\"\ntls = {}", "tls"),
            ("url = \"amqp://a\"\nkind = \"tpoic\"", "kind"),
            ("url = \"amqp://a\"\nheartbeat = \"0s\"", "heartbeat"),
            ("url = \"amqp://a\"\nconnections = 0", "connections"),
            ("url = \"amqp://a\"\nconnections = 101", "connections"),
            (
                "host = \"a\"\npassword = { env = \"PILLARBOX_NO_SUCH_VARIABLE\" }",
                "password",
            ),
        ] {
            let error = parse(text).err().unwrap();
            assert_eq!(error.key, key, "{text}");
            assert!(!error.problem.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_name_that_amqp_cannot_carry_is_refused() {
        let config = Config::new("amqp://a", "x".repeat(256));
        assert_eq!(Settings::new("queue", &config).err().unwrap().key, "exchange");
    }
}
