//! The outcome of a delivery report, or of its absence.
//!
//! The broker answers for a batch. "Too large" and "invalid" may be answered to a batch with one bad record, or with
//! records that are too large only together. So such an answer rejects only a record that was alone. The outcome of the
//! others is unknown: they are sent again in small groups, and then alone.

use pillarbox::Outcome;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// The outcome of a record's error. `seen` is the last connection error of the client.
pub(super) fn failure(error: &KafkaError, alone: bool, seen: Option<&str>) -> Outcome {
    let Some(code) = error.rdkafka_error_code() else {
        return Outcome::retry(format!("Kafka did not accept the record: {error}"));
    };
    let because = seen.map(|seen| format!("; {seen}")).unwrap_or_default();
    match code {
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::InvalidRecord | Code::InvalidMessage
            if alone =>
        {
            Outcome::reject(format!("Kafka rejected the record: {code}"))
        }
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidMessage
        | Code::InvalidDifferentRecord => {
            Outcome::connection_lost(format!("Kafka rejected the batch: {code}"))
        }
        Code::InvalidTopic => Outcome::reject(format!("Kafka rejected the topic: {code}")),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Outcome::retry(format!("the topic does not exist: {code} (create it)"))
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Outcome::retry(format!("the user may not write to the topic: {code} (grant it)"))
        }
        // It may have been sent: librdkafka knows, the Rust binding does not say.
        Code::MessageTimedOut => Outcome::retry(format!("delivery report timed out: {code}{because}")),
        Code::PurgeQueue => Outcome::unavailable("the record was not sent before the shutdown"),
        Code::PurgeInflight => Outcome::connection_lost("no delivery report before the shutdown"),
        _ => Outcome::retry(format!("Kafka did not accept the record: {code}{because}")),
    }
}

/// The outcome of an error while the record is queued: nothing was sent.
pub(super) fn not_queued(error: &KafkaError) -> Outcome {
    match error.rdkafka_error_code() {
        // The client checked this record alone.
        Some(Code::MessageSizeTooLarge) => Outcome::reject(
            "the record is larger than `max_message_bytes` (raise it there and at the broker, or send a reference to the data)",
        ),
        _ => failure(error, true, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(code: Code, alone: bool) -> &'static str {
        failure(&KafkaError::MessageProduction(code), alone, None).name()
    }

    #[test]
    fn what_is_said_of_a_batch_is_a_refusal_only_of_the_one_that_was_alone() {
        for code in [Code::MessageSizeTooLarge, Code::InvalidRecord] {
            assert_eq!(name(code, true), "reject");
            assert_eq!(name(code, false), "connection_lost");
        }
        assert_eq!(name(Code::InvalidDifferentRecord, true), "connection_lost");
    }

    #[test]
    fn what_an_operator_can_correct_is_retried() {
        for code in [
            Code::UnknownTopic,
            Code::UnknownTopicOrPartition,
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::SaslAuthenticationFailed,
            Code::NotEnoughReplicas,
            Code::MessageTimedOut,
            Code::BrokerTransportFailure,
        ] {
            assert_eq!(name(code, false), "retry", "{code}");
        }
    }

    #[test]
    fn a_name_that_is_no_topic_is_a_refusal_in_any_company() {
        assert_eq!(name(Code::InvalidTopic, false), "reject");
    }

    #[test]
    fn what_the_client_itself_finds_too_large_is_a_refusal() {
        let error = KafkaError::MessageProduction(Code::MessageSizeTooLarge);
        assert_eq!(not_queued(&error).name(), "reject");
    }

    #[test]
    fn a_timeout_says_what_the_connections_said() {
        let error = KafkaError::MessageProduction(Code::MessageTimedOut);
        let outcome = failure(&error, false, Some("all brokers are down"));
        assert!(format!("{outcome:?}").contains("all brokers are down"));
    }
}
