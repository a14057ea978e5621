//! Publishes dead letters to their topic, with the record's key, and waits for the delivery report.
//!
//! **If we die here** the dead letter may be published and Kafka delivers the record again. It may exist twice, and is never
//! lost.

use std::time::Duration;

use pillarbox_sinks::kafka::refused;
use pillarbox_sinks::registry::ConfigError;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

use super::client::LogContext;
use super::config::Config;
use super::read::Record;
use crate::dead_letter::{DeadLetter, is_ours};

/// How long to wait for space in the client's queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes dead letters.
pub(super) struct DeadLetters {
    producer: FutureProducer<LogContext>,
    topic: String,
}

impl DeadLetters {
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let producer = config.producer()?.create_with_context(LogContext);
        Ok(Self {
            producer: producer.map_err(|error| refused(&error))?,
            topic: config.dead_topic.clone(),
        })
    }

    /// Publishes a copy.
    pub(super) async fn publish(&self, record: &Record, letter: &DeadLetter) -> Result<(), String> {
        let mut copy: FutureRecord<'_, [u8], [u8]> =
            FutureRecord::to(&self.topic).headers(headers(record.headers.as_ref(), letter));
        copy.key = record.key.as_deref();
        copy.payload = record.body.as_deref();
        match self.producer.send(copy, QUEUE_TIMEOUT).await {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(format!("topic `{}`: {error}", self.topic)),
        }
    }
}

/// Creates the dead letter topic if it does not exist: one partition, with the brokers' default replication. Without the
/// permission for it, an operator has to create the topic.
pub(super) async fn declare(config: &Config) -> Result<(), String> {
    let client = config.producer().map_err(|error| error.to_string())?;
    let admin: AdminClient<LogContext> = client
        .create_with_context(LogContext)
        .map_err(|error| refused(&error).to_string())?;
    let topic = NewTopic::new(&config.dead_topic, 1, TopicReplication::Fixed(-1));
    let created = admin.create_topics([&topic], &AdminOptions::new()).await;
    match created.map_err(|error| error.to_string())?.pop() {
        None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((topic, error))) => Err(format!("topic `{topic}` cannot be created: {error}")),
    }
}

fn headers(before: Option<&OwnedHeaders>, letter: &DeadLetter) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new();
    for header in before.into_iter().flat_map(Headers::iter) {
        if !is_ours(header.key) {
            headers = headers.insert(header);
        }
    }
    for (key, value) in &letter.headers() {
        headers = headers.insert(Header {
            key,
            value: Some(value),
        });
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_dead_letter_has_the_headers_of_its_record_and_the_last_reason() {
        let letter = DeadLetter {
            reason: "no such order".to_owned(),
            consumer: "letters".to_owned(),
            attempts: 3,
            at: datetime!(2026-01-02 03:04:05 UTC),
        };
        let before = ["x-own", "pillarbox-dead-reason"];
        let before = before.into_iter().fold(OwnedHeaders::new(), |headers, key| {
            headers.insert(Header {
                key,
                value: Some("before"),
            })
        });
        let headers = headers(Some(&before), &letter);
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        let all: Vec<(&str, String)> = headers
            .iter()
            .map(|header| (header.key, text(header.value)))
            .collect();
        assert_eq!(all[0], ("x-own", "before".to_owned()));
        assert_eq!(all[1], ("pillarbox-dead-reason", "no such order".to_owned()));
        assert_eq!(all.len(), 5);
    }
}
