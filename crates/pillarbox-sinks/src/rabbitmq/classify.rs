//! The outcome of an answer of the broker, or of its absence.

use std::collections::HashMap;
use std::time::Duration;

use lapin::message::BasicReturnMessage;
use lapin::{Confirmation, Error, ErrorKind};
use pillarbox::Outcome;
use uuid::Uuid;

use super::settings::Settings;

/// CONTENT_TOO_LARGE, ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, NOT_ALLOWED: see the AMQP 0-9-1
/// specification, 1.2.
const CONTENT_TOO_LARGE: u16 = 311;
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// A published message, and its result.
pub(super) struct Published {
    /// The `message_id`.
    pub(super) id: Uuid,
    /// The size of its body.
    pub(super) len: usize,
    /// The result; none while the message waits. A confirmation may carry a returned message, which may be another one.
    pub(super) result: Option<Result<Confirmation, Error>>,
}

/// The outcome of a result that tells about no other message.
pub(super) fn plain(result: &Result<Confirmation, Error>) -> Option<Outcome> {
    match result {
        Ok(Confirmation::Ack(None)) => Some(Outcome::Delivered),
        Ok(Confirmation::Nack(None)) => Some(nack()),
        Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) | Confirmation::NotRequested)
        | Err(_) => None,
    }
}

fn nack() -> Outcome {
    Outcome::retry("the broker did not accept the message (nack)")
}

/// The outcomes of a cohort that are known, in the order of its messages.
///
/// A returned message is found by its `message_id`. The broker returns a message before it confirms it, and the client
/// attaches the return to the next confirmation. A confirmation without a return shows that none is left.
pub(super) fn cohort(published: &[&Published]) -> Vec<Option<Outcome>> {
    let alone = published.len() == 1;
    let returned: HashMap<Uuid, &BasicReturnMessage> = published
        .iter()
        .filter_map(|message| carried(message.result.as_ref()?))
        .map(|returned| (message_id(returned), returned))
        .collect();
    let by_id: HashMap<Uuid, &Published> = published.iter().map(|it| (it.id, *it)).collect();
    let outcome = |message: &&Published| match (returned.get(&message.id), &message.result) {
        (Some(returned), _) => Some(Outcome::retry(unroutable(returned))),
        (None, None) => None,
        (None, Some(Err(error))) => Some(lost(error, message.len, alone)),
        (None, Some(Ok(Confirmation::Ack(None)))) => Some(Outcome::Delivered),
        (None, Some(Ok(Confirmation::Ack(Some(other))))) => match last_return(other, &by_id) {
            LastReturn::Known => Some(Outcome::Delivered),
            LastReturn::Waits => None,
            LastReturn::Lost => Some(Outcome::connection_lost(
                "the channel was closed before it was known whether the message is routable",
            )),
        },
        (None, Some(Ok(Confirmation::Nack(_)))) => Some(nack()),
        (None, Some(Ok(Confirmation::NotRequested))) => {
            Some(Outcome::connection_lost("the channel lost its confirm mode"))
        }
    };
    published.iter().map(outcome).collect()
}

/// Is every return known that came before a confirmation?
enum LastReturn {
    Known,
    Waits,
    Lost,
}

/// Follows the return of another message that a confirmation carries. Had that message been confirmed before, its own
/// confirmation would have taken the return. So it was confirmed after. If its confirmation carries no return, none was
/// left by then; otherwise the next one is followed.
fn last_return(first: &BasicReturnMessage, by_id: &HashMap<Uuid, &Published>) -> LastReturn {
    let mut returned = first;
    for _ in 0..by_id.len() {
        let Some(message) = by_id.get(&message_id(returned)) else {
            return LastReturn::Lost; // of none of ours
        };
        match &message.result {
            None => return LastReturn::Waits,
            Some(Err(_) | Ok(Confirmation::NotRequested)) => return LastReturn::Lost,
            Some(result @ Ok(Confirmation::Ack(_) | Confirmation::Nack(_))) => match carried(result) {
                Some(next) => returned = next,
                None => return LastReturn::Known,
            },
        }
    }
    LastReturn::Lost // one event twice in the cohort
}

fn carried(result: &Result<Confirmation, Error>) -> Option<&BasicReturnMessage> {
    match result {
        Ok(Confirmation::Ack(returned) | Confirmation::Nack(returned)) => returned.as_ref(),
        Ok(Confirmation::NotRequested) | Err(_) => None,
    }
}

