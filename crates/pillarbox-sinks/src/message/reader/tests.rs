use super::*;
use crate::headers::Added;
use crate::message::{self, Config, Format, Writer};
use crate::sample::delivery;
use pillarbox::Event;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{prop_assert_eq, proptest};
use serde_json::json;
use time::macros::datetime;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const PROTOCOLS: [Protocol; 5] = [
    Protocol::Amqp,
    Protocol::Kafka,
    Protocol::Http,
    Protocol::Nats,
    Protocol::Redis,
];

fn written(protocol: Protocol, format: Format, event: Event) -> Incoming {
    try_written(protocol, format, event).unwrap()
}

fn try_written(protocol: Protocol, format: Format, event: Event) -> Result<Incoming, pillarbox::Outcome> {
    let config = Config {
        format,
        ..message::Config::default()
    };
    let writer = Writer::new("partner", protocol.binding(), Added::default());
    let writer = writer.with_form(&config.form().unwrap());
    let delivery = delivery(event);
    let parts = writer.write(&delivery)?;
    let headers = parts.headers.iter();
    Ok(Incoming {
        headers: headers
            .map(|(name, value)| ((*name).to_owned(), value.to_string()))
            .collect(),
        content_type: Some(parts.content_type.to_owned()),
        content_encoding: parts.content_encoding.map(str::to_owned),
        body: parts.body.clone(),
    })
}

fn incoming(headers: &[(&str, &str)]) -> Incoming {
    let headers = headers.iter();
    Incoming {
        headers: headers
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Incoming::default()
    }
}

/// What is expected of an event that was written in this format.
fn expected(format: Format, event: &Event) -> Read {
    let is_plain = format == Format::Plain;
    let mut read = Read {
        id: Some(event.id),
        created_at: Some(datetime!(2026-01-02 03:04:05 UTC)),
        attempt: is_plain.then_some(1),
        body: event.payload.as_bytes().clone(),
        envelope: Envelope::clone(event),
    };
    read.envelope.id = Uuid::nil();
    read.content_type = Some(event.media_type().to_owned());
    if !is_plain && read.event_type.is_none() {
        read.event_type = Some(event.topic.clone());
    }
    read
}

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 ./%_é😀-]{1,20}"
}

