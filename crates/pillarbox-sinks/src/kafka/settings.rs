//! The configuration of librdkafka, with its secrets.

use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use super::config::{Compression, Config, Mechanism, Sasl};
use crate::exposure::Login;
use crate::registry::{ConfigError, reveal};
use crate::tls::Tls;

/// Options that `options` may not set, and why.
const RESERVED: [(&str, &str); 11] = [
    ("acks", PROMISE),
    ("request.required.acks", PROMISE),
    ("enable.idempotence", PROMISE),
    ("enable.gapless.guarantee", PROMISE),
    ("delivery.report.only.error", PROMISE),
    (
        "transactional.id",
        "is not supported: a record is confirmed by its delivery report",
    ),
    ("message.timeout.ms", "has a key of its own: `timeout`"),
    ("delivery.timeout.ms", "has a key of its own: `timeout`"),
    ("bootstrap.servers", "has a key of its own: `brokers`"),
    ("metadata.broker.list", "has a key of its own: `brokers`"),
    ("message.max.bytes", "has a key of its own: `max_message_bytes`"),
];
/// Families of options that could turn verification off, send the password unencrypted, load code, or replace the brokers.
const RESERVED_FAMILIES: [&str; 9] = [
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "plugin.",
    "sasl.",
    "security.",
    "ssl.",
    "test.",
    "ut_",
];
const PROMISE: &str = "cannot be changed: a confirmed record could be lost";

/// How long a new topic may take to appear. It is shorter than an attempt, because an unknown topic would look like a
/// timeout.
const TOPIC_APPEARS: Duration = Duration::from_secs(5);

/// Why no consumer or destination may set this option, if it concerns TLS, authentication or plug-ins.
#[doc(hidden)]
pub fn reserved(option: &str) -> Option<&'static str> {
    let family = RESERVED_FAMILIES
        .iter()
        .find(|family| option.starts_with(**family))?;
    Some(match *family {
        "test." | "ut_" => "cannot be set: it is for tests of the client, which replace the brokers",
        _ => "cannot be set: TLS and authentication have keys of their own, `tls` and `sasl`",
    })
}

/// The setting with which the password would travel unencrypted to another machine. For consumers too.
#[doc(hidden)]
pub fn exposure(brokers: &str, sasl: Option<&Sasl>, tls: Option<&Tls>) -> Option<ConfigError> {
    let hosts = brokers
        .split(',')
        .map(str::trim)
        .filter(|broker| !broker.is_empty());
    let login = Login {
        key: "sasl",
        credentials: sasl.map(|_| "the credentials"),
        is_encrypted: tls.is_some(),
        hosts: hosts
            .map(|broker| broker.rsplit_once(':').map_or(broker, |(host, _)| host))
            .collect(),
        advice: "add `tls = {}`",
    };
    login.exposure()
}

/// Is it the configuration of a client that encrypts?
pub(super) fn is_encrypted(client: &ClientConfig) -> bool {
    matches!(client.get("security.protocol"), Some("ssl" | "sasl_ssl"))
}

/// The configuration of a producer. Holds the password, so it must not be printed.
pub(super) fn client_config(name: &str, config: &Config) -> Result<ClientConfig, ConfigError> {
    if config.brokers.trim().is_empty() {
        return Err(ConfigError::at(
            "brokers",
            "is empty; write for example \"kafka-1:9092,kafka-2:9092\"",
        ));
    }
    if config.timeout <= config.linger {
        return Err(ConfigError::at("timeout", "must be longer than `linger`"));
    }
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", &config.brokers)
        .set("client.id", format!("pillarbox-{name}"))
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("message.timeout.ms", config.timeout.as_millis().to_string())
        .set("linger.ms", config.linger.as_millis().to_string())
        .set("message.max.bytes", config.max_message_bytes.to_string())
        .set("compression.type", compression(config.compression))
        .set(
            "topic.metadata.propagation.max.ms",
            TOPIC_APPEARS.min(config.timeout / 2).as_millis().to_string(),
        )
        // A broker that is up again is noticed within a second instead of ten.
        .set("reconnect.backoff.max.ms", "1000")
        .set_log_level(RDKafkaLogLevel::Info);
    for (option, value) in security(config.sasl.as_ref(), config.tls.as_ref())? {
        client.set(option, value);
    }
    for (option, value) in &config.options {
        let own = RESERVED.iter().find(|(reserved, _)| reserved == option);
        if let Some(why) = own.map(|(_, why)| *why).or_else(|| reserved(option)) {
            return Err(ConfigError::at("options", format!("`{option}` {why}")));
        }
        let value = value
            .reveal()
            .map_err(|error| ConfigError::at("options", format!("`{option}` {error}")))?;
        client.set(option, value);
    }
    Ok(client)
}

