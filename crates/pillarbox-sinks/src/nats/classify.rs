//! The outcome of an answer of the stream, or of its absence.

use std::error::Error as _;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{ConnectError, ConnectErrorKind, ServerAddr};
use pillarbox::Outcome;

use super::auth::Identity;

/// The outcome of an error while the message is queued: nothing was sent.
pub(super) fn not_queued(error: &PublishError) -> Outcome {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => Outcome::reject(format!(
            "the message with its headers is too large for the server: {error} \
             (raise its `max_payload`, or send a reference to the data)"
        )),
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::Other => {
            Outcome::unavailable(format!("the message could not be queued: {error}"))
        }
    }
}

/// The outcome of an answer to a message on this subject that is not an acknowledgement.
pub(super) fn failure(error: &PublishError, subject: &str) -> Outcome {
    match error.kind() {
        PublishErrorKind::StreamNotFound => Outcome::retry(format!(
            "no stream has the subject `{subject}` (create one that does, or set `create_stream`)"
        )),
        PublishErrorKind::BrokenPipe => lost(),
        PublishErrorKind::MaxPayloadExceeded => not_queued(error),
        PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::TimedOut
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::Other => match error.source().and_then(|source| source.downcast_ref()) {
            Some(refusal) => refused(refusal),
            None => Outcome::retry(format!(
                "the answer is not an acknowledgement of a stream: {error}"
            )),
        },
    }
}

/// The outcome of a JetStream error. Numbers and texts: `server/errors.json` of nats-server.
fn refused(error: &jetstream::Error) -> Outcome {
    match error.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            Outcome::reject(format!("the stream rejected the message: {error}"))
        }
        ErrorCode::STREAM_NOT_MATCH => Outcome::retry(format!(
            "the subject belongs to another stream than `stream`: {error}"
        )),
        ErrorCode::STREAM_TOO_MANY_REQUESTS => Outcome::Throttled {
            reason: format!("the stream has too many requests: {error}"),
            after: Some(Duration::from_secs(5)),
        },
        // The server cannot store any message, so nothing was stored, and every event would get the same answer.
        ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::JETSTREAM_NOT_ENABLED
        | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            Outcome::unavailable(format!("JetStream is unavailable: {error}"))
        }
        // Among them a full or sealed stream, which the operator or its consumers correct.
        _ => Outcome::retry(format!("the stream did not accept the message: {error}")),
    }
}

/// The message may have arrived.
pub(super) fn lost() -> Outcome {
    Outcome::connection_lost("the connection was lost before the confirmation")
}

/// Why the connection failed, without password or token.
pub(super) fn not_connected(error: &ConnectError, server: &ServerAddr, identity: &Identity) -> String {
    let address = format!("{}:{}", server.host(), server.port());
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            format!(
                "NATS at {address} refused {}: authorization violation",
                identity.describe()
            )
        }
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => format!("NATS at {address} cannot be reached: {error}"),
    }
}

/// A denial: the user may not use a subject. The server sends it to the connection, without naming a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denied {
    /// The subject of the denied publish. `None` if subscribing to answers was denied.
    subject: Option<String>,
}

impl Denied {
    /// From an error of the server: `Permissions Violation for Publish to "orders"`.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (_, what) = text.split_once("Permissions Violation for ")?;
        let subject = what.strip_prefix("Publish to \"");
        let subject = subject.map(|rest| rest.split('"').next().unwrap_or(rest).to_owned());
        let answers = what.starts_with("Subscription to \"_INBOX.");
        (subject.is_some() || answers).then_some(Self { subject })
    }

    /// Does it concern a message on this subject?
    pub(super) fn concerns(&self, subject: &str) -> bool {
        self.subject.as_deref().is_none_or(|denied| denied == subject)
    }

    /// What to do about it.
    pub(super) fn advice(&self) -> String {
        match &self.subject {
            Some(subject) => format!("the user may not publish to `{subject}`; grant it"),
            None => "the user may not hear the answers; grant it to subscribe to `_INBOX.>`".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u64) -> Outcome {
        let text = format!("{{\"code\": 400, \"err_code\": {code}, \"description\": \"no\"}}");
        let error: jetstream::Error = serde_json::from_str(&text).unwrap();
        failure(
            &PublishError::with_source(PublishErrorKind::Other, error),
            "orders",
        )
    }

    #[test]
    fn a_subject_without_a_stream_says_what_to_do() {
        let outcome = failure(&PublishErrorKind::StreamNotFound.into(), "orders");
        let Outcome::Retry { reason, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            reason.contains("`orders`") && reason.contains("create one"),
            "{reason}"
        );
    }

    #[test]
    fn what_a_stream_can_never_take_is_rejected() {
        for code in [10054, 10097] {
            assert_eq!(refusal(code).name(), "reject", "{code}");
        }
        assert_eq!(
            not_queued(&PublishErrorKind::MaxPayloadExceeded.into()).name(),
            "reject"
        );
    }

    #[test]
    fn what_an_operator_can_correct_is_retried() {
        for code in [10060, 10077, 10109, 10118, 1] {
            assert_eq!(refusal(code).name(), "retry", "{code}");
        }
        assert_eq!(failure(&PublishErrorKind::Other.into(), "orders").name(), "retry");
        assert_eq!(
            failure(&PublishErrorKind::TimedOut.into(), "orders").name(),
            "retry"
        );
    }

    #[test]
    fn a_server_that_can_store_nothing_is_unavailable() {
        for code in [10002, 10008, 10009, 10023, 10028, 10039, 10047, 10076] {
            assert_eq!(refusal(code).name(), "unavailable", "{code}");
        }
        assert_eq!(refusal(10167).name(), "throttled");
    }

    #[test]
    fn a_lost_connection_is_uncertain_only_after_the_message_was_handed_over() {
        assert_eq!(
            failure(&PublishErrorKind::BrokenPipe.into(), "a").name(),
            "connection_lost"
        );
        assert_eq!(not_queued(&PublishErrorKind::Other.into()).name(), "unavailable");
    }

    #[test]
    fn a_denial_concerns_its_subject_or_every_message_in_flight() {
        let publish = Denied::from_text("Permissions Violation for Publish to \"orders.eu\"").unwrap();
        assert!(publish.concerns("orders.eu") && !publish.concerns("orders"));
        assert!(publish.advice().contains("`orders.eu`"), "{}", publish.advice());
        let answers = Denied::from_text("Permissions Violation for Subscription to \"_INBOX.x.*\"").unwrap();
        assert!(answers.concerns("orders"));
        assert_eq!(Denied::from_text("Slow Consumer Detected"), None);
    }
}
