//! What the broker's answer, or its silence, means.

use std::time::Duration;

use lapin::{Confirmation, Error, ErrorKind};
use pillarbox::Outcome;

use super::settings::Settings;

/// CONTENT_TOO_LARGE, ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, NOT_ALLOWED: see the AMQP 0-9-1
/// specification, 1.2.
const CONTENT_TOO_LARGE: u16 = 311;
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// From a confirmation. `is_ack()` would be true for a returned message too.
pub(super) fn confirmation(confirmation: &Confirmation) -> Outcome {
    match confirmation {
        Confirmation::Ack(None) => Outcome::Delivered,
        Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => Outcome::retry(format!(
            "returned as unroutable: {} (exchange `{}`, routing key `{}`); bind a queue to it",
            returned.reply_text, returned.delivery.exchange, returned.delivery.routing_key
        )),
        Confirmation::Nack(None) => Outcome::retry("the broker could not take the message (nack)"),
        Confirmation::NotRequested => Outcome::cut("the channel lost its confirm mode"),
    }
}

/// From an error between the first byte and the confirmation. The message was alone on its channel, so
/// that what the broker says of the channel it says of the message.
pub(super) fn lost(error: &Error, payload: usize) -> Outcome {
    let ErrorKind::ProtocolError(refusal) = error.kind() else {
        return Outcome::cut(format!(
            "the connection was lost before the confirmation: {error}"
        ));
    };
    let text = refusal.get_message().as_str();
    match refusal.get_id() {
        CONTENT_TOO_LARGE => Outcome::reject(format!("the broker refused the message: {text}")),
        PRECONDITION_FAILED if size_limit(text).is_some_and(|limit| payload > limit) => {
            Outcome::reject(format!("the broker refused the message: {text}"))
        }
        _ if error.is_amqp_soft_error() => Outcome::retry(format!("the broker refused the message: {text}")),
        _ => Outcome::cut(format!("the broker closed the connection: {text}")),
    }
}

/// "… message size 20971521 is larger than configured max size 20971520".
fn size_limit(text: &str) -> Option<usize> {
    let (_, rest) = text.rsplit_once("max size ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

/// A broker short of memory or disk reads nothing more.
pub(super) fn blocked() -> Outcome {
    Outcome::Throttled {
        reason: "the broker blocks publishers; look at its memory and disk alarms".to_owned(),
        after: Some(Duration::from_secs(5)),
    }
}

/// Why there is no connection. Never shows the password.
pub(super) fn not_connected(error: &Error, settings: &Settings) -> String {
    let authority = &settings.uri.authority;
    let place = format!("{}:{}", authority.host, authority.port);
    let user = &authority.userinfo.username;
    match code(error) {
        Some(ACCESS_REFUSED) => {
            format!(
                "RabbitMQ at {place} refused the user `{user}` or its password: {}",
                words(error)
            )
        }
        Some(NOT_ALLOWED) => format!(
            "RabbitMQ at {place} does not let the user `{user}` into the virtual host `{}`: {}",
            settings.uri.vhost,
            words(error)
        ),
        _ => format!("RabbitMQ at {place} cannot be reached: {}", words(error)),
    }
}

/// Why the exchange cannot be used.
pub(super) fn no_exchange(error: &Error, settings: &Settings) -> String {
    let exchange = &settings.exchange;
    let advice = match code(error) {
        Some(PRECONDITION_FAILED) => {
            "it exists with other settings: give the destination its `kind`, or `declare = false`"
        }
        Some(ACCESS_REFUSED) => {
            "the user may not declare it: grant `configure` on it, or set `declare = false`"
        }
        Some(NOT_FOUND) => "declare it, or set `declare = true`",
        _ => "see the broker's log",
    };
    format!(
        "the exchange `{exchange}` cannot be used ({}); {advice}",
        words(error)
    )
}

fn code(error: &Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => Some(refusal.get_id()),
        _ => None,
    }
}

pub(super) fn words(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => refusal.get_message().to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapin::protocol::AMQPError;

    fn refusal(code: u16, text: &str) -> Error {
        ErrorKind::ProtocolError(AMQPError::from_id(code, text.into()).unwrap()).into()
    }

    #[test]
    fn only_a_plain_ack_is_delivered() {
        assert_eq!(confirmation(&Confirmation::Ack(None)), Outcome::Delivered);
        assert_eq!(confirmation(&Confirmation::Nack(None)).name(), "retry");
        assert_eq!(confirmation(&Confirmation::NotRequested).name(), "cut");
    }

    #[test]
    fn a_message_over_the_limit_is_rejected_with_the_brokers_words() {
        let text = "PRECONDITION_FAILED - message size 20971521 is larger than configured max size 20971520";
        let Outcome::Reject { reason } = lost(&refusal(PRECONDITION_FAILED, text), 20_971_521) else {
            panic!("not rejected");
        };
        assert!(reason.contains("max size 20971520"), "{reason}");
        // A smaller one cannot have been meant.
        assert_eq!(lost(&refusal(PRECONDITION_FAILED, text), 10).name(), "retry");
    }

    #[test]
    fn a_refusal_of_the_channel_is_a_failed_attempt() {
        for code in [ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED] {
            assert_eq!(lost(&refusal(code, "no"), 10).name(), "retry", "{code}");
        }
    }

    #[test]
    fn a_lost_connection_is_uncertain() {
        for code in [320, 501, 541] {
            assert_eq!(lost(&refusal(code, "bye"), 10).name(), "cut", "{code}");
        }
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(lost(&reset.into(), 10).name(), "cut");
        assert_eq!(lost(&ErrorKind::MissingHeartbeatError.into(), 10).name(), "cut");
    }
}
