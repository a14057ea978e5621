//! The checked configuration, with its secrets.

use std::sync::Arc;
use std::time::Duration;

use async_nats::ServerAddr;
use async_nats::jetstream::stream;
use percent_encoding::percent_decode_str;

use super::auth::Identity;
use super::config::{Config, CreateStream};
use crate::exposure::Login;
use crate::registry::{ConfigError, reveal};
use crate::tls::{self, Tls};

/// The settings of a connection. Holds secrets, so it is not printable.
pub(super) struct Settings {
    pub(super) connection_name: String,
    pub(super) servers: Vec<ServerAddr>,
    pub(super) identity: Arc<Identity>,
    pub(super) tls: Option<Tls>,
    pub(super) stream: Option<String>,
    pub(super) create: Option<stream::Config>,
    pub(super) connect_timeout: Duration,
}

impl Settings {
    pub(super) fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        tls::ensure_provider();
        let servers = servers(&reveal("url", &config.url)?)?;
        if let Some(tls) = &config.tls {
            tls.load()?; // a file that cannot be read is an error at the start
        }
        if let Some(stream) = &config.stream {
            legal_stream(stream)?;
        }
        Ok(Self {
            connection_name: format!("pillarbox {name}"),
            identity: Arc::new(identity(config, &servers)?),
            servers,
            tls: config.tls.clone(),
            stream: config.stream.clone(),
            create: create(config.stream.as_deref(), config.create_stream.as_ref())?,
            connect_timeout: config.connect_timeout,
        })
    }

    /// Must the connection to this server be encrypted?
    pub(super) fn requires_tls(&self, server: &ServerAddr) -> bool {
        self.tls.is_some() || server.tls_required()
    }

    /// A server may ask for TLS by itself. Another machine on the way can hide that, and get the credentials.
    pub(super) fn exposure(&self) -> Option<ConfigError> {
        let open = self.servers.iter().filter(|server| !self.requires_tls(server));
        let login = Login {
            key: "url",
            credentials: match *self.identity {
                Identity::Anonymous => None,
                Identity::User { .. } => Some("the password"),
                Identity::Token(_) => Some("the token"),
                Identity::Credentials { .. } => Some("the credentials"),
            },
            is_encrypted: false,
            hosts: open.map(ServerAddr::host).collect(),
            advice: "write tls://",
        };
        login.exposure()
    }

    /// The timeout of one server, which leaves time for the others.
    pub(super) fn server_timeout(&self) -> Duration {
        let servers = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        self.connect_timeout / servers.max(1)
    }
}

fn servers(url: &str) -> Result<Vec<ServerAddr>, ConfigError> {
    // The error of the parser may repeat the URL with its password.
    let wrong = || {
        ConfigError::at(
            "url",
            "is not a NATS URL; write for example nats://user:password@host:4222, or tls://host:4222",
        )
    };
    let parse = |one: &str| one.trim().parse::<ServerAddr>().map_err(|_| wrong());
    let servers: Vec<ServerAddr> = url.split(',').map(parse).collect::<Result<_, _>>()?;
    match servers
        .iter()
        .all(|server| !server.host().is_empty() && !server.is_websocket())
    {
        true => Ok(servers),
        false => Err(wrong()),
    }
}

/// The one way to authenticate, or none.
fn identity(config: &Config, servers: &[ServerAddr]) -> Result<Identity, ConfigError> {
    let in_url = in_url(servers)?;
    if config.password.is_some() && config.user.is_none() {
        return Err(ConfigError::at("user", "is missing; `password` needs its user"));
    }
    let given = [
        ("user", config.user.is_some()),
        ("token", config.token.is_some()),
        ("credentials", config.credentials.is_some()),
    ];
    let mut given = given.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
    let first = given.next();
    if let Some(second) = given.next().or(first.filter(|_| in_url.is_some())) {
        return Err(ConfigError::at(
            second,
            "is a second way to authenticate; keep one of `user`, `token`, `credentials` and the user in `url`",
        ));
    }
    if let Some(name) = &config.user {
        let password = config.password.as_ref();
        let password = password.ok_or_else(|| ConfigError::at("password", "is missing; `user` needs it"))?;
        return Ok(Identity::User {
            name: name.clone(),
            password: reveal("password", password)?,
        });
    }
    if let Some(token) = &config.token {
        return Ok(Identity::Token(reveal("token", token)?));
    }
    if let Some(credentials) = &config.credentials {
        return Identity::from_credentials(&reveal("credentials", credentials)?)
            .map_err(|problem| ConfigError::at("credentials", problem));
    }
    Ok(in_url.unwrap_or(Identity::Anonymous))
}

/// The user in the URL. A name without a password is a token.
fn in_url(servers: &[ServerAddr]) -> Result<Option<Identity>, ConfigError> {
    let mut users = servers
        .iter()
        .filter_map(|server| Some((server.username()?, server.password())));
    let Some(first) = users.next() else {
        return Ok(None);
    };
    if users.any(|other| other != first) {
        return Err(ConfigError::at(
            "url",
            "has different users; give the same user for all servers",
        ));
    }
    let (name, password) = first;
    Ok(Some(match password {
        Some(password) => Identity::User {
            name: decode(name)?,
            password: decode(password)?,
        },
        None => Identity::Token(decode(name)?),
    }))
}

