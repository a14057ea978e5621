//! What a delivery report, or the lack of one, means.
//!
//! The broker answers for a batch. "Too large" and "invalid" may be said of a batch in which only one
//! record is to blame, or, for the size, none alone is. So such an answer is a refusal only for a record
//! that was alone; the others are uncertain and come again, in small groups and then alone.

use pillarbox::Outcome;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// From the error of a record. `seen` is what the client last said of its connections.
pub(super) fn failure(error: &KafkaError, alone: bool, seen: Option<&str>) -> Outcome {
    let Some(code) = error.rdkafka_error_code() else {
        return Outcome::retry(format!("Kafka did not take the record: {error}"));
    };
    let because = seen.map(|seen| format!("; {seen}")).unwrap_or_default();
    match code {
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::InvalidRecord | Code::InvalidMessage
            if alone =>
        {
            Outcome::reject(format!("Kafka refuses the record: {code}"))
        }
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidMessage
        | Code::InvalidDifferentRecord => {
            Outcome::connection_lost(format!("Kafka refused the batch: {code}"))
        }
        Code::InvalidTopic => Outcome::reject(format!("Kafka refuses the topic: {code}")),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Outcome::retry(format!("the topic does not exist ({code}); create it"))
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Outcome::retry(format!("the user may not write there ({code}); grant it"))
        }
        // It may have been sent: librdkafka knows, its binding does not say.
        Code::MessageTimedOut => Outcome::retry(format!("no confirmation in time ({code}){because}")),
        Code::PurgeQueue => Outcome::unavailable("the record was not sent before the end"),
        Code::PurgeInflight => Outcome::connection_lost("the confirmation did not come before the end"),
        _ => Outcome::retry(format!("Kafka did not take the record: {code}{because}")),
    }
}

/// From the error of handing a record to the client: nothing has been sent.
pub(super) fn not_taken(error: &KafkaError) -> Outcome {
    match error.rdkafka_error_code() {
        // The client has looked at this one record only.
        Some(Code::MessageSizeTooLarge) => Outcome::reject(
            "the record is larger than `max_message_bytes`; raise it there and at the broker, or send a reference to the data",
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
    fn what_a_person_can_mend_is_tried_again() {
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
        assert_eq!(not_taken(&error).name(), "reject");
    }

    #[test]
    fn a_timeout_says_what_the_connections_said() {
        let error = KafkaError::MessageProduction(Code::MessageTimedOut);
        let outcome = failure(&error, false, Some("all brokers are down"));
        assert!(format!("{outcome:?}").contains("all brokers are down"));
    }
}