fn events() -> impl Strategy<Value = Event> {
    let names = (text(), text(), proptest::option::of(text()), any::<i32>());
    let about = (
        proptest::option::of((text(), text())),
        proptest::option::of(any::<u128>()),
        proptest::option::of(text()),
        proptest::option::of(text()),
        proptest::option::of(text()),
    );
    let headers = proptest::collection::btree_map("x-[a-z]{1,5}", text(), 0..4);
    let payload = prop_oneof![
        Just(Event::new("", "").json(&json!({"n": 1, "t": "é"})).unwrap()),
        Just(Event::new("", "").json_text("null")),
        Just(Event::new("", "").bytes(&b"\0\xff{"[..], "image/png")),
        Just(Event::new("", "").bytes(&b"{\"a\": 1.0}"[..], "application/vnd.a+json")),
    ];
    (names, about, headers, payload).prop_map(|(names, about, headers, event)| {
        let (namespace, topic, event_type, version) = names;
        let (aggregate, tenant, dedupe_key, ordering_key, severity) = about;
        let (aggregate_type, aggregate_id) = aggregate.unzip();
        let mut read = event;
        read.namespace = namespace;
        read.topic = topic;
        read.event_type = event_type;
        read.event_version = version;
        read.aggregate_type = aggregate_type;
        read.aggregate_id = aggregate_id;
        read.tenant_id = tenant.map(Uuid::from_u128);
        read.dedupe_key = dedupe_key;
        read.ordering_key = ordering_key;
        read.severity = severity;
        read.headers = headers;
        read
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(event in events(), traced in any::<bool>()) {
        let event = if traced { event.header("traceparent", PARENT).header("tracestate", "a=1") } else { event };
        for format in [Format::Plain, Format::CloudEvents, Format::CloudEventsStructured] {
            for protocol in PROTOCOLS {
                let read = read(protocol, written(protocol, format, event.clone())).unwrap();
                prop_assert_eq!(read, expected(format, &event), "{:?} {:?}", format, protocol);
            }
        }
    }

    #[test]
    fn no_message_is_too_strange(
        headers in proptest::collection::vec(("(pillarbox-|ce_|cloudEvents:)?[a-z-]{0,12}", "\\PC{0,20}"), 0..8),
        kind in proptest::option::of("(application/cloudevents\\+json|\\PC{0,10})"),
        body in "\\PC{0,60}",
    ) {
        for protocol in PROTOCOLS {
            let message = Incoming {
                headers: headers.clone(),
                content_type: kind.clone(),
                content_encoding: None,
                body: body.clone().into(),
            };
            // Whatever it says, it is an answer.
            drop(read(protocol, message));
        }
    }
}

/// Names and values with which a producer would pass its event off as another one.
fn forged() -> impl Strategy<Value = (String, String)> {
    let prefix = "(pillarbox[-_]|Pillarbox-|PILLARBOX_|ce[-_]|CE_|cloudEvents[_:-]|CLOUDEVENTS_)";
    let attribute = prop_oneof![
        Just("specversion"),
        Just("id"),
        Just("source"),
        Just("type"),
        Just("subject"),
        Just("tenantid"),
        Just("tenant"),
        Just("namespace"),
        Just("topic"),
        Just("eventversion"),
        Just("version"),
        Just("partitionkey"),
        Just("key"),
        Just("dedupekey"),
        Just("dedupe-key"),
        Just("dedupe_key"),
        Just("datacontenttype"),
    ];
    let name = (prefix, attribute).prop_map(|(prefix, attribute)| format!("{prefix}{attribute}"));
    let value = prop_oneof![
        Just("1.0"),
        Just("019a8661-2b54-7d3e-a8c1-5f0b6c1d2e3f"),
        Just("/billing")
    ];
    (name, value.prop_map(str::to_owned))
}

proptest! {
    #[test]
    fn no_header_and_no_media_type_changes_who_an_event_is(
        event in events(),
        forged in proptest::collection::vec(forged(), 0..6),
        media_type in proptest::option::of("(application/cloudevents(\\+json|-batch\\+json)?|Application/CloudEvents\\+JSON; a=b|text/plain)"),
    ) {
        let payload = r#"{"specversion":"1.0","id":"019a8661-2b54-7d3e-a8c1-5f0b6c1d2e3f","source":"/billing","type":"forged"}"#;
        let event = forged.into_iter().fold(event, |event, (name, value)| event.header(name, value));
        let event = match media_type {
            Some(media_type) => event.bytes(payload.as_bytes(), media_type),
            None => event,
        };
        for format in [Format::Plain, Format::CloudEvents, Format::CloudEventsStructured] {
            for protocol in PROTOCOLS {
                let Ok(written) = try_written(protocol, format, event.clone()) else { continue };
                let read = read(protocol, written).unwrap();
                let expected = expected(format, &event);
                prop_assert_eq!(read.id, expected.id, "{:?} {:?}", format, protocol);
                prop_assert_eq!(&read.namespace, &expected.namespace);
                prop_assert_eq!(&read.topic, &expected.topic);
                prop_assert_eq!(&read.event_type, &expected.event_type);
                prop_assert_eq!(read.event_version, expected.event_version);
                prop_assert_eq!(read.tenant_id, expected.tenant_id);
                prop_assert_eq!(&read.aggregate_id, &expected.aggregate_id);
                prop_assert_eq!(&read.ordering_key, &expected.ordering_key);
                prop_assert_eq!(&read.dedupe_key, &expected.dedupe_key);
                prop_assert_eq!(&read.content_type, &expected.content_type);
                prop_assert_eq!(&read.body, &expected.body);
            }
        }
    }
}

#[test]
fn a_message_from_elsewhere_says_little() {
    let mut message = incoming(&[("x-own", "kept")]);
    message.body = Bytes::from_static(b"{}");
    let read = read(Protocol::Amqp, message).unwrap();
    assert_eq!((read.id, &read.event_type), (None, &None));
    assert_eq!((&*read.namespace, &*read.topic), ("", ""));
    assert_eq!(read.headers["x-own"], "kept");
    assert_eq!(&read.body[..], b"{}");
}

#[test]
fn a_value_that_is_none_is_named() {
    for (header, expected) in [
        ("pillarbox-id", "a UUID"),
        ("Pillarbox-Tenant", "a UUID"),
        ("pillarbox-version", "a version (a whole number)"),
    ] {
        let error = read(Protocol::Kafka, incoming(&[(header, "x y")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`{}` is not {expected}", header.to_ascii_lowercase())
        );
    }
}

#[test]
fn a_foreign_cloudevent_has_an_id_derived_from_its_source_and_id() {
    let of = |source: &str, id: &str| {
        let headers = [
            ("ce_specversion", "1.0"),
            ("ce_id", id),
            ("ce_source", source),
            ("ce_type", "made"),
        ];
        read(Protocol::Kafka, incoming(&headers)).unwrap()
    };
    let one = of("https://shop.example/a", "1");
    assert_eq!(one.namespace, "https://shop.example/a");
    assert_eq!(one.id, of("https://shop.example/a", "1").id);
    assert_eq!(one.id.unwrap().get_version_num(), 8, "no producer may choose it");
    assert_ne!(one.id, of("https://shop.example/a", "2").id);
    assert_ne!(one.id, of("https://shop.example/", "a1").id);
    // Another source cannot use up the id of an event of ours.
    let uuid = "019a8661-2b54-7d3e-a8c1-5f0b6c1d2e3f";
    let ours = of("/shop", uuid);
    assert_eq!(
        (ours.id.unwrap().to_string().as_str(), &*ours.namespace),
        (uuid, "shop")
    );
    for source in ["https://shop.example/shop", "/shop/eu", "shop", "/"] {
        assert_ne!(of(source, uuid).id, ours.id, "{source}");
    }
}

#[test]
fn both_ways_to_write_amqp_attributes_are_understood() {
    for prefix in ["cloudEvents_", "cloudEvents:"] {
        let names = ["specversion", "id", "type", "source"].map(|name| format!("{prefix}{name}"));
        let [version, id, kind, source] = &names;
        let uuid = "019a8661-2b54-7d3e-a8c1-5f0b6c1d2e3f";
        let message = incoming(&[(version, "1.0"), (id, uuid), (kind, "made"), (source, "/shop")]);
        let read = read(Protocol::Amqp, message).unwrap();
        assert_eq!(read.id.unwrap().to_string(), uuid);
        assert_eq!(read.event_type.as_deref(), Some("made"));
    }
}

fn contradiction(protocol: Protocol, message: Incoming) -> String {
    match read(protocol, message) {
        Err(Unreadable::Contradiction(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_that_has_metadata_and_is_a_cloudevent_is_not_read() {
    let id = "019a8661-2b54-7d3e-a8c1-5f0b6c1d2e3f";
    for (protocol, attribute) in [
        (Protocol::Amqp, "cloudEvents_id"),
        (Protocol::Amqp, "CLOUDEVENTS:ID"),
        (Protocol::Kafka, "ce_id"),
        (Protocol::Http, "CE-Id"),
        (Protocol::Nats, "ce-id"),
        (Protocol::Redis, "ce-id"),
    ] {
        let said = contradiction(protocol, incoming(&[("pillarbox-id", id), (attribute, id)]));
        assert_eq!(said, format!("it has `pillarbox-id` and `{attribute}`"));
    }
    let mut message = incoming(&[("Pillarbox_Id", id)]);
    message.content_type = Some("application/cloudevents+json".to_owned());
    let said = contradiction(Protocol::Kafka, message);
    assert_eq!(
        said,
        "it has `pillarbox-id` and `content-type: application/cloudevents`"
    );
}

#[test]
fn metadata_in_two_spellings_must_say_the_same() {
    let tenants = |second| incoming(&[("pillarbox-tenant", "1"), ("PILLARBOX_TENANT", second)]);
    let said = contradiction(Protocol::Amqp, tenants("2"));
    assert_eq!(said, "it has `pillarbox-tenant` twice, with different values");
    let ids = |second| incoming(&[("ce_specversion", "1.0"), ("ce_id", "1"), ("CE-Id", second)]);
    let said = contradiction(Protocol::Kafka, ids("2"));
    assert_eq!(said, "it has `ce_id` twice, with different values");
    assert!(read(Protocol::Kafka, ids("1")).is_ok());
}

#[test]
fn the_headers_of_a_structured_event_may_repeat_it_and_nothing_else() {
    let message = |headers: &[(&str, &str)]| Incoming {
        content_type: Some(STRUCTURED.to_owned()),
        body: Bytes::from_static(br#"{"specversion":"1.0","id":"1","source":"/a","type":"t"}"#),
        ..incoming(headers)
    };
    let repeated = message(&[("ce_id", "1"), ("ce_source", "/a"), ("x", "y")]);
    assert_eq!(read(Protocol::Kafka, repeated).unwrap().headers.len(), 1);
    for forged in [("ce_id", "2"), ("ce_tenantid", "2")] {
        let said = contradiction(Protocol::Kafka, message(&[forged]));
        assert_eq!(said, format!("`{}` is not what its body says", forged.0));
    }
}

#[test]
fn a_dead_letter_that_is_a_cloudevent_is_read_again() {
    let headers = [
        ("ce_specversion", "1.0"),
        ("ce_id", "1"),
        ("pillarbox-dead-reason", "late"),
    ];
    let read = read(Protocol::Kafka, incoming(&headers)).unwrap();
    assert!(read.id.is_some() && read.headers.is_empty());
}

#[test]
fn no_error_shows_what_a_message_holds() {
    let mut message = incoming(&[]);
    message.content_type = Some(STRUCTURED.to_owned());
    message.body = Bytes::from_static(br#"{"data_base64":{"card":"4111"},"id":"1"}"#);
    let hidden = incoming(&[("pillarbox-tenant", "4111")]);
    for message in [message, hidden] {
        let error = read(Protocol::Kafka, message).unwrap_err().to_string();
        assert!(!error.contains("4111") && !error.contains("card"), "{error}");
    }
}

#[test]
fn an_attribute_that_we_do_not_know_is_a_header() {
    let mut message = incoming(&[]);
    message.content_type = Some("application/CloudEvents+JSON; charset=utf-8".to_owned());
    message.body =
        Bytes::from_static(br#"{"specversion":"1.0","id":"1","type":"t","region":"north","n":1,"o":{}}"#);
    let read = read(Protocol::Kafka, message).unwrap();
    assert_eq!(read.headers["region"], "north");
    assert_eq!(read.headers["n"], "1");
    assert_eq!(read.headers.len(), 2);
    assert!(read.body.is_empty());
}

#[test]
fn a_structured_event_that_is_none_says_so() {
    for body in [
        &b"{"[..],
        b"[]",
        br#"{"data": 1, "data_base64": "AA=="}"#,
        br#"{"data_base64": "?"}"#,
    ] {
        let message = Incoming {
            content_type: Some(STRUCTURED.to_owned()),
            body: Bytes::from_static(body),
            ..Incoming::default()
        };
        let error = read(Protocol::Amqp, message).unwrap_err();
        assert!(matches!(error, Unreadable::Structured(_)), "{error}");
    }
}
