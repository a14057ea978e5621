//! One event as headers and a body, by the destination's format and the protocol's binding.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use pillarbox::{Delivery, Event, Outcome};

use super::binding::Binding;
use super::cloudevents::{self, STRUCTURED};
use super::config::{Form, Source};
use crate::headers::{self, Added, Header};

/// Writes the events of one destination.
pub(crate) struct Writer {
    destination: String,
    binding: &'static Binding,
    added: Added,
    form: Form,
    /// Was it logged that a header of an event is left out?
    has_warned: AtomicBool,
}

/// The parts of one message.
pub(crate) struct Parts<'a> {
    /// All headers except the two that describe the body.
    pub(crate) headers: Vec<Header<'a>>,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: Option<&'a str>,
    pub(crate) body: Bytes,
}

impl Writer {
    /// In the plain format.
    pub(crate) fn new(destination: &str, binding: &'static Binding, added: Added) -> Self {
        Self {
            destination: destination.to_owned(),
            binding,
            added,
            form: Form::Plain,
            has_warned: AtomicBool::new(false),
        }
    }

    /// In this format.
    pub(crate) fn with_form(self, form: &Form) -> Self {
        Self {
            form: form.clone(),
            ..self
        }
    }

    /// The destination's name.
    pub(crate) fn destination(&self) -> &str {
        &self.destination
    }

    /// The headers of the configuration.
    pub(crate) fn added(&self) -> &Added {
        &self.added
    }

    /// Writes an event, or rejects it if it has no valid form.
    pub(crate) fn write<'a>(&'a self, delivery: &'a Delivery) -> Result<Parts<'a>, Outcome> {
        let event = &delivery.event;
        let is_whole = matches!(self.form, Form::Structured(_));
        if !is_whole && cloudevents::is_cloudevent(event.media_type()) {
            return Err(Outcome::reject(
                "the event's media type says that its payload is a CloudEvent: a receiver would take the payload's word for \
                 who the event is (enqueue it with another media type, or set the destination's `format` to \
                 \"cloudevents-structured\")",
            ));
        }
        let as_it_is = |headers| Parts {
            headers,
            content_type: event.media_type(),
            content_encoding: event.content_encoding.as_deref(),
            body: event.payload.as_bytes().clone(),
        };
        match &self.form {
            Form::Plain => {
                let mut headers = headers::metadata(delivery);
                headers.extend(self.own(delivery));
                self.with_added(headers, delivery).map(as_it_is)
            }
            Form::Binary(source) => self.attributes(delivery, source).map(as_it_is),
            Form::Structured(source) => Ok(Parts {
                headers: self.with_added(self.own(delivery).collect(), delivery)?,
                content_type: STRUCTURED,
                content_encoding: None,
                body: cloudevents::structured(delivery, &self.destination, source)?.into(),
            }),
        }
    }

    fn attributes<'a>(&'a self, delivery: &'a Delivery, source: &Source) -> Result<Vec<Header<'a>>, Outcome> {
        let names = &self.binding.names;
        let attributes = cloudevents::attributes(delivery, &self.destination, source, names)?;
        let mut headers: Vec<Header<'a>> = (attributes.into_iter())
            .map(|(name, value)| (name, self.binding.encode(value)))
            .collect();
        if self.binding.repeats_media_type {
            let media_type = self.binding.encode(Cow::from(delivery.event.media_type()));
            headers.push((names.datacontenttype, media_type));
        }
        headers.extend(self.own(delivery));
        self.with_added(headers, delivery)
    }

    /// The event's own headers, except those that a receiver would take for something else.
    fn own<'a>(&'a self, delivery: &'a Delivery) -> impl Iterator<Item = Header<'a>> {
        let event = &delivery.event;
        let is_sent = move |name: &str| {
            let is_sent = !headers::is_reserved(name) && !(self.binding.is_taken)(name);
            if !is_sent {
                self.warn_once(event, name);
            }
            is_sent
        };
        let own = event.headers.iter().filter(move |(name, _)| is_sent(name));
        own.map(|(name, value)| (name.as_str(), Cow::from(value)))
    }

