//! Another implementation reads what the sinks send: the CloudEvents SDK for Python, in a process of its own, behind clients of
//! its own for HTTP, Kafka and AMQP. `tests/cloudevents/read.py` is that process.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pillarbox::{Delivery, Event, Outcome, Sink};
use pillarbox_sinks::SinkConfig;
use pillarbox_testkit::sink_suite::{Harness, delivery};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use uuid::Uuid;

use crate::environment::{build, fresh_name, variable};

const MODES: [&str; 2] = ["format = \"cloudevents\"", "format = \"cloudevents-structured\""];
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// A broker and an interpreter that start on a busy machine. Only a failing test waits that long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The other side.
struct Reader {
    _process: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reader {
    fn start(arguments: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cloudevents/read.py");
        let mut process = Command::new(variable("PILLARBOX_TEST_CLOUDEVENTS_PYTHON"))
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self {
            input: process.stdin.take(),
            lines: output.lines(),
            _process: process,
        }
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(TIMEOUT, self.lines.next_line()).await;
        let line = line.expect("the reader says something in time").unwrap();
        line.expect("the reader did not end; what it says is above")
    }

    async fn event(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// Shows it a message.
    async fn show(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        input.flush().await.unwrap();
    }
}

/// One event of each kind: JSON with every attribute, some of which need encoding, and bytes with few.
fn events() -> [Delivery; 2] {
    let tenant = Uuid::now_v7();
    let full = Event::new("my shop", "orders")
        .event_type("Größe 100% \"new\"")
        .version(3)
        .aggregate("order", "42")
        .ordering_key("order-42 😀")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/once"))
        .severity("low")
        .header("traceparent", PARENT)
        .header("tracestate", "shop=1")
        .header("x-own", "kept")
        .json(&json!({"order": 42, "note": "Grüße"}));
    let bare = Event::new("shop", "pictures").bytes(&b"\x00\xff\r\n"[..], "image/png");
    [full.unwrap(), bare].map(delivery)
}

/// What the SDK should find in the first of them.
fn attributes(sent: &Delivery) -> BTreeMap<&'static str, String> {
    let event = &sent.event;
    BTreeMap::from([
        ("specversion", "1.0".to_owned()),
        ("id", event.id.to_string()),
        ("source", "/my%20shop".to_owned()),
        ("type", "Größe 100% \"new\"".to_owned()),
        ("subject", "42".to_owned()),
        ("time", "2027-01-15T08:00:00+00:00".to_owned()),
        ("datacontenttype", "application/json".to_owned()),
        ("topic", "orders".to_owned()),
        ("eventversion", "3".to_owned()),
        ("partitionkey", "order-42 😀".to_owned()),
        ("aggregatetype", "order".to_owned()),
        ("tenantid", event.tenant_id.unwrap().to_string()),
        ("dedupekey", event.dedupe_key.clone().unwrap()),
        ("severity", "low".to_owned()),
        ("traceparent", PARENT.to_owned()),
        ("tracestate", "shop=1".to_owned()),
    ])
}

async fn deliver(sink: &Arc<dyn Sink>, sent: &[Delivery]) {
    for one in sent {
        assert_eq!(sink.deliver(one).await, Outcome::Delivered);
    }
}

async fn both_are_read(reader: &mut Reader, sent: &[Delivery; 2]) {
    let full = reader.event().await;
    assert_eq!(full["attributes"], json!(attributes(&sent[0])));
    assert_eq!(full["data"], json!({"order": 42, "note": "Grüße"}));
    let bare = reader.event().await;
    assert_eq!(
        bare["attributes"],
        json!({
            "specversion": "1.0", "id": sent[1].event.id, "source": "/shop", "type": "pictures", "topic": "pictures",
            "time": "2027-01-15T08:00:00+00:00", "eventversion": "1", "datacontenttype": "image/png",
        })
    );
    assert_eq!(bare["data"]["base64"], STANDARD.encode(b"\x00\xff\r\n"));
}

#[cfg(feature = "webhook")]
#[tokio::test]
async fn an_sdk_of_another_language_reads_what_arrives_by_http() {
    let mut reader = Reader::start(&["http"]);
    let url = format!("http://127.0.0.1:{}/", reader.line().await);
    for mode in MODES {
        let config = pillarbox_sinks::webhook::Config::new(url.as_str());
        let sent = events();
        deliver(&build(SinkConfig::Webhook(config), mode).await, &sent).await;
        both_are_read(&mut reader, &sent).await;
    }
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn an_sdk_of_another_language_reads_what_arrives_by_kafka() {
    let brokers = variable("PILLARBOX_TEST_KAFKA_BROKERS");
    for mode in MODES {
        let topic = fresh_name("cloudevents");
        let config = pillarbox_sinks::kafka::Config {
            topic: pillarbox_sinks::Template::parse(&topic).unwrap(),
            ..pillarbox_sinks::kafka::Config::new(brokers.as_str())
        };
        crate::kafka::create_topic(&brokers, &topic, 1_000_000).await;
        let sent = events();
        let sink = build(SinkConfig::Kafka(config), mode).await;
        crate::environment::until_it_answers(sink.as_ref()).await;
        deliver(&sink, &sent).await;
        both_are_read(&mut Reader::start(&["kafka", &brokers, &topic, "2"]), &sent).await;
    }
}

#[cfg(feature = "rabbitmq")]
#[tokio::test]
async fn an_sdk_of_another_language_reads_what_arrives_by_amqp() {
    use lapin::options::QueueDeclareOptions;

    let url = variable("PILLARBOX_TEST_AMQP_URL");
    let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default());
    let channel = connection.await.unwrap().create_channel().await.unwrap();
    for mode in MODES {
        let queue = fresh_name("cloudevents");
        let options = QueueDeclareOptions {
            auto_delete: true, // goes with its reader
            ..QueueDeclareOptions::default()
        };
        let declared = channel.queue_declare(
            queue.as_str().into(),
            options,
            lapin::types::FieldTable::default(),
        );
        declared.await.unwrap();
        let config = pillarbox_sinks::rabbitmq::Config {
            routing_key: pillarbox_sinks::Template::parse(&queue).unwrap(),
            ..pillarbox_sinks::rabbitmq::Config::new(url.as_str(), "")
        };
        let sent = events();
        deliver(&build(SinkConfig::RabbitMq(config), mode).await, &sent).await;
        both_are_read(&mut Reader::start(&["amqp", &url, &queue, "2"]), &sent).await;
    }
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn an_sdk_of_another_language_reads_what_arrives_by_nats() {
    for mode in MODES {
        read_from(&crate::nats::NatsHarness::fresh().await, "nats", mode).await;
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn an_sdk_of_another_language_reads_what_arrives_by_redis() {
    for mode in MODES {
        read_from(&crate::redis::RedisHarness::fresh().await, "redis", mode).await;
    }
}

/// For places that the SDK has no client in mind for: it is shown what we read there.
async fn read_from(place: &impl Harness, name: &str, mode: &str) {
    let sent = events();
    deliver(&place.with_keys(mode).await.ok().unwrap(), &sent).await;
    let mut reader = Reader::start(&[name]);
    let arrived = place.arrived().await;
    assert_eq!(arrived.len(), 2, "{arrived:?}");
    for one in arrived {
        let body = STANDARD.encode(&one.payload);
        let message = json!({ "headers": one.headers, "content_type": one.content_type, "body": body });
        reader.show(&message).await;
    }
    both_are_read(&mut reader, &sent).await;
    place.clean_up().await;
}
