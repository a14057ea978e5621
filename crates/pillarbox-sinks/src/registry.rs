//! The table of sinks. `SinkConfig` and everything that depends on the list follow from it.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::Sink;
use serde::{Deserialize, Serialize};

use crate::message::{self, Form, Recoding, Upcasts};
use crate::secret::Secret;

/// An invalid setting of a sink.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {problem}")]
pub struct ConfigError {
    /// The key.
    pub key: &'static str,
    /// What is wrong with its value, and what to do.
    pub problem: String,
}

impl ConfigError {
    /// An error at this key.
    pub fn at(key: &'static str, problem: impl Into<String>) -> Self {
        Self {
            key,
            problem: problem.into(),
        }
    }
}

/// Why the sink of a destination was not built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The program was built without the sink.
    #[error(
        "destination `{destination}`: this pillarbox was built without the {sink} sink \
         (build it with `--features full`, or `--features pillarbox-sinks/{sink}`)"
    )]
    NotBuilt {
        /// The destination that needs the sink.
        destination: String,
        /// The sink, which is also the name of its cargo feature.
        sink: &'static str,
    },
    /// A setting of the sink is invalid.
    #[error("destination `{destination}`: {error}")]
    Config {
        /// The destination with the setting.
        destination: String,
        /// The key and the problem.
        error: ConfigError,
    },
}

/// Makes everything that depends on the list of sinks from one row per sink.
macro_rules! sinks {
    ($(
        $name:literal $(if feature $feature:literal)? => $module:ident::$Sink:ident, $concurrency:literal
        $(, $timeout:ident)?;
    )*) => {
        /// The keys of a `[[destination]]` that belong to its sink. `type` names the sink. An unknown key is an error.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "type")]
        pub enum SinkConfig {
            $(
                #[doc = concat!("`type = \"", $name, "\"`: see [`", stringify!($module), "`](crate::", stringify!($module), ").")]
                #[serde(rename = $name)]
                $Sink(crate::$module::Config),
            )*
        }

        /// Every sink that a configuration can name, in the order of the documentation.
        pub const SINKS: &[SinkKind] = &[$(
            SinkKind {
                name: $name,
                is_built_in: true $(&& cfg!(feature = $feature))?,
                minimal: crate::$module::MINIMAL,
            },
        )*];

        impl SinkConfig {
            /// The name in `type`.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$Sink(_) => $name,)*
                }
            }

            /// How many events are in flight at once, unless the destination sets `concurrency`.
            pub fn default_concurrency(&self) -> usize {
                match self {
                    $(Self::$Sink(_) => $concurrency,)*
                }
            }

            /// Sets the sink's own timeout to that of the dispatcher. A sink without one ends an attempt when the
            /// dispatcher drops it.
            pub fn set_timeout(&mut self, timeout: Duration) {
                match self {
                    $(Self::$Sink(_config) => { $(_config.$timeout = timeout;)? })*
                }
            }

            /// The setting with which credentials would travel unencrypted to another machine, and what to do. None if
            /// there is none, or the settings are invalid.
            pub fn exposure(&self) -> Option<ConfigError> {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$Sink(config) => crate::$module::exposure(config),
                        $(
                            #[cfg(not(feature = $feature))]
                            Self::$Sink(_) => None,
                        )?
                    )*
                }
            }

            fn sink(&self, name: &str, form: &Form) -> Result<Arc<dyn Sink>, BuildError> {
                let built: Result<Arc<dyn Sink>, ConfigError> = match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$Sink(config) => crate::$module::$Sink::with_form(name, config, form).map(arc),
                        $(
                            #[cfg(not(feature = $feature))]
                            Self::$Sink(_) => {
                                let destination = name.to_owned();
                                return Err(BuildError::NotBuilt { destination, sink: $name });
                            }
                        )?
                    )*
                };
                built.map_err(|error| invalid(name, error))
            }
        }
    };
}

// One row per sink: the name in `type`, its cargo feature if it has one, the sink (`Config` stands beside it), its default
// concurrency, and the key of `Config` that takes the dispatcher's timeout, if it has one.
//
// The throughput of a broker is its concurrency divided by the round trip, because confirmations are pipelined. A webhook
// is a request that the receiver must work on.
sinks! {
    "rabbitmq" if feature "rabbitmq" => rabbitmq::RabbitMq, 1024;
    "kafka" if feature "kafka" => kafka::Kafka, 4096, timeout;
    "nats" if feature "nats" => nats::Nats, 1024;
    "redis" if feature "redis" => redis::Redis, 1024;
    "webhook" if feature "webhook" => webhook::Webhook, 16, timeout;
    "log" => log::Log, 64;
}

