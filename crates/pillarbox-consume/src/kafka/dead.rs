//! A record that is given up on: sent to the topic for dead letters, with its key, and reported as delivered.
//!
//! **If we die here** the letter may be there and the record comes again: it may be there twice, never not at all.

use std::time::Duration;

use pillarbox_sinks::kafka::refused;
use pillarbox_sinks::registry::ConfigError;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

use super::client::Quiet;
use super::config::Config;
use super::read::Record;
use crate::dead::{DeadLetter, is_ours};

/// How long to wait for room in the client's queue.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where dead letters are sent.
pub(super) struct Graves {
    producer: FutureProducer<Quiet>,
    topic: String,
}

impl Graves {
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let producer = config.sending()?.create_with_context(Quiet);
        Ok(Self {
            producer: producer.map_err(|error| refused(&error))?,
            topic: config.dead_topic.clone(),
        })
    }

    /// Sends a copy.
    pub(super) async fn bury(&self, record: &Record, letter: &DeadLetter) -> Result<(), String> {
        let mut copy: FutureRecord<'_, [u8], [u8]> =
            FutureRecord::to(&self.topic).headers(headers(record.headers.as_ref(), letter));
        copy.key = record.key.as_deref();
        copy.payload = record.body.as_deref();
        match self.producer.send(copy, PATIENCE).await {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(format!("the topic `{}` did not take it: {error}", self.topic)),
        }
    }
}

/// Creates the topic for dead letters, if it is not there: one partition, copied as often as the brokers' default says.
/// Without the right to do so, somebody else has to.
pub(super) async fn declare(config: &Config) -> Result<(), String> {
    let client = config.sending().map_err(|error| error.to_string())?;
    let admin: AdminClient<Quiet> = client
        .create_with_context(Quiet)
        .map_err(|error| refused(&error).to_string())?;
    let topic = NewTopic::new(&config.dead_topic, 1, TopicReplication::Fixed(-1));
    let made = admin.create_topics([&topic], &AdminOptions::new()).await;
    match made.map_err(|error| error.to_string())?.pop() {
        None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((topic, error))) => Err(format!("the topic `{topic}` cannot be created: {error}")),
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
    fn a_letter_has_the_headers_of_its_record_and_the_last_reason() {
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
