//! The webhook sink: the place is an HTTP server in this process, behind a proxy that can be cut.

#![cfg(feature = "webhook")]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use pillarbox::webhook::{Keys, Unverified};
use pillarbox::{Clock, Event, Outcome, Sink, SystemClock};
use pillarbox_sinks::headers::Table;
use pillarbox_sinks::webhook::{Config, Webhook};
use pillarbox_sinks::{Secret, SinkConfig, Tls};
use pillarbox_testkit::sink_suite::{Arrived, Attributes, Harness, delivery};
use pillarbox_testkit::{Proxy, Skipped};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::environment::{build, variable};

/// What the receiver has seen, and what it answers to a path.
#[derive(Clone, Default)]
struct Receiver {
    arrived: Arc<Mutex<Vec<(String, Arrived)>>>,
    answers: Arc<Mutex<BTreeMap<&'static str, Answer>>>,
}

struct Answer {
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    body: String,
}

const TOKEN: &str = "Bearer right";

impl Receiver {
    fn router(&self) -> Router {
        Router::new().fallback(receive).with_state(self.clone())
    }

    fn answer(
        &self,
        path: &'static str,
        status: u16,
        headers: &'static [(&'static str, &'static str)],
        body: &str,
    ) {
        let body = body.to_owned();
        self.answers.lock().unwrap().insert(
            path,
            Answer {
                status,
                headers,
                body,
            },
        );
    }
}

async fn receive(State(receiver): State<Receiver>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(answer) = receiver.answers.lock().unwrap().get(uri.path()) {
        let status = StatusCode::from_u16(answer.status).unwrap();
        let mut response = (status, answer.body.clone()).into_response();
        for (name, value) in answer.headers {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        return response;
    }
    let text = |name: &str| {
        headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    if uri.path() == "/guarded" && text("authorization").as_deref() != Some(TOKEN) {
        return (StatusCode::UNAUTHORIZED, "who are you?").into_response();
    }
    let Some(id) = text("webhook-id") else {
        return StatusCode::METHOD_NOT_ALLOWED.into_response(); // a check
    };
    let names = headers.keys().map(|name| name.as_str());
    let arrived = Arrived {
        id: id.parse().unwrap(),
        headers: names.map(|name| (name.to_owned(), text(name).unwrap())).collect(),
        payload: body,
        content_type: text("content-type").unwrap_or_default(),
        content_encoding: text("content-encoding"),
    };
    receiver.arrived.lock().unwrap().push((uri.to_string(), arrived));
    StatusCode::NO_CONTENT.into_response()
}

struct WebhookHarness {
    receiver: Receiver,
    proxy: Proxy,
    tls: Option<SocketAddr>,
    _servers: JoinSet<()>,
}

impl WebhookHarness {
    async fn fresh() -> Self {
        let receiver = Receiver::default();
        let mut servers = JoinSet::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = receiver.router();
        servers.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            receiver,
            proxy: Proxy::start(address.to_string()).await,
            tls: None,
            _servers: servers,
        }
    }

    async fn with_tls_server() -> Self {
        let mut harness = Self::fresh().await;
        let listener = TlsListener::bind().await;
        harness.tls = Some(listener.local_addr().unwrap());
        let router = harness.receiver.router();
        harness
            ._servers
            .spawn(async move { axum::serve(listener, router).await.unwrap() });
        harness
    }

    fn config(&self, path: &str) -> Config {
        Config::new(format!("http://{}{path}", self.proxy.address()))
    }

    fn webhook(&self, path: &str) -> Webhook {
        Webhook::new("partner", &self.config(path)).unwrap()
    }

    fn seen(&self) -> Vec<(String, Arrived)> {
        self.receiver.arrived.lock().unwrap().clone()
    }
}

#[async_trait]
impl Harness for WebhookHarness {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.webhook("/hook"))
    }

    async fn arrived(&self) -> Vec<Arrived> {
        self.seen().into_iter().map(|(_, arrived)| arrived).collect()
    }

    fn when_gone(&self) -> &'static str {
        "connect_failed"
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }

    fn poison(&self) -> Result<Event, Skipped> {
        Ok(Event::new("shop", "orders").header("x-note", "a\r\nevil: b"))
    }

    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped> {
        let config = Config {
            bearer: Some("hunter2".into()),
            ..self.config("/guarded")
        };
        Ok((
            Arc::new(Webhook::new("partner", &config).unwrap()),
            "hunter2".to_owned(),
        ))
    }

    async fn with_tls(&self, knows_the_ca: bool) -> Result<Arc<dyn Sink>, Skipped> {
        let port = self.tls.expect("the suite's harness has a TLS server").port();
        let mut config = Config::new(format!("https://localhost:{port}/hook"));
        if knows_the_ca {
            config.tls.ca_file = Some(variable("PILLARBOX_TEST_CA_FILE").into());
        }
        Ok(Arc::new(Webhook::new("partner", &config).unwrap()))
    }

    async fn with_headers(&self, headers: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped> {
        let config = Config {
            headers: Table::new(headers.iter().copied()).unwrap(),
            ..self.config("/hook")
        };
        Ok(Arc::new(Webhook::new("partner", &config).unwrap()))
    }

    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped> {
        Ok(build(SinkConfig::Webhook(self.config("/hook")), keys).await)
    }

    fn attributes(&self) -> Option<Attributes> {
        Some(Attributes {
            prefix: "ce-",
            percent_encoded: true,
        })
    }
}