impl SinkConfig {
    /// The key by which every event chooses where it goes without a bound, if there is one. It deserves a warning.
    ///
    /// Queues are bound to an exchange of RabbitMQ, and a stream of NATS has subjects: there the receiver chooses.
    pub fn unbounded(&self) -> Option<&'static str> {
        let (key, template, allow) = match self {
            Self::Kafka(config) => ("topic", &config.topic, &config.allow),
            Self::Redis(config) => ("stream", &config.stream, &config.allow),
            Self::Nats(config) if config.stream.is_none() => ("subject", &config.subject, &config.allow),
            Self::Nats(_) | Self::RabbitMq(_) | Self::Webhook(_) | Self::Log(_) => return None,
        };
        let begins_with_field = !template.is_constant() && template.literal_start().is_empty();
        (begins_with_field && allow.is_empty()).then_some(key)
    }
}

/// A sink that a configuration can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkKind {
    /// The name in `type`, which is also its cargo feature.
    pub name: &'static str,
    /// Was this program built with it?
    pub is_built_in: bool,
    /// The keys that it needs, with values for a local server. The first key has the address, if it has one.
    pub minimal: &'static str,
}

impl SinkConfig {
    /// Builds the sink of the destination `name`, with messages in the format of `message`. It reads secrets and
    /// certificates and opens no connection, so a daemon starts while a broker is down. [`Sink::check`] probes the
    /// connection.
    ///
    /// # Errors
    /// When a setting is invalid, or the program was built without the sink.
    pub async fn build(&self, name: &str, message: &message::Config) -> Result<Arc<dyn Sink>, BuildError> {
        self.build_upcasting(name, message, &Upcasts::default()).await
    }

    /// [`build`](Self::build), with old payloads upcast before they are sent.
    ///
    /// # Errors
    /// As for [`build`](Self::build), and when payloads are upcast and sent compressed.
    pub async fn build_upcasting(
        &self,
        name: &str,
        message: &message::Config,
        upcasts: &Upcasts,
    ) -> Result<Arc<dyn Sink>, BuildError> {
        if message.compressed && !upcasts.is_empty() {
            let problem = "excludes `upcast`, which has to read the payloads; remove one of them";
            return Err(invalid(name, ConfigError::at("compressed", problem)));
        }
        let form = message.form().map_err(|error| invalid(name, error))?;
        let sink = self.sink(name, &form)?;
        Ok(match message.recoder() {
            Some(recoder) => arc(Recoding::with(sink, recoder.upcasting(upcasts.clone()))),
            None => sink,
        })
    }
}

fn arc(sink: impl Sink) -> Arc<dyn Sink> {
    Arc::new(sink)
}

fn invalid(destination: &str, error: ConfigError) -> BuildError {
    BuildError::Config {
        destination: destination.to_owned(),
        error,
    }
}

