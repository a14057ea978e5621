//! The headers of a message, the same for every sink: `docs/sinks/message-format.md`.
//!
//! Names that begin with `pillarbox-`, and those of CloudEvents attributes in any protocol, are reserved in every format. A
//! header of the event with such a name is left out, so a producer cannot forge what a receiver relies on. The configuration
//! cannot add one either. Its headers override those of the event.
//!
//! Names are compared without case, and `_` counts as `-`: CGI, WSGI and PHP fold both.

mod table;
pub(crate) mod taken;

use std::borrow::Cow;

use pillarbox::{Delivery, Outcome};
use time::format_description::well_known::Rfc3339;

pub(crate) use table::Added;
#[doc(hidden)]
pub use table::may_be_secret;
pub use table::{Table, TableError};

/// The prefix of the names of our own headers.
pub const PREFIX: &str = "pillarbox-";

/// The beginnings of names that some protocol has for attributes of a CloudEvent.
const ATTRIBUTES: [&str; 3] = ["ce-", "cloudevents-", "cloudevents:"];

/// Our own headers, which tell a receiver what a plain message is.
pub(crate) const METADATA: [&str; 13] = [
    "pillarbox-id",
    "pillarbox-namespace",
    "pillarbox-topic",
    "pillarbox-version",
    "pillarbox-created-at",
    "pillarbox-attempt",
    "pillarbox-type",
    "pillarbox-aggregate-type",
    "pillarbox-aggregate-id",
    "pillarbox-tenant",
    "pillarbox-key",
    "pillarbox-dedupe-key",
    "pillarbox-severity",
];

/// A name and its value.
pub type Header<'a> = (&'a str, Cow<'a, str>);

/// The headers of Pillarbox, then those of the event.
pub fn of(delivery: &Delivery) -> Vec<Header<'_>> {
    let mut headers = metadata(delivery);
    let own = delivery
        .event
        .headers
        .iter()
        .filter(|(name, _)| !is_reserved(name));
    headers.extend(own.map(|(name, value)| (name.as_str(), Cow::from(value))));
    headers
}

/// The headers of Pillarbox.
pub(crate) fn metadata(delivery: &Delivery) -> Vec<Header<'_>> {
    let event = &delivery.event;
    let mut headers: Vec<Header<'_>> = Vec::with_capacity(METADATA.len() + event.headers.len());
    headers.push(("pillarbox-id", event.id.to_string().into()));
    headers.push(("pillarbox-namespace", event.namespace.as_str().into()));
    headers.push(("pillarbox-topic", event.topic.as_str().into()));
    headers.push(("pillarbox-version", event.event_version.to_string().into()));
    headers.push(("pillarbox-created-at", created_at(delivery).into()));
    headers.push(("pillarbox-attempt", delivery.attempts.to_string().into()));
    if let Some(tenant) = event.tenant_id {
        headers.push(("pillarbox-tenant", tenant.to_string().into()));
    }
    for (name, value) in [
        ("pillarbox-type", &event.event_type),
        ("pillarbox-aggregate-type", &event.aggregate_type),
        ("pillarbox-aggregate-id", &event.aggregate_id),
        ("pillarbox-key", &event.ordering_key),
        ("pillarbox-dedupe-key", &event.dedupe_key),
        ("pillarbox-severity", &event.severity),
    ] {
        if let Some(value) = value {
            headers.push((name, value.as_str().into()));
        }
    }
    headers
}

/// These headers and those of the destination, which replace others of the same name. Rejects an event without a value that
/// one of them needs.
pub(crate) fn with_added<'a>(
    mut headers: Vec<Header<'a>>,
    delivery: &Delivery,
    destination: &str,
    added: &'a Added,
) -> Result<Vec<Header<'a>>, Outcome> {
    let rendered = added.render(delivery, destination)?;
    headers.retain(|(name, _)| !added.has(name));
    headers.extend(rendered);
    Ok(headers)
}

/// When the row was written, by the store's clock.
pub(crate) fn created_at(delivery: &Delivery) -> String {
    // RFC 3339 has no year outside of 0..=9999; such a time is written in seconds since 1970.
    let seconds = || delivery.created_at.unix_timestamp().to_string();
    delivery.created_at.format(&Rfc3339).unwrap_or_else(|_| seconds())
}

/// Is it the name of metadata, of Pillarbox or of CloudEvents, in any protocol?
pub(crate) fn is_reserved(name: &str) -> bool {
    is_ours(name) || ATTRIBUTES.iter().any(|prefix| begins_with(name, prefix))
}

/// Is it a name of our own headers?
pub(crate) fn is_ours(name: &str) -> bool {
    begins_with(name, PREFIX)
}

/// Does the name begin with this prefix, without case and with `_` as `-`?
pub(crate) fn begins_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| is_same(start, prefix))
}

/// Are the names the same, without case and with `_` as `-`?
pub(crate) fn is_same(a: &str, b: &str) -> bool {
    let fold = |byte: u8| {
        if byte == b'_' {
            b'-'
        } else {
            byte.to_ascii_lowercase()
        }
    };
    a.len() == b.len() && a.bytes().map(fold).eq(b.bytes().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use pillarbox::Event;
    use uuid::Uuid;

    #[test]
    fn every_field_that_is_set_has_a_header() {
        let event = Event::new("shop", "orders")
            .event_type("OrderCreated")
            .version(3)
            .aggregate("order", "42")
            .tenant(Uuid::nil())
            .dedupe_key("once")
            .ordering_key("order-42")
            .severity("low")
            .header("traceparent", "00-1");
        let delivery = delivery(event);
        let mut headers = of(&delivery);
        headers.sort();
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_ref()))
            .collect();
        assert_eq!(
            headers,
            [
                ("pillarbox-aggregate-id", "42"),
                ("pillarbox-aggregate-type", "order"),
                ("pillarbox-attempt", "1"),
                ("pillarbox-created-at", "2026-01-02T03:04:05Z"),
                ("pillarbox-dedupe-key", "once"),
                ("pillarbox-id", delivery.event.id.to_string().as_str()),
                ("pillarbox-key", "order-42"),
                ("pillarbox-namespace", "shop"),
                ("pillarbox-severity", "low"),
                ("pillarbox-tenant", "00000000-0000-0000-0000-000000000000"),
                ("pillarbox-topic", "orders"),
                ("pillarbox-type", "OrderCreated"),
                ("pillarbox-version", "3"),
                ("traceparent", "00-1"),
            ]
        );
    }

    #[test]
    fn what_is_not_set_has_none() {
        let delivery = delivery(Event::new("shop", "orders"));
        let names: Vec<&str> = of(&delivery).iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            [
                "pillarbox-id",
                "pillarbox-namespace",
                "pillarbox-topic",
                "pillarbox-version",
                "pillarbox-created-at",
                "pillarbox-attempt"
            ]
        );
    }

    #[test]
    fn the_event_cannot_override_ours() {
        let event = Event::new("shop", "orders")
            .header("pillarbox-id", "forged")
            .header("Pillarbox-Type", "forged")
            .header("pillarbox_tenant", "forged")
            .header("PILLARBOX_key", "forged")
            .header("ce_id", "forged")
            .header("Ce-Id", "forged")
            .header("cloudEvents:id", "forged")
            .header("CLOUDEVENTS-id", "forged")
            .header("pillarboxes", "fine")
            .header("é", "fine");
        let delivery = delivery(event);
        let headers = of(&delivery);
        assert!(headers.iter().all(|(_, value)| value != "forged"));
        assert_eq!(headers.iter().filter(|(_, value)| value == "fine").count(), 2);
    }
}