/// The options of librdkafka for TLS and authentication. They hold the password, so they must not be printed. For
/// consumers too.
#[doc(hidden)]
pub fn security(sasl: Option<&Sasl>, tls: Option<&Tls>) -> Result<Vec<(&'static str, String)>, ConfigError> {
    let protocol = match (tls, sasl) {
        (None, None) => "plaintext",
        (Some(_), None) => "ssl",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    let mut options = vec![("security.protocol", protocol.to_owned())];
    if let Some(sasl) = sasl {
        options.push(("sasl.mechanism", mechanism(sasl.mechanism).to_owned()));
        options.push(("sasl.username", sasl.user.clone()));
        options.push(("sasl.password", reveal("sasl.password", &sasl.password)?));
    }
    if let Some(tls) = tls {
        tls.load()?; // a file that cannot be read is an error at the start
        for (option, path) in [
            ("ssl.ca.location", &tls.ca_file),
            ("ssl.certificate.location", &tls.cert_file),
            ("ssl.key.location", &tls.key_file),
        ] {
            if let Some(path) = path {
                options.push((option, text(path)?.to_owned()));
            }
        }
    }
    Ok(options)
}

fn text(path: &Path) -> Result<&str, ConfigError> {
    path.to_str()
        .ok_or_else(|| ConfigError::at("tls", format!("names {}, which is not UTF-8", path.display())))
}

fn compression(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
        Compression::Snappy => "snappy",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

fn mechanism(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Plain => "PLAIN",
        Mechanism::ScramSha256 => "SCRAM-SHA-256",
        Mechanism::ScramSha512 => "SCRAM-SHA-512",
    }
}

/// Why librdkafka refuses the configuration. Its own message would repeat the value.
#[doc(hidden)]
pub fn refused(error: &KafkaError) -> ConfigError {
    match error {
        KafkaError::ClientConfig(_, why, option, _) => {
            ConfigError::at("options", format!("`{option}` is refused by librdkafka: {why}"))
        }
        other => ConfigError::at("options", format!("is refused by librdkafka: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClientConfig, ConfigError> {
        let config: Config = toml::from_str(&format!("brokers = \"127.0.0.1:9092\"\n{text}")).unwrap();
        client_config("stream", &config)
    }

    #[test]
    fn what_makes_a_confirmation_safe_is_always_on() {
        let client = parse("").unwrap();
        assert_eq!(client.get("acks"), Some("all"));
        assert_eq!(client.get("enable.idempotence"), Some("true"));
        assert_eq!(client.get("linger.ms"), Some("5"));
        assert_eq!(client.get("message.timeout.ms"), Some("20000"));
        assert_eq!(client.get("security.protocol"), Some("plaintext"));
    }

    #[test]
    fn what_would_break_a_promise_is_refused() {
        for (option, _) in RESERVED {
            let error = parse(&format!("[options]\n\"{option}\" = \"1\"")).unwrap_err();
            assert!(error.problem.starts_with(&format!("`{option}` ")), "{error}");
        }
    }

    /// The options of librdkafka about TLS, authentication, plug-ins and mock brokers. Those that are no texts cannot be given.
    const UNSAFE: [&str; 48] = [
        "security.protocol",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.ca.certificate.stores",
        "ssl.crl.location",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.providers",
        "ssl.engine.location",
        "ssl.engine.id",
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
        "ssl.certificate.verify_cb",
        "https.ca.location",
        "https.ca.pem",
        "sasl.mechanisms",
        "sasl.mechanism",
        "sasl.kerberos.service.name",
        "sasl.kerberos.principal",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "ssl.truststore.location",
        "sasl.jaas.config",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "plugin.library.paths",
        "test.mock.num.brokers",
        "test.mock.broker.rtt",
        "ut_handle_ProduceResponse",
    ];

    #[test]
    fn no_option_turns_verification_off_or_loads_code() {
        for option in UNSAFE {
            let error = parse(&format!("tls = {{}}\n[options]\n\"{option}\" = \"hunter2\"")).unwrap_err();
            assert!(
                error.problem.starts_with(&format!("`{option}` cannot be set")),
                "{error}"
            );
            assert!(!error.problem.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn any_other_option_is_handed_on() {
        let client = parse("[options]\n\"batch.size\" = \"4096\"").unwrap();
        assert_eq!(client.get("batch.size"), Some("4096"));
    }

    #[test]
    fn a_user_and_tls_choose_the_protocol() {
        let sasl = "sasl = { mechanism = \"SCRAM-SHA-256\", user = \"shop\", password = \"hunter2\" }";
        let client = parse(sasl).unwrap();
        assert_eq!(client.get("security.protocol"), Some("sasl_plaintext"));
        assert_eq!(client.get("sasl.mechanism"), Some("SCRAM-SHA-256"));
        assert_eq!(client.get("sasl.password"), Some("hunter2"));
        let client = parse(&format!("tls = {{}}\n{sasl}")).unwrap();
        assert_eq!(client.get("security.protocol"), Some("sasl_ssl"));
    }

    #[test]
    fn an_invalid_setting_is_refused_at_its_key() {
        for (text, key) in [
            ("timeout = \"5ms\"", "timeout"),
            ("tls = { ca_file = \"/no/such/file\" }", "tls.ca_file"),
            (
                "sasl = { user = \"a\", password = { env = \"PILLARBOX_NO_SUCH_VARIABLE\" } }",
                "sasl.password",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().key, key, "{text}");
        }
        assert_eq!(
            client_config("stream", &Config::new(" ")).unwrap_err().key,
            "brokers"
        );
    }
}