fn decode(text: &str) -> Result<String, ConfigError> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded =
        decoded.map_err(|_| ConfigError::at("url", "holds a user or password that is not UTF-8"))?;
    Ok(decoded.into_owned())
}

fn legal_stream(name: &str) -> Result<(), ConfigError> {
    let illegal = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    if name.is_empty() || name.contains(illegal) {
        return Err(ConfigError::at(
            "stream",
            "is not the name of a stream; it must have no spaces and none of `.`, `*`, `>`, `/` and `\\`",
        ));
    }
    Ok(())
}

fn create(
    stream: Option<&str>,
    create: Option<&CreateStream>,
) -> Result<Option<stream::Config>, ConfigError> {
    let Some(create) = create else {
        return Ok(None);
    };
    let Some(name) = stream else {
        return Err(ConfigError::at(
            "stream",
            "is missing; `create_stream` needs its name",
        ));
    };
    if create.subjects.is_empty() {
        return Err(ConfigError::at(
            "create_stream",
            "has no `subjects`; write for example [\"shop.>\"]",
        ));
    }
    if create.replicas == 0 {
        return Err(ConfigError::at(
            "create_stream",
            "has no `replicas`; write 1, 3 or 5",
        ));
    }
    Ok(Some(stream::Config {
        name: name.to_owned(),
        subjects: create.subjects.clone(),
        num_replicas: create.replicas.into(),
        storage: stream::StorageType::File,
        ..stream::Config::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, ConfigError> {
        let config: Config = toml::from_str(text).unwrap();
        Settings::new("stream", &config)
    }

    fn user(text: &str) -> (String, String) {
        match &*parse(text).ok().unwrap().identity {
            Identity::User { name, password } => (name.clone(), password.clone()),
            Identity::Token(token) => ("token".to_owned(), token.clone()),
            Identity::Anonymous | Identity::Credentials { .. } => panic!("{text}: no user"),
        }
    }

    #[test]
    fn a_url_and_its_parts_say_the_same() {
        let expected = ("shop".to_owned(), "p@ss".to_owned());
        assert_eq!(user("url = \"nats://shop:p%40ss@a:4222,b\""), expected);
        assert_eq!(
            user("url = \"nats://a:4222,nats://b\"\nuser = \"shop\"\npassword = \"p@ss\""),
            expected
        );
        let token = ("token".to_owned(), "t0k".to_owned());
        assert_eq!(user("url = \"tls://t0k@a\""), token);
        assert_eq!(user("url = \"a\"\ntoken = \"t0k\""), token);
    }

    #[test]
    fn servers_are_divided_by_commas() {
        let servers = parse("url = \"nats://a:4223, tls://b\"").ok().unwrap().servers;
        let places: Vec<(&str, u16)> = servers.iter().map(|one| (one.host(), one.port())).collect();
        assert_eq!(places, [("a", 4223), ("b", 4222)]);
    }

    #[test]
    fn a_stream_is_created_in_files() {
        let text =
            "url = \"a\"\nstream = \"SHOP\"\ncreate_stream = { subjects = [\"shop.>\"], replicas = 3 }";
        let config = parse(text).ok().unwrap().create.unwrap();
        assert_eq!((config.name.as_str(), config.num_replicas), ("SHOP", 3));
        assert_eq!(config.storage, stream::StorageType::File);
        assert_eq!(config.max_messages, stream::Config::default().max_messages);
    }

    #[test]
    fn an_invalid_setting_is_refused_at_its_key() {
        for (text, key) in [
            ("url = \"http://a:hunter2@b\"", "url"),
            ("url = \"ws://a:hunter2@b\"", "url"),
            ("url = \"\"", "url"),
            ("url = \"nats://x:hunter2@a,nats://y:hunter2@b\"", "url"),
            ("url = \"nats://x:hunter2@a\"\ntoken = \"hunter2\"", "token"),
            (
                "url = \"a\"\ntoken = \"hunter2\"\ncredentials = \"hunter2\"",
                "credentials",
            ),
            ("url = \"a\"\npassword = \"hunter2\"", "user"),
            ("url = \"a\"\nuser = \"shop\"", "password"),
            ("url = \"a\"\ncredentials = \"hunter2\"", "credentials"),
            ("url = \"a\"\nstream = \"a.b\"", "stream"),
            ("url = \"a\"\ncreate_stream = { subjects = [\"a\"] }", "stream"),
            (
                "url = \"a\"\nstream = \"A\"\ncreate_stream = { subjects = [] }",
                "create_stream",
            ),
            (
                "url = \"a\"\nstream = \"A\"\ncreate_stream = { subjects = [\"a\"], replicas = 0 }",
                "create_stream",
            ),
            (
                "url = \"a\"\ntls = { ca_file = \"/no/such/file\" }",
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
