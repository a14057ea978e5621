//! The log sink: the place is a buffer whose reader can go away.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pillarbox::{Event, Outcome, Sink};
use pillarbox_sinks::log::Log;
use pillarbox_sinks::message::{self, MAX_DECOMPRESSED, Recoding};
use pillarbox_testkit::Skipped;
use pillarbox_testkit::sink_suite::{Arrived, Attributes, Harness, delivery, event_id};
use serde_json::Value;

#[derive(Clone, Default)]
struct Pipe {
    text: Arc<Mutex<Vec<u8>>>,
    writes: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
}

impl Pipe {
    fn is_open(&self) -> io::Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        }
    }
}

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_open()?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.text.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.is_open()
    }
}

#[derive(Default)]
struct LogHarness {
    pipe: Pipe,
}

impl LogHarness {
    async fn fresh() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Harness for LogHarness {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(Log::to(self.pipe.clone()))
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let text = String::from_utf8(self.pipe.text.lock().unwrap().clone()).unwrap();
        text.lines()
            .filter(|line| !line.is_empty())
            .map(arrived)
            .collect()
    }

    fn when_gone(&self) -> &'static str {
        "unavailable"
    }

    async fn go_away(&self) -> Result<(), Skipped> {
        self.pipe.closed.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn come_back(&self) {
        self.pipe.closed.store(false, Ordering::SeqCst);
    }

    async fn fall_silent(&self) -> Result<(), Skipped> {
        Err(Skipped("a write to a pipe has no answer that could be lost"))
    }

    async fn cut(&self) {}

    fn poison(&self) -> Result<Event, Skipped> {
        Ok(Event::new("shop", "orders").json_text("this is not JSON"))
    }

    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped> {
        Err(Skipped("standard output asks for no password"))
    }

    async fn with_tls(&self, _: bool) -> Result<Arc<dyn Sink>, Skipped> {
        Err(Skipped("standard output speaks no TLS"))
    }

    async fn with_headers(&self, _: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped> {
        Err(Skipped("a line has no headers but the event's"))
    }

    /// As the registry does it, but for standard output.
    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped> {
        let message: message::Config = toml::from_str(keys).unwrap();
        let log = Log::to(self.pipe.clone()).with_message("log", &message).unwrap();
        if message.compressed {
            return Ok(Arc::new(log));
        }
        let limit = message.max_decompressed.map_or(MAX_DECOMPRESSED, |size| size.0);
        Ok(Arc::new(Recoding::decompressing(Arc::new(log), limit)))
    }

    fn attributes(&self) -> Option<Attributes> {
        None
    }
}

/// The line's fields under the names that headers have elsewhere.
fn arrived(line: &str) -> Arrived {
    let value: Value = serde_json::from_str(line).unwrap();
    let mut headers = BTreeMap::new();
    if value.get("specversion").is_some() {
        return Arrived {
            id: event_id(&headers, line.as_bytes()),
            headers,
            payload: Bytes::copy_from_slice(line.as_bytes()),
            content_type: "application/cloudevents+json".to_owned(),
            content_encoding: None,
        };
    }
    for (field, header) in [
        ("id", "pillarbox-id"),
        ("namespace", "pillarbox-namespace"),
        ("topic", "pillarbox-topic"),
        ("event_type", "pillarbox-type"),
        ("event_version", "pillarbox-version"),
        ("aggregate_type", "pillarbox-aggregate-type"),
        ("aggregate_id", "pillarbox-aggregate-id"),
        ("ordering_key", "pillarbox-key"),
        ("created_at", "pillarbox-created-at"),
        ("attempt", "pillarbox-attempt"),
    ] {
        let text = value[field]
            .as_str()
            .map_or_else(|| value[field].to_string(), str::to_owned);
        headers.insert(header.to_owned(), text);
    }
    for (name, value) in value["headers"].as_object().unwrap() {
        headers.insert(name.clone(), value.as_str().unwrap().to_owned());
    }
    let payload = match value["payload_base64"].as_str() {
        Some(text) => STANDARD.decode(text).unwrap(),
        None => value["payload"].to_string().into_bytes(),
    };
    Arrived {
        id: value["id"].as_str().unwrap().parse().unwrap(),
        headers,
        payload: Bytes::from(payload),
        content_type: value["content_type"].as_str().unwrap().to_owned(),
        content_encoding: value["content_encoding"].as_str().map(str::to_owned),
    }
}

mod suite {
    pillarbox_testkit::sink_suite!(super::LogHarness::fresh);
}

#[tokio::test]
async fn a_line_is_one_write() {
    let harness = LogHarness::default();
    let sink = harness.sink().await;
    for number in 1..=5 {
        let event = Event::new("shop", "orders").bytes(vec![0; 100_000], "application/octet-stream");
        assert_eq!(sink.deliver(&delivery(event)).await, Outcome::Delivered);
        assert_eq!(harness.pipe.writes.load(Ordering::SeqCst), number);
    }
}

#[tokio::test]
async fn after_a_failed_write_the_next_line_stands_on_its_own() {
    let harness = LogHarness::default();
    let sink = harness.sink().await;
    harness.pipe.text.lock().unwrap().extend_from_slice(b"{\"half\":");
    harness.go_away().await.unwrap();
    assert_ne!(
        sink.deliver(&delivery(Event::new("shop", "orders"))).await,
        Outcome::Delivered
    );
    harness.come_back().await;
    assert_eq!(
        sink.deliver(&delivery(Event::new("shop", "orders"))).await,
        Outcome::Delivered
    );
    let text = String::from_utf8(harness.pipe.text.lock().unwrap().clone()).unwrap();
    let (half, whole) = text.split_once('\n').unwrap();
    assert_eq!(half, "{\"half\":");
    arrived(whole.trim_end());
}

#[tokio::test]
async fn a_closed_log_says_so() {
    let sink = LogHarness::default().sink().await;
    sink.close().await;
    let outcome = sink.deliver(&delivery(Event::new("shop", "orders"))).await;
    assert_eq!(outcome, Outcome::unavailable("the log is closed"));
    assert!(sink.check().await.is_err());
}
