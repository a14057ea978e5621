//! How each protocol names and writes the attributes of a CloudEvent, in binary mode.
//!
//! | protocol | names | values |
//! |---|---|---|
//! | HTTP | `ce-` | percent-encoded |
//! | Kafka | `ce_` | UTF-8 |
//! | NATS | `ce-`, the media type as well | percent-encoded |
//! | AMQP | `cloudEvents_` | UTF-8 |
//! | Redis | `ce-` | UTF-8 |
//!
//! The specification has bindings for HTTP, Kafka, NATS and AMQP 1.0. RabbitMQ converts the headers of AMQP 0-9-1 to the
//! application properties of AMQP 1.0, so its consumers find the attributes there. Redis has no binding.

use std::borrow::Cow;

use percent_encoding::{percent_decode_str, utf8_percent_encode};

use crate::headers::{self, taken};
use crate::percent;

/// The names of the attributes in one protocol.
pub(super) struct Names {
    pub(super) specversion: &'static str,
    pub(super) id: &'static str,
    pub(super) source: &'static str,
    pub(super) kind: &'static str,
    pub(super) subject: &'static str,
    pub(super) time: &'static str,
    pub(super) datacontenttype: &'static str,
    pub(super) partitionkey: &'static str,
    pub(super) traceparent: &'static str,
    pub(super) tracestate: &'static str,
    pub(super) topic: &'static str,
    pub(super) aggregatetype: &'static str,
    pub(super) eventversion: &'static str,
    pub(super) tenantid: &'static str,
    pub(super) dedupekey: &'static str,
    pub(super) severity: &'static str,
    pub(super) contentencoding: &'static str,
}

macro_rules! names {
    ($prefix:literal) => {
        Names {
            specversion: concat!($prefix, "specversion"),
            id: concat!($prefix, "id"),
            source: concat!($prefix, "source"),
            kind: concat!($prefix, "type"),
            subject: concat!($prefix, "subject"),
            time: concat!($prefix, "time"),
            datacontenttype: concat!($prefix, "datacontenttype"),
            partitionkey: concat!($prefix, "partitionkey"),
            traceparent: concat!($prefix, "traceparent"),
            tracestate: concat!($prefix, "tracestate"),
            topic: concat!($prefix, "topic"),
            aggregatetype: concat!($prefix, "aggregatetype"),
            eventversion: concat!($prefix, "eventversion"),
            tenantid: concat!($prefix, "tenantid"),
            dedupekey: concat!($prefix, "dedupekey"),
            severity: concat!($prefix, "severity"),
            contentencoding: concat!($prefix, "contentencoding"),
        }
    };
}

/// The names as the specification has them: members of the JSON format.
pub(super) const BARE: Names = names!("");

/// One protocol.
pub(crate) struct Binding {
    pub(super) names: Names,
    /// The prefixes of attribute names that are read, with `-` for `_`.
    prefixes: &'static [&'static str],
    values: Values,
    /// Does the protocol give a header of this name a meaning of its own?
    pub(super) is_taken: fn(&str) -> bool,
    /// Is the media type an attribute too, beside the field of the protocol?
    pub(super) repeats_media_type: bool,
}

enum Values {
    Utf8,
    PercentEncoded,
}

/// HTTP.
pub(crate) const HTTP: Binding = Binding {
    names: names!("ce-"),
    prefixes: &["ce-"],
    values: Values::PercentEncoded,
    is_taken: taken::by_request_or_sender,
    repeats_media_type: false,
};

/// Kafka.
pub(crate) const KAFKA: Binding = Binding {
    names: names!("ce_"),
    prefixes: &["ce-"],
    values: Values::Utf8,
    is_taken: taken::by_payload,
    repeats_media_type: false,
};

/// NATS.
pub(crate) const NATS: Binding = Binding {
    names: names!("ce-"),
    prefixes: &["ce-"],
    values: Values::PercentEncoded,
    is_taken: taken::by_payload,
    repeats_media_type: true,
};

/// AMQP.
pub(crate) const AMQP: Binding = Binding {
    names: names!("cloudEvents_"),
    prefixes: &["cloudevents-", "cloudevents:"],
    values: Values::Utf8,
    is_taken: taken::by_nothing,
    repeats_media_type: false,
};

/// Redis.
pub(crate) const REDIS: Binding = Binding {
    names: names!("ce-"),
    prefixes: &["ce-"],
    values: Values::Utf8,
    is_taken: taken::by_entry,
    repeats_media_type: false,
};

impl Binding {
    /// The attribute that a header names, without its prefix.
    pub(super) fn bare<'a>(&self, name: &'a str) -> Option<&'a str> {
        let mut prefixes = self.prefixes.iter();
        let prefix = prefixes.find(|prefix| headers::begins_with(name, prefix))?;
        Some(&name[prefix.len()..])
    }

    /// A value as it was before it was sent. None if it is no UTF-8.
    pub(super) fn decode(&self, value: &str) -> Option<String> {
        match self.values {
            Values::Utf8 => Some(value.to_owned()),
            Values::PercentEncoded => {
                let decoded = percent_decode_str(value).decode_utf8().ok()?;
                Some(decoded.into_owned())
            }
        }
    }

    /// A value as it is sent.
    pub(super) fn encode<'a>(&self, value: Cow<'a, str>) -> Cow<'a, str> {
        match self.values {
            Values::Utf8 => value,
            Values::PercentEncoded => match value {
                Cow::Borrowed(value) => utf8_percent_encode(value, percent::HEADER).into(),
                Cow::Owned(value) => Cow::Owned(utf8_percent_encode(&value, percent::HEADER).to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        let value = "Euro € 😀";
        let encoded = "Euro%20%E2%82%AC%20%F0%9F%98%80";
        for binding in [HTTP, NATS] {
            assert_eq!(binding.encode(value.into()), encoded);
            assert_eq!(binding.encode(value.to_owned().into()), encoded);
            assert_eq!(binding.decode(encoded).as_deref(), Some(value));
            assert_eq!(binding.decode("%ff"), None);
            assert_eq!(binding.encode("100% \"safe\"".into()), "100%25%20%22safe%22");
            let printable: String = ('!'..='~').filter(|c| !matches!(c, '"' | '%')).collect();
            assert_eq!(binding.encode(printable.as_str().into()), printable);
        }
        for binding in [KAFKA, AMQP, REDIS] {
            assert_eq!(binding.encode(value.into()), value);
        }
    }

    #[test]
    fn names_that_pass_for_attributes_are_known_in_any_case() {
        for binding in [HTTP, KAFKA, NATS, REDIS] {
            assert_eq!(
                (binding.bare("CE-Id"), binding.bare("ce_id")),
                (Some("Id"), Some("id"))
            );
            assert_eq!(
                (
                    binding.bare("ce"),
                    binding.bare("cé"),
                    binding.bare("cloudEvents_id")
                ),
                (None, None, None)
            );
        }
        assert_eq!(
            (AMQP.bare("cloudEvents:id"), AMQP.bare("cloudevents_id")),
            (Some("id"), Some("id"))
        );
        for binding in [HTTP, KAFKA, NATS, REDIS, AMQP] {
            assert!(
                headers::is_reserved(binding.names.id),
                "every sink leaves out the names of all protocols"
            );
        }
    }

    #[test]
    fn names_of_attributes_are_lower_case_and_short() {
        for name in [
            BARE.eventversion,
            BARE.aggregatetype,
            BARE.contentencoding,
            BARE.partitionkey,
        ] {
            assert!(
                name.len() <= 20 && name.bytes().all(|b| b.is_ascii_lowercase()),
                "{name}"
            );
        }
    }
}