/// Reads a secret that the sink needs.
pub(crate) fn reveal(key: &'static str, secret: &Secret) -> Result<String, ConfigError> {
    secret
        .reveal()
        .map_err(|error| ConfigError::at(key, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SinkConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    /// The shortest configuration of each sink.
    fn minimal() -> impl Iterator<Item = String> {
        SINKS
            .iter()
            .map(|sink| format!("type = \"{}\"\n{}", sink.name, sink.minimal))
    }

    #[test]
    fn an_event_that_chooses_where_it_goes_without_a_bound_is_known() {
        for (keys, key) in [
            ("type = \"kafka\"\nbrokers = \"a:1\"", Some("topic")),
            (
                "type = \"kafka\"\nbrokers = \"a:1\"\ntopic = \"{namespace}.x\"",
                Some("topic"),
            ),
            (
                "type = \"kafka\"\nbrokers = \"a:1\"\ntopic = \"x.{namespace}\"",
                None,
            ),
            ("type = \"kafka\"\nbrokers = \"a:1\"\nallow = [\"orders\"]", None),
            ("type = \"redis\"\nurl = \"redis://a\"", Some("stream")),
            (
                "type = \"redis\"\nurl = \"redis://a\"\nstream = \"events:{topic}\"",
                None,
            ),
            ("type = \"nats\"\nurl = \"a\"", Some("subject")),
            ("type = \"nats\"\nurl = \"a\"\nstream = \"SHOP\"", None),
            (
                "type = \"rabbitmq\"\nurl = \"amqp://a\"\nexchange = \"events\"",
                None,
            ),
        ] {
            assert_eq!(parse(keys).unwrap().unbounded(), key, "{keys}");
        }
    }

    #[cfg(feature = "rabbitmq")]
    #[tokio::test]
    async fn events_cannot_choose_a_queue_that_is_not_listed() {
        let keys = "type = \"rabbitmq\"\nurl = \"amqp://a\"\nexchange = \"\"";
        for (more, is_built) in [
            ("", false),
            ("\nallow = [\"mail.*\"]", true),
            ("\nrouting_key = \"mail\"", true),
        ] {
            let config = parse(&format!("{keys}{more}")).unwrap();
            let built = config.build("queue", &message::Config::default()).await;
            assert_eq!(built.is_ok(), is_built, "{more}");
        }
    }

    #[test]
    fn an_unknown_type_names_the_known_ones() {
        let error = parse("type = \"carrier-pigeon\"").unwrap_err();
        assert!(error.contains("rabbitmq") && error.contains("webhook"), "{error}");
    }

    #[test]
    fn no_sample_lets_an_event_choose_where_it_goes_without_a_bound() {
        for text in minimal() {
            assert_eq!(parse(&text).unwrap().unbounded(), None, "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        for text in minimal() {
            let error = parse(&format!("{text}\ncolour = \"red\"")).unwrap_err();
            assert!(error.contains("unknown field `colour`"), "{error}");
        }
    }

    #[test]
    fn the_dispatchers_timeout_reaches_the_sinks_that_have_one() {
        for text in minimal() {
            let mut config = parse(&text).unwrap();
            config.set_timeout(Duration::from_secs(7));
            match &config {
                SinkConfig::Kafka(kafka) => assert_eq!(kafka.timeout, Duration::from_secs(7)),
                SinkConfig::Webhook(webhook) => assert_eq!(webhook.timeout, Duration::from_secs(7)),
                other => assert_eq!(*other, parse(&text).unwrap()),
            }
        }
    }

    #[test]
    fn what_is_read_can_be_shown_without_its_secrets() {
        let config = parse(
            "type = \"rabbitmq\"\nhost = \"mq\"\nuser = \"shop\"\npassword = \"hunter2\"\nexchange = \"e\"",
        )
        .unwrap();
        let shown = toml::to_string(&config).unwrap();
        assert!(
            shown.contains("password = \"***\"") && shown.contains("type = \"rabbitmq\""),
            "{shown}"
        );
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[tokio::test]
    async fn a_wrong_value_names_the_destination_and_the_key() {
        let config = parse("type = \"webhook\"\nurl = { env = \"PILLARBOX_NO_SUCH_VARIABLE\" }").unwrap();
        if cfg!(feature = "webhook") {
            let error = config
                .build("partner", &message::Config::default())
                .await
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.starts_with("destination `partner`: `url` comes from"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn every_sink_is_built_in_or_the_error_names_the_feature() {
        for (text, kind) in minimal().zip(SINKS) {
            let config = parse(&text).unwrap();
            assert_eq!(config.kind(), kind.name);
            match config.build("partner", &message::Config::default()).await {
                Ok(_) => assert!(kind.is_built_in, "{}", kind.name),
                Err(BuildError::Config { error, .. }) => panic!("{}: {error}", kind.name),
                Err(error @ BuildError::NotBuilt { .. }) => {
                    let error = error.to_string();
                    assert!(!kind.is_built_in, "{error}");
                    let advice = format!("--features pillarbox-sinks/{}", kind.name);
                    assert!(
                        error.starts_with("destination `partner`: ") && error.contains(&advice),
                        "{error}"
                    );
                }
            }
        }
        let is_built_in = |name| SINKS.iter().any(|kind| kind.name == name && kind.is_built_in);
        assert!(is_built_in("log"));
        assert_eq!(is_built_in("kafka"), cfg!(feature = "kafka"));
    }
}