mod suite {
    pillarbox_testkit::sink_suite!(super::WebhookHarness::with_tls_server);
}

/// Shows the certificate that all of the test's services show.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    async fn bind() -> Self {
        tokio_rustls::rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let folder = PathBuf::from(variable("PILLARBOX_TEST_SERVICES_DIR")).join("tls");
        let chain = CertificateDer::pem_slice_iter(&fs::read(folder.join("server.pem")).unwrap())
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_slice(&fs::read(folder.join("server.key")).unwrap()).unwrap();
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
        }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // A client that does not like the certificate hangs up; the next one may.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn order() -> Event {
    Event::new("shop", "orders")
        .event_type("OrderCreated")
        .aggregate("order", "4/2")
}

#[tokio::test]
async fn the_receivers_answer_decides() {
    let harness = WebhookHarness::fresh().await;
    for (path, status, name) in [
        ("/202", 202, "delivered"),
        ("/429", 429, "throttled"),
        ("/503", 503, "retry"),
        ("/410", 410, "disable"),
        ("/422", 422, "reject"),
        ("/404", 404, "retry"),
    ] {
        harness.receiver.answer(path, status, &[], "because");
        let outcome = harness.webhook(path).deliver(&delivery(order())).await;
        assert_eq!(outcome.name(), name, "{path}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_answer_of_one_of_many_urls_concerns_that_url_alone() {
    let harness = WebhookHarness::fresh().await;
    harness.receiver.answer("/gone/orders", 410, &[], "because");
    harness
        .receiver
        .answer("/busy/orders", 429, &[("retry-after", "7")], "because");
    let deliver = async |path: &str, topic: &str| {
        let sink = harness.webhook(path);
        let event = delivery(Event::new("shop", topic));
        let outcome = sink.deliver(&event).await;
        (outcome, sink.part(&event))
    };
    let (gone, _) = deliver("/gone/{topic}", "orders").await;
    assert_eq!(gone.name(), "reject", "{gone:?}");
    assert_eq!(deliver("/gone/{topic}", "carts").await.0, Outcome::Delivered);
    let (busy, part) = deliver("/busy/{topic}", "orders").await;
    let Outcome::ThrottledPart { after, .. } = busy else {
        panic!("{busy:?}")
    };
    assert_eq!(after, Some(std::time::Duration::from_secs(7)));
    assert_ne!(part, deliver("/busy/{topic}", "carts").await.1);
    assert_eq!(harness.webhook("/gone").part(&delivery(order())), None);
}

#[tokio::test]
async fn whatever_keeps_a_connection_from_being_made_is_no_failed_attempt() {
    let refused = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    // A server that speaks no TLS, and one that accepts no connection: its queue is full.
    let plain = WebhookHarness::fresh().await;
    let config = |url: String| Config {
        connect_timeout: std::time::Duration::from_millis(300),
        ..Config::new(url)
    };
    for url in [
        format!("http://{refused}/hook"),
        "http://no-such-host.invalid/hook".to_owned(),
        format!("https://{}/hook", plain.proxy.address()),
        "http://192.0.2.1:9/hook".to_owned(),
    ] {
        let sink = Webhook::new("partner", &config(url.clone())).unwrap();
        let outcome = sink.deliver(&delivery(order())).await;
        assert_eq!(outcome.name(), "connect_failed", "{url}: {outcome:?}");
        assert!(
            !format!("{outcome:?}").contains("/hook"),
            "no URL is shown: {outcome:?}"
        );
        let host = url.split('/').nth(2).expect("a host");
        let found = sink.check().await.expect_err("the check confirms it");
        for text in [format!("{outcome:?}"), found] {
            assert!(
                text.contains(host) && text.contains("cannot be reached"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let harness = WebhookHarness::fresh().await;
    harness.receiver.answer("/old", 307, &[("location", "/new")], "");
    let outcome = harness.webhook("/old").deliver(&delivery(order())).await;
    assert_eq!(outcome.name(), "retry", "{outcome:?}");
    assert_eq!(harness.seen(), []);
}

#[tokio::test]
async fn retry_after_is_heard() {
    let harness = WebhookHarness::fresh().await;
    harness.receiver.answer("/busy", 429, &[("retry-after", "7")], "");
    let outcome = harness.webhook("/busy").deliver(&delivery(order())).await;
    let Outcome::Throttled { after, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(after, Some(std::time::Duration::from_secs(7)));
}

#[tokio::test]
async fn a_huge_answer_is_cut_short() {
    let harness = WebhookHarness::fresh().await;
    harness
        .receiver
        .answer("/chatty", 500, &[], &"x".repeat(8 * 1024 * 1024));
    let outcome = harness.webhook("/chatty").deliver(&delivery(order())).await;
    let Outcome::Retry { reason, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        reason.starts_with("the receiver answered 500") && reason.len() < 1200,
        "{reason}"
    );
}

#[tokio::test]
async fn the_path_may_depend_on_the_event() {
    let harness = WebhookHarness::fresh().await;
    let sink = harness.webhook("/hooks/{event_type}/{aggregate_id}?from={destination}");
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    assert_eq!(harness.seen()[0].0, "/hooks/OrderCreated/4%2F2?from=partner");
    assert_eq!(sink.check().await, Ok(()));
}

#[tokio::test]
async fn configured_headers_and_a_token_are_sent() {
    let harness = WebhookHarness::fresh().await;
    let config = Config {
        bearer: Some("right".into()),
        headers: Table::new([
            ("x-shop", Secret::inline("berlin")),
            ("x-path", Secret::env("PATH")),
        ])
        .unwrap(),
        ..harness.config("/guarded")
    };
    let sink = Webhook::new("partner", &config).unwrap();
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    let headers = &harness.seen()[0].1.headers;
    assert_eq!(headers["x-shop"], "berlin");
    assert_eq!(headers["x-path"], variable("PATH"));
}

#[tokio::test]
async fn no_answer_in_time_is_tried_again_and_the_url_is_not_shown() {
    let harness = WebhookHarness::fresh().await;
    harness.proxy.mute();
    let config = Config {
        timeout: std::time::Duration::from_millis(300),
        ..harness.config("/hook?token=hunter2")
    };
    let sink = Webhook::new("partner", &config).unwrap();
    let outcome = sink.deliver(&delivery(order())).await;
    let Outcome::Retry { reason, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        reason.contains("in time") && !reason.contains("hunter2"),
        "{reason}"
    );
}

#[tokio::test]
async fn an_unknown_host_is_a_failed_connection() {
    let sink = Webhook::new(
        "partner",
        &Config::new("http://no-such-host.invalid/?token=hunter2"),
    )
    .unwrap();
    let outcome = sink.deliver(&delivery(order())).await;
    let Outcome::ConnectFailed { reason } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(!reason.contains("hunter2"), "{reason}");
    assert!(!sink.check().await.unwrap_err().contains("hunter2"));
}

#[tokio::test]
async fn a_client_certificate_that_cannot_be_used_is_refused_at_the_start() {
    let config = Config {
        tls: Tls {
            cert_file: Some(variable("PILLARBOX_TEST_CA_FILE").into()),
            key_file: Some(variable("PILLARBOX_TEST_CA_FILE").into()),
            ..Tls::default()
        },
        ..Config::new("https://localhost/")
    };
    assert_eq!(
        Webhook::new("partner", &config).err().unwrap().key,
        "tls.cert_file"
    );
}

#[tokio::test]
async fn a_receiver_verifies_what_is_signed_by_either_secret() {
    let harness = WebhookHarness::fresh().await;
    let secrets = [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ];
    let config = Config {
        signing_secrets: secrets.map(Secret::from).to_vec(),
        ..harness.config("/signed")
    };
    let sink = Webhook::new("partner", &config).unwrap();
    let event = Event::new("shop", "orders").header("webhook-signature", "v1,forged");
    assert_eq!(sink.deliver(&delivery(event.clone())).await, Outcome::Delivered);

    let (_, arrived) = harness.receiver.arrived.lock().unwrap().remove(0);
    let header = |name: &'static str| arrived.headers.get(name).map(String::as_str);
    let now = SystemClock.wall();
    for secret in secrets {
        let keys = Keys::new([secret]).unwrap();
        let verified = keys.verify(header, &arrived.payload, now).unwrap();
        assert_eq!(verified.event_id(), Some(event.id));
        let changed = keys.verify(header, b"{}\n", now);
        assert_eq!(changed, Err(Unverified::Forged));
    }
    let stranger = Keys::new(["whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA="]).unwrap();
    assert_eq!(
        stranger.verify(header, &arrived.payload, now),
        Err(Unverified::Forged)
    );
}
