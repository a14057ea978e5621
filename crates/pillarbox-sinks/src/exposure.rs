//! Credentials that would travel unencrypted to another machine: one rule for all sinks and consumers.
//!
//! A sink says whether it logs in, where, and whether TLS is on. The server makes a warning of it, or an error if
//! `[security] strict` is set.

use pillarbox::internal::is_local;

use crate::registry::ConfigError;

/// How a connection logs in.
#[cfg_attr(
    not(feature = "full"),
    allow(dead_code, reason = "only sinks with a connection have one")
)]
pub(crate) struct Login<'a> {
    /// The setting that chooses TLS.
    pub(crate) key: &'static str,
    /// What is sent, for instance "the password". None if nothing secret is.
    pub(crate) credentials: Option<&'static str>,
    pub(crate) is_encrypted: bool,
    /// The hosts without their ports.
    pub(crate) hosts: Vec<&'a str>,
    /// What to do.
    pub(crate) advice: &'static str,
}

impl Login<'_> {
    /// The setting, what it exposes, and what to do. None if nothing is exposed.
    pub(crate) fn exposure(&self) -> Option<ConfigError> {
        let credentials = self.credentials.filter(|_| !self.is_encrypted)?;
        let host = self.hosts.iter().find(|host| !is_local(host))?;
        let problem = format!("sends {credentials} unencrypted to {host} ({})", self.advice);
        Some(ConfigError::at(self.key, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SinkConfig;

    fn exposure(text: &str) -> Option<ConfigError> {
        let config: SinkConfig = toml::from_str(text).unwrap();
        config.exposure()
    }

    /// Each with TLS, with a local server, and without credentials where that is possible.
    #[test]
    fn nothing_is_exposed_over_tls_or_on_this_machine() {
        for text in [
            "type = \"rabbitmq\"\nexchange = \"e\"\nurl = \"amqps://u:p@mq\"",
            "type = \"rabbitmq\"\nexchange = \"e\"\nurl = \"amqp://u:p@localhost\"",
            "type = \"rabbitmq\"\nexchange = \"e\"\nhost = \"mq\"\ntls = {}",
            "type = \"nats\"\nurl = \"tls://u:p@nats\"",
            "type = \"nats\"\nurl = \"nats://u:p@nats\"\ntls = {}",
            "type = \"nats\"\nurl = \"nats://u:p@127.0.0.1\"",
            "type = \"nats\"\nurl = \"nats://nats\"",
            "type = \"redis\"\nurl = \"rediss://u:p@r\"",
            "type = \"redis\"\nurl = \"redis://u:p@[::1]\"",
            "type = \"redis\"\nurl = \"redis://r\"",
            "type = \"redis\"\nurl = \"unix:///run/redis.sock?pass=p\"",
            "type = \"webhook\"\nurl = \"https://h/\"\nbearer = \"t\"",
            "type = \"webhook\"\nurl = \"http://127.0.0.1/\"\nbearer = \"t\"",
            "type = \"webhook\"\nurl = \"http://h/\"\nheaders = { x-shop = \"{tenant_id}\" }",
            "type = \"webhook\"\nurl = \"http://h/\"\nheaders = { x-part = \"{topic}/{tenant_id}\", Accept = \"text/html\" }",
            "type = \"webhook\"\nurl = \"http://h/customer-notifications/v1/{topic}?topic={topic}\"",
            "type = \"webhook\"\nurl = \"https://hunter2@h/0123456789abcdef\"",
            "type = \"webhook\"\nurl = \"http://hunter2@localhost/0123456789abcdef\"",
            "type = \"log\"",
        ] {
            assert_eq!(exposure(text), None, "{text}");
        }
    }

    #[test]
    #[cfg(feature = "default")]
    fn credentials_without_tls_are_exposed_at_the_setting() {
        for (text, key) in [
            (
                "type = \"rabbitmq\"\nexchange = \"e\"\nurl = \"amqp://u:hunter2@mq:5673/v\"",
                "url",
            ),
            (
                "type = \"rabbitmq\"\nexchange = \"e\"\nhost = \"mq\"\npassword = \"hunter2\"",
                "host",
            ),
            ("type = \"nats\"\nurl = \"nats://u:hunter2@mq\"", "url"),
            (
                "type = \"nats\"\nurl = \"nats://127.0.0.1,nats://mq\"\ntoken = \"hunter2\"",
                "url",
            ),
            ("type = \"redis\"\nurl = \"redis://u:hunter2@mq\"", "url"),
            (
                "type = \"redis\"\nurl = \"redis://mq\"\npassword = \"hunter2\"",
                "url",
            ),
            (
                "type = \"webhook\"\nurl = \"http://mq/hunter2\"\nbearer = \"hunter2\"",
                "url",
            ),
            ("type = \"webhook\"\nurl = \"http://u:hunter2@mq/\"", "url"),
            (
                "type = \"webhook\"\nurl = \"http://mq/\"\nbasic = { user = \"u\", password = \"hunter2\" }",
                "url",
            ),
            (
                "type = \"webhook\"\nurl = \"http://mq/\"\nheaders = { Authorization = \"hunter2\" }",
                "url",
            ),
            (
                "type = \"webhook\"\nurl = \"http://mq/\"\nheaders = { x-token = { env = \"PATH\" } }",
                "url",
            ),
            (
                "type = \"webhook\"\nurl = \"http://mq/\"\nheaders = { x-shop = \"hunter2\" }",
                "url",
            ),
            (
                "type = \"webhook\"\nurl = \"http://mq/\"\nheaders = { x-shop = \"{tenant_id}-hunter2\" }",
                "url",
            ),
            ("type = \"webhook\"\nurl = \"http://hunter2@mq/\"", "url"),
            ("type = \"webhook\"\nurl = \"http://hunter2@mq/{topic}\"", "url"),
            (
                "type = \"webhook\"\nurl = \"http://mq/services/T00000000/hunter2XXXXXXXXXXXXXXXXX\"",
                "url",
            ),
            (
                "type = \"webhook\"\nurl = \"http://mq/{topic}/hunter2XXXXXXXXXXXXXXXXX\"",
                "url",
            ),
            ("type = \"webhook\"\nurl = \"http://mq/?key=hunter2\"", "url"),
            ("type = \"nats\"\nurl = \"nats://hunter2@mq\"", "url"),
        ] {
            let exposed = exposure(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(exposed.key, key, "{text}");
            assert!(exposed.problem.contains(" unencrypted to mq ("), "{exposed}");
            assert!(!exposed.problem.contains("hunter2"), "{exposed}");
        }
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn a_login_to_kafka_without_tls_is_exposed() {
        let sasl = "sasl = { mechanism = \"SCRAM-SHA-256\", user = \"u\", password = \"hunter2\" }";
        let kafka = |rest: &str| exposure(&format!("type = \"kafka\"\n{rest}"));
        let exposed = kafka(&format!("brokers = \"localhost:9092, mq:9092\"\n{sasl}")).unwrap();
        assert_eq!(exposed.key, "sasl");
        assert!(exposed.problem.contains(" unencrypted to mq ("), "{exposed}");
        assert_eq!(kafka(&format!("brokers = \"mq:9092\"\ntls = {{}}\n{sasl}")), None);
        assert_eq!(
            kafka(&format!("brokers = \"localhost:9092,[::1]:9093\"\n{sasl}")),
            None
        );
        assert_eq!(kafka("brokers = \"mq:9092\""), None);
    }
}
