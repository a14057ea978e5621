//! The sinks by name: one line per sink in each `match`.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::Sink;
use serde::{Deserialize, Serialize};

use crate::message::{self, Decoded};
use crate::secret::Secret;
use crate::{kafka, log, nats, rabbitmq, redis, webhook};

/// What a `[[destination]]` says of its sink. `type` chooses; an unknown key is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SinkConfig {
    /// RabbitMQ.
    RabbitMq(rabbitmq::Config),
    /// Kafka.
    Kafka(kafka::Config),
    /// NATS JetStream.
    Nats(nats::Config),
    /// Redis streams.
    Redis(redis::Config),
    /// HTTP POST.
    Webhook(webhook::Config),
    /// One line per event on standard output.
    Log(log::Config),
}

/// A value in a sink's configuration that cannot be true.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {problem}")]
pub struct ConfigError {
    /// Which key.
    pub key: &'static str,
    /// What is wrong with it and what to do.
    pub problem: String,
}

impl ConfigError {
    /// Something is wrong at this key.
    pub fn at(key: &'static str, problem: impl Into<String>) -> Self {
        Self {
            key,
            problem: problem.into(),
        }
    }
}

/// Why a destination has no sink.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The program was built without it.
    #[error(
        "destination `{destination}`: this pillarbox was built without the {sink} sink; \
         build one with `cargo build --release --features {sink}`"
    )]
    NotBuilt {
        /// Whose sink it is.
        destination: String,
        /// Which sink, which is also the name of the feature.
        sink: &'static str,
    },
    /// Its configuration cannot be true.
    #[error("destination `{destination}`: {error}")]
    Config {
        /// Whose configuration it is.
        destination: String,
        /// What is wrong.
        error: ConfigError,
    },
}

impl SinkConfig {
    /// What `type` says.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RabbitMq(_) => "rabbitmq",
            Self::Kafka(_) => "kafka",
            Self::Nats(_) => "nats",
            Self::Redis(_) => "redis",
            Self::Webhook(_) => "webhook",
            Self::Log(_) => "log",
        }
    }

    /// How many events may be on their way at once, if nobody says.
    pub fn default_concurrency(&self) -> usize {
        match self {
            // Confirms are pipelined: what limits a broker is the round trip divided by this.
            Self::RabbitMq(_) | Self::Nats(_) | Self::Redis(_) => 1024,
            Self::Kafka(_) => 4096,
            // Each one is a request that a receiver must work on.
            Self::Webhook(_) => 16,
            Self::Log(_) => 64,
        }
    }

    /// Makes the sink give up on an attempt when the dispatcher would, instead of after its own
    /// default. Sinks whose attempts just end when they are dropped have nothing to change.
    pub fn set_timeout(&mut self, timeout: Duration) {
        match self {
            Self::Kafka(config) => config.timeout = timeout,
            Self::Webhook(config) => config.timeout = timeout,
            Self::RabbitMq(_) | Self::Nats(_) | Self::Redis(_) | Self::Log(_) => {}
        }
    }

    /// Makes the sink of the destination `name`, whose messages look as `message` says. Reads secrets and certificates;
    /// connects to nothing, so that a place which is away does not keep a daemon from starting. [`Sink::check`] says
    /// whether it is there.
    ///
    /// # Errors
    /// When the configuration cannot be true, or the program was built without the sink.
    pub async fn build(&self, name: &str, message: &message::Config) -> Result<Arc<dyn Sink>, BuildError> {
        let refused = |error| BuildError::Config {
            destination: name.to_owned(),
            error,
        };
        #[cfg_attr(
            not(any(
                feature = "rabbitmq",
                feature = "kafka",
                feature = "nats",
                feature = "redis",
                feature = "webhook"
            )),
            allow(unused_variables, reason = "the log has a form of its own")
        )]
        let form = &message.form().map_err(refused)?;
        let sink: Result<Arc<dyn Sink>, ConfigError> = match self {
            #[cfg(feature = "rabbitmq")]
            Self::RabbitMq(config) => rabbitmq::RabbitMq::with_form(name, config, form).map(arc),
            #[cfg(feature = "kafka")]
            Self::Kafka(config) => kafka::Kafka::with_form(name, config, form).map(arc),
            #[cfg(feature = "nats")]
            Self::Nats(config) => nats::Nats::with_form(name, config, form).map(arc),
            #[cfg(feature = "redis")]
            Self::Redis(config) => redis::Redis::with_form(name, config, form).map(arc),
            #[cfg(feature = "webhook")]
            Self::Webhook(config) => webhook::Webhook::with_form(name, config, form).map(arc),
            Self::Log(config) => log::Log::new(config).with_message(name, message).map(arc),
            #[cfg(not(all(
                feature = "rabbitmq",
                feature = "kafka",
                feature = "nats",
                feature = "redis",
                feature = "webhook"
            )))]
            other => {
                return Err(BuildError::NotBuilt {
                    destination: name.to_owned(),
                    sink: other.kind(),
                });
            }
        };
        let sink = sink.map_err(refused)?;
        Ok(match message.decoder() {
            Some(decoder) => arc(Decoded::with(sink, decoder)),
            None => sink,
        })
    }
}