/// The id of a message; nil if it is none of ours.
fn message_id(returned: &BasicReturnMessage) -> Uuid {
    let id = returned.delivery.properties.message_id().as_ref();
    id.and_then(|id| id.as_str().parse().ok()).unwrap_or_default()
}

fn unroutable(returned: &BasicReturnMessage) -> String {
    format!(
        "returned as unroutable: {} (exchange `{}`, routing key `{}`); bind a queue to it",
        returned.reply_text, returned.delivery.exchange, returned.delivery.routing_key
    )
}

/// The outcome of an error before the confirmation. The broker closes a channel because of one message on it. Only if
/// the message was alone, it is known which.
fn lost(error: &Error, len: usize, alone: bool) -> Outcome {
    let ErrorKind::ProtocolError(refusal) = error.kind() else {
        return Outcome::connection_lost(format!(
            "the connection was lost before the confirmation: {error}"
        ));
    };
    let text = refusal.get_message().as_str();
    match refusal.get_id() {
        CONTENT_TOO_LARGE if alone => Outcome::reject(format!("the broker refused the message: {text}")),
        // The broker names the limit, so the message is known even among others.
        PRECONDITION_FAILED if size_limit(text).is_some_and(|limit| len > limit) => {
            Outcome::reject(format!("the broker refused the message: {text}"))
        }
        _ if alone && error.is_amqp_soft_error() => {
            Outcome::retry(format!("the broker refused the message: {text}"))
        }
        _ if error.is_amqp_soft_error() => {
            Outcome::connection_lost(format!("the broker closed the channel: {text}"))
        }
        _ => Outcome::connection_lost(format!("the broker closed the connection: {text}")),
    }
}