    /// Once: a producer that sets such a header sets it in every event.
    fn warn_once(&self, event: &Event, header: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let header: String = header.chars().take(100).collect();
            tracing::warn!(
                destination = self.destination,
                event_id = %event.id,
                header,
                "reserved header of an event left out; further ones of this destination are not logged"
            );
        }
    }

    fn with_added<'a>(
        &'a self,
        headers: Vec<Header<'a>>,
        delivery: &Delivery,
    ) -> Result<Vec<Header<'a>>, Outcome> {
        headers::with_added(headers, delivery, &self.destination, &self.added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{self, AMQP, Config, Format, HTTP, KAFKA, NATS, REDIS};
    use crate::sample::{added, delivery};
    use pillarbox_testkit::CapturedLogs;
    use std::collections::BTreeMap;

    fn writer(binding: &'static Binding, format: Format, headers: &[(&str, &str)]) -> Writer {
        let config = Config {
            format,
            ..message::Config::default()
        };
        let added = added(headers, |_, _| Ok(())).unwrap();
        Writer::new("partner", binding, added).with_form(&config.form().unwrap())
    }

    fn headers(writer: &Writer, delivery: &Delivery) -> BTreeMap<String, String> {
        let parts = writer.write(delivery).ok().unwrap();
        let pairs = parts.headers.into_iter();
        pairs
            .map(|(name, value)| (name.to_owned(), value.into_owned()))
            .collect()
    }

    fn event() -> Event {
        Event::new("shop", "orders")
            .event_type("Order Größe")
            .header("x-own", "kept")
    }

    #[test]
    fn in_binary_mode_the_payload_is_as_it_is_and_attributes_are_headers() {
        let delivery = delivery(event().bytes(&b"\0"[..], "image/png"));
        for (binding, kind, value) in [
            (&HTTP, "ce-type", "Order%20Gr%C3%B6%C3%9Fe"),
            (&NATS, "ce-type", "Order%20Gr%C3%B6%C3%9Fe"),
            (&KAFKA, "ce_type", "Order Größe"),
            (&AMQP, "cloudEvents_type", "Order Größe"),
        ] {
            let writer = writer(binding, Format::CloudEvents, &[("x-added", "{topic}")]);
            let headers = headers(&writer, &delivery);
            assert_eq!(headers[kind], value);
            assert_eq!((&*headers["x-own"], &*headers["x-added"]), ("kept", "orders"));
            assert!(
                headers.keys().all(|name| !name.starts_with("pillarbox-")),
                "{headers:?}"
            );
            assert_eq!(
                headers.contains_key("ce-datacontenttype"),
                binding.repeats_media_type
            );
            let parts = writer.write(&delivery).ok().unwrap();
            assert_eq!((parts.content_type, &parts.body[..]), ("image/png", &b"\0"[..]));
        }
    }

    #[test]
    fn in_structured_mode_the_body_is_the_event_and_only_other_headers_are_headers() {
        let writer = writer(&HTTP, Format::CloudEventsStructured, &[("x-added", "{topic}")]);
        let delivery = delivery(event());
        let headers = headers(&writer, &delivery);
        let names: Vec<&String> = headers.keys().collect();
        assert_eq!(names, ["x-added", "x-own"]);
        let parts = writer.write(&delivery).ok().unwrap();
        assert_eq!(parts.content_type, "application/cloudevents+json");
        let body: serde_json::Value = serde_json::from_slice(&parts.body).unwrap();
        assert_eq!(body["type"], "Order Größe");
    }

    #[test]
    fn a_header_cannot_pass_for_metadata_in_any_format_and_protocol() {
        for format in [Format::Plain, Format::CloudEvents, Format::CloudEventsStructured] {
            for binding in [&HTTP, &NATS, &KAFKA, &AMQP, &REDIS] {
                let event = event().header("CE-Id", "forged").header("ce_x", "forged");
                let event = event
                    .header("cloudEvents:id", "forged")
                    .header("cloudEvents_id", "forged");
                let event = event.header("pillarbox_tenant", "forged");
                let sent = headers(&writer(binding, format, &[]), &delivery(event));
                assert!(sent.values().all(|value| value != "forged"), "{sent:?}");
                assert_eq!(sent["x-own"], "kept");
            }
        }
    }

    #[test]
    fn what_is_left_out_is_logged_once_per_destination() {
        let logs = CapturedLogs::start();
        let writer = writer(&HTTP, Format::Plain, &[]);
        for name in ["ce-id", "Cookie", "x-own"] {
            headers(&writer, &delivery(event().header(name, "secret")));
        }
        let lines = logs.lines();
        assert_eq!(lines.len(), 1);
        assert_eq!(
            (lines[0].field("destination"), lines[0].field("header")),
            (Some("partner"), Some("ce-id"))
        );
    }

    #[test]
    fn a_payload_that_says_it_is_a_cloudevent_is_only_sent_within_one() {
        for media_type in [
            "application/cloudevents+json",
            " Application/CloudEvents",
            "application/cloudevents-batch+json; charset=utf-8",
        ] {
            let delivery = delivery(event().bytes(&b"{}"[..], media_type));
            for format in [Format::Plain, Format::CloudEvents] {
                let Err(Outcome::Reject { reason }) = writer(&KAFKA, format, &[]).write(&delivery) else {
                    panic!("{media_type} was sent")
                };
                assert!(reason.contains("cloudevents-structured"), "{reason}");
            }
            let structured = writer(&KAFKA, Format::CloudEventsStructured, &[]);
            assert!(structured.write(&delivery).is_ok());
        }
    }
}