fn arc(sink: impl Sink) -> Arc<dyn Sink> {
    Arc::new(sink)
}

/// Reads a secret that the sink cannot do without.
#[cfg_attr(
    not(any(
        feature = "rabbitmq",
        feature = "kafka",
        feature = "nats",
        feature = "redis",
        feature = "webhook"
    )),
    allow(dead_code, reason = "only sinks with a client of their own have secrets")
)]
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

    #[test]
    fn the_type_chooses_the_sink() {
        for (text, kind) in [
            ("type = \"log\"", "log"),
            ("type = \"webhook\"\nurl = \"https://example.com/\"", "webhook"),
            ("type = \"kafka\"\nbrokers = \"127.0.0.1:9092\"", "kafka"),
            ("type = \"nats\"\nurl = \"nats://127.0.0.1\"", "nats"),
            ("type = \"redis\"\nurl = \"redis://127.0.0.1\"", "redis"),
            (
                "type = \"rabbitmq\"\nurl = \"amqp://127.0.0.1\"\nexchange = \"e\"",
                "rabbitmq",
            ),
        ] {
            assert_eq!(parse(text).unwrap().kind(), kind);
        }
    }

    #[test]
    fn an_unknown_type_names_the_known_ones() {
        let error = parse("type = \"carrier-pigeon\"").unwrap_err();
        assert!(error.contains("rabbitmq") && error.contains("webhook"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_refused() {
        for text in [
            "type = \"log\"\ncolour = \"red\"",
            "type = \"webhook\"\nurl = \"https://example.com/\"\ncolour = \"red\"",
            "type = \"kafka\"\nbrokers = \"127.0.0.1:9092\"\ncolour = \"red\"",
            "type = \"nats\"\nurl = \"nats://127.0.0.1\"\ncolour = \"red\"",
            "type = \"redis\"\nurl = \"redis://127.0.0.1\"\ncolour = \"red\"",
            "type = \"rabbitmq\"\nexchange = \"e\"\ncolour = \"red\"",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("unknown field `colour`"), "{error}");
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
                error.starts_with("destination `partner`: `url` is to come from"),
                "{error}"
            );
        }
    }

    #[cfg(not(feature = "kafka"))]
    #[tokio::test]
    async fn a_build_without_kafka_says_how_to_build_it() {
        let config = parse("type = \"kafka\"\nbrokers = \"127.0.0.1:9092\"").unwrap();
        let error = config
            .build("stream", &message::Config::default())
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("`cargo build --release --features kafka`"),
            "{error}"
        );
    }
}