/// "… message size 20971521 is larger than configured max size 20971520".
fn size_limit(text: &str) -> Option<usize> {
    let (_, rest) = text.rsplit_once("max size ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

/// A broker that is short of memory or disk stops reading.
pub(super) fn blocked() -> Outcome {
    Outcome::Throttled {
        reason: "RabbitMQ blocks publishers (check its memory and disk alarms)".to_owned(),
        after: Some(Duration::from_secs(5)),
    }
}

/// Why the connection failed, without the password.
pub(super) fn not_connected(error: &Error, settings: &Settings) -> String {
    let authority = &settings.uri.authority;
    let address = format!("{}:{}", authority.host, authority.port);
    let user = &authority.userinfo.username;
    match code(error) {
        Some(ACCESS_REFUSED) => {
            format!(
                "RabbitMQ at {address} refused the user `{user}` or its password: {}",
                words(error)
            )
        }
        Some(NOT_ALLOWED) => format!(
            "RabbitMQ at {address} does not let the user `{user}` into the virtual host `{}`: {}",
            settings.uri.vhost,
            words(error)
        ),
        _ => format!("RabbitMQ at {address} cannot be reached: {}", words(error)),
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
    use lapin::BasicProperties;
    use lapin::message::Delivery;
    use lapin::protocol::AMQPError;

    fn refusal(code: u16, text: &str) -> Error {
        ErrorKind::ProtocolError(AMQPError::from_id(code, text.into()).unwrap()).into()
    }

    /// The id of the message with this name.
    fn id(name: &str) -> Uuid {
        Uuid::from_u128(name.bytes().map(u128::from).sum())
    }

    fn returned(name: &str) -> Option<BasicReturnMessage> {
        let mut delivery = Delivery::mock(0, "events".into(), "orders".into(), false, Vec::new());
        delivery.properties = BasicProperties::default().with_message_id(id(name).to_string().into());
        Some(BasicReturnMessage {
            delivery,
            reply_code: 312,
            reply_text: "NO_ROUTE".into(),
        })
    }

    fn names(results: Vec<(&str, Result<Confirmation, Error>)>) -> Vec<&'static str> {
        let some = results.into_iter().map(|(name, result)| (name, Some(result)));
        known(some.collect())
    }

    fn known(results: Vec<(&str, Option<Result<Confirmation, Error>>)>) -> Vec<&'static str> {
        let published: Vec<Published> = results
            .into_iter()
            .map(|(name, result)| Published {
                id: id(name),
                len: 10,
                result,
            })
            .collect();
        let outcomes = cohort(&published.iter().collect::<Vec<_>>()).into_iter();
        outcomes
            .map(|outcome| outcome.map_or("unknown", |outcome| outcome.name()))
            .collect()
    }

    #[test]
    fn only_an_ack_is_delivered() {
        assert_eq!(names(vec![("a", Ok(Confirmation::Ack(None)))]), ["delivered"]);
        assert_eq!(names(vec![("a", Ok(Confirmation::Nack(None)))]), ["retry"]);
        assert_eq!(
            names(vec![("a", Ok(Confirmation::NotRequested))]),
            ["connection_lost"]
        );
        assert_eq!(
            names(vec![("a", Ok(Confirmation::Ack(returned("a"))))]),
            ["retry"]
        );
    }

    #[test]
    fn a_result_that_may_tell_about_another_message_is_not_plain() {
        assert_eq!(plain(&Ok(Confirmation::Ack(None))), Some(Outcome::Delivered));
        assert_eq!(
            plain(&Ok(Confirmation::Nack(None))).map(|outcome| outcome.name()),
            Some("retry")
        );
        for result in [
            Ok(Confirmation::Ack(returned("a"))),
            Ok(Confirmation::Nack(returned("a"))),
            Ok(Confirmation::NotRequested),
            Err(refusal(NOT_FOUND, "no")),
        ] {
            assert_eq!(plain(&result), None, "{result:?}");
        }
    }

    #[test]
    fn a_returned_message_is_known_by_its_id_on_any_confirmation() {
        let results = vec![
            ("a", Ok(Confirmation::Ack(returned("c")))),
            ("b", Ok(Confirmation::Ack(None))),
            ("c", Ok(Confirmation::Ack(None))),
        ];
        assert_eq!(names(results), ["delivered", "delivered", "retry"]);
    }

    #[test]
    fn a_channel_that_ended_may_have_swallowed_a_returned_message() {
        let reset = || Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let results = vec![
            ("a", Ok(Confirmation::Ack(returned("c")))),
            ("b", Ok(Confirmation::Ack(None))),
            ("c", Err(reset())),
            ("d", Err(reset())),
        ];
        // a's own return, if there was one, may still have been on its way to c or d; b's was not.
        assert_eq!(
            names(results),
            ["connection_lost", "delivered", "retry", "connection_lost"]
        );
    }

    #[test]
    fn a_confirmed_message_does_not_wait_for_the_others() {
        let results = vec![
            ("a", Some(Ok(Confirmation::Ack(None)))),
            ("b", None),
            ("c", Some(Ok(Confirmation::Nack(None)))),
            // e was confirmed after d, and no return was left then.
            ("d", Some(Ok(Confirmation::Ack(returned("e"))))),
            ("e", Some(Ok(Confirmation::Ack(None)))),
            // f's own return, if there is one, may come with b's confirmation.
            ("f", Some(Ok(Confirmation::Ack(returned("g"))))),
            ("g", Some(Ok(Confirmation::Ack(returned("b"))))),
        ];
        assert_eq!(
            known(results),
            [
                "delivered",
                "retry",
                "retry",
                "delivered",
                "retry",
                "unknown",
                "retry"
            ]
        );
    }

    #[test]
    fn one_event_twice_in_a_cohort_is_judged_without_end() {
        let results = vec![
            ("a", Ok(Confirmation::Ack(returned("a")))),
            ("a", Ok(Confirmation::Ack(returned("a")))),
            ("b", Ok(Confirmation::Ack(returned("a")))),
        ];
        assert_eq!(names(results), ["retry", "retry", "connection_lost"]);
    }

    #[test]
    fn a_message_over_the_limit_is_rejected_in_any_company() {
        let text = "PRECONDITION_FAILED - message size 20971521 is larger than configured max size 20971520";
        for alone in [true, false] {
            let Outcome::Reject { reason } = lost(&refusal(PRECONDITION_FAILED, text), 20_971_521, alone)
            else {
                panic!("not rejected");
            };
            assert!(reason.contains("max size 20971520"), "{reason}");
        }
        // A smaller one cannot have been meant.
        assert_eq!(
            lost(&refusal(PRECONDITION_FAILED, text), 10, false).name(),
            "connection_lost"
        );
    }

    #[test]
    fn a_refusal_is_a_failed_attempt_of_the_one_that_was_alone() {
        for code in [ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED] {
            assert_eq!(lost(&refusal(code, "no"), 10, true).name(), "retry", "{code}");
            assert_eq!(
                lost(&refusal(code, "no"), 10, false).name(),
                "connection_lost",
                "{code}"
            );
        }
    }

    #[test]
    fn a_lost_connection_is_uncertain() {
        for code in [320, 501, 541] {
            assert_eq!(
                lost(&refusal(code, "bye"), 10, true).name(),
                "connection_lost",
                "{code}"
            );
        }
        assert_eq!(
            lost(&ErrorKind::MissingHeartbeatError.into(), 10, true).name(),
            "connection_lost"
        );
    }
}
