//! The NATS sink against a real server, behind a proxy that can be cut.

#![cfg(feature = "nats")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{self, DiscardPolicy};
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{ConnectOptions, ServerAddr};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{join_all, try_join_all};
use nkeys::KeyPair;
use pillarbox::{Delivery, Event, Outcome, Sink};
use pillarbox_sinks::headers::Table;
use pillarbox_sinks::nats::{Config, CreateStream, Nats};
use pillarbox_sinks::{SinkConfig, Template};
use pillarbox_testkit::sink_suite::{Arrived, Attributes, Harness, delivery, event_id};
use pillarbox_testkit::{Private, Proxy, Skipped};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::{build, fresh_name, order, private_ca, retry_reason, until_it_answers, variable};

/// Its own five seconds to connect and ten for an answer are not enough on a machine that is busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A stream of our own, read past the proxy.
pub(crate) struct NatsHarness {
    stream: String,
    proxy: Proxy,
    jetstream: Context,
    arrived: Mutex<Vec<Arrived>>,
}

impl NatsHarness {
    pub(crate) async fn fresh() -> Self {
        Self::at(&variable("PILLARBOX_TEST_NATS_URL")).await
    }

    async fn at(url: &str) -> Self {
        let jetstream = connect(url).await;
        let stream = fresh_name("orders");
        create(&jetstream, &stream, &format!("{stream}.>")).await;
        let server: ServerAddr = url.parse().unwrap();
        Self {
            stream,
            proxy: Proxy::start(format!("{}:{}", server.host(), server.port())).await,
            jetstream,
            arrived: Mutex::default(),
        }
    }

    fn config(&self) -> Config {
        self.config_at(format!("nats://{}", self.proxy.address()))
    }

    fn config_at(&self, url: String) -> Config {
        Config {
            subject: Template::parse(&format!("{}.{{topic}}", self.stream)).unwrap(),
            ..Config::new(url)
        }
    }

    fn nats(&self, config: &Config) -> Nats {
        Nats::new("stream", config).unwrap()
    }
}

async fn connect(url: &str) -> Context {
    let options = ConnectOptions::new().connection_timeout(TIMEOUT);
    let client = options.connect(url).await.unwrap();
    ContextBuilder::new().timeout(TIMEOUT).build(client)
}

async fn create(jetstream: &Context, name: &str, subject: &str) {
    let config = stream::Config {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        ..stream::Config::default()
    };
    jetstream.create_stream(config).await.unwrap();
}

async fn count(jetstream: &Context, name: &str) -> u64 {
    let stream = jetstream.get_stream(name).await.unwrap();
    stream.cached_info().state.messages
}

/// What the stream holds from this message on.
async fn read_from(jetstream: &Context, name: &str, first: u64) -> Vec<StreamMessage> {
    let stream = jetstream.get_stream(name).await.unwrap();
    let last = stream.cached_info().state.last_sequence;
    let reading = (first..=last).map(|sequence| stream.get_raw_message(sequence));
    try_join_all(reading).await.unwrap()
}

fn read(message: StreamMessage) -> Arrived {
    let headers: BTreeMap<String, String> = message
        .headers
        .iter()
        .map(|(name, values)| (name.to_string().to_lowercase(), values[0].to_string()))
        .collect();
    Arrived {
        id: event_id(&headers, &message.payload),
        payload: message.payload,
        content_type: headers["content-type"].clone(),
        content_encoding: headers.get("content-encoding").cloned(),
        headers,
    }
}

#[async_trait]
impl Harness for NatsHarness {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.nats(&self.config()))
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let mut arrived = self.arrived.lock().await;
        let next = u64::try_from(arrived.len()).unwrap() + 1;
        let new = read_from(&self.jetstream, &self.stream, next).await;
        arrived.extend(new.into_iter().map(read));
        arrived.clone()
    }

    fn drops_duplicates(&self) -> bool {
        true
    }

    fn connection_host(&self) -> Option<String> {
        Some(self.proxy.address().to_string())
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }

    fn poison(&self) -> Result<Event, Skipped> {
        Ok(Event::new("shop", "no subject"))
    }

    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped> {
        let config = Config {
            user: Some("pillarbox".to_owned()),
            password: Some("hunter2".into()),
            ..self.config()
        };
        Ok((Arc::new(self.nats(&config)), "hunter2".to_owned()))
    }

    async fn with_tls(&self, knows_the_ca: bool) -> Result<Arc<dyn Sink>, Skipped> {
        let config = Config {
            tls: knows_the_ca.then(private_ca),
            ..self.config_at(variable("PILLARBOX_TEST_NATS_TLS_URL"))
        };
        Ok(Arc::new(self.nats(&config)))
    }

    async fn with_headers(&self, headers: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped> {
        let config = Config {
            headers: Table::new(headers.iter().copied()).unwrap(),
            ..self.config()
        };
        Ok(Arc::new(self.nats(&config)))
    }

    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped> {
        Ok(build(SinkConfig::Nats(self.config()), keys).await)
    }

    fn attributes(&self) -> Option<Attributes> {
        Some(Attributes {
            prefix: "ce-",
            percent_encoded: true,
        })
    }

    async fn clean_up(&self) {
        self.jetstream.delete_stream(&self.stream).await.unwrap();
    }
}

mod suite {
    pillarbox_testkit::sink_suite!(super::NatsHarness::fresh);
}

fn reject_reason(outcome: Outcome) -> String {
    let Outcome::Reject { reason } = outcome else {
        panic!("{outcome:?}")
    };
    reason
}

#[tokio::test]
async fn siblings_of_one_event_get_through_and_copies_of_one_row_do_not() {
    let harness = NatsHarness::fresh().await;
    let sink = harness.sink().await;
    let first = delivery(order());
    let sibling = Delivery {
        id: Uuid::now_v7(),
        ..first.clone()
    };
    for sent in [&first, &sibling, &first, &sibling] {
        assert_eq!(sink.deliver(sent).await, Outcome::Delivered);
    }
    let arrived = harness.arrived().await;
    assert_eq!(arrived.len(), 2, "{arrived:?}");
    for (arrived, sent) in arrived.iter().zip([&first, &sibling]) {
        assert_eq!(arrived.id, first.event.id);
        assert_eq!(
            arrived.headers["nats-msg-id"],
            format!("{}.{}", sent.id, sent.seq)
        );
    }
}

/// The import of a reset row gives it a new `seq`: `a_reset_row_is_no_duplicate_of_its_first_delivery` in the store's tests.
#[tokio::test]
async fn a_row_that_is_imported_again_gets_through_and_its_retries_do_not() {
    let harness = NatsHarness::fresh().await;
    let sink = harness.sink().await;
    let first = delivery(order());
    let reset = Delivery {
        seq: first.seq + 1,
        event: order().id(first.event.id),
        ..first.clone()
    };
    let retry = |of: &Delivery| Delivery {
        attempts: of.attempts + 1,
        claim: Uuid::new_v4(),
        ..of.clone()
    };
    for sent in [&first, &retry(&first), &reset, &retry(&reset)] {
        assert_eq!(sink.deliver(sent).await, Outcome::Delivered);
    }
    let arrived = harness.arrived().await;
    assert_eq!(arrived.len(), 2, "{arrived:?}");
    assert!(arrived.iter().all(|one| one.id == first.event.id), "{arrived:?}");
}

#[tokio::test]
async fn a_subject_that_no_stream_takes_says_so_and_can_be_mended() {
    let harness = NatsHarness::fresh().await;
    let name = fresh_name("later");
    let config = Config {
        subject: Template::parse(&name).unwrap(),
        ..harness.config()
    };
    let sink = harness.nats(&config);
    assert_eq!(sink.check().await, Ok(()));
    let reason = retry_reason(sink.deliver(&delivery(order())).await);
    assert!(
        reason.contains("no stream has") && reason.contains(&name),
        "{reason}"
    );
    create(&harness.jetstream, &name, &name).await;
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_stream_that_is_not_there_is_named_and_created_if_asked() {
    let harness = NatsHarness::fresh().await;
    let name = fresh_name("named");
    let config = Config {
        subject: Template::parse(&format!("{name}.{{topic}}")).unwrap(),
        stream: Some(name.clone()),
        ..harness.config()
    };
    let said = harness.nats(&config).check().await.unwrap_err();
    assert!(said.contains(&name) && said.contains("`create_stream`"), "{said}");
    let config = Config {
        create_stream: Some(CreateStream {
            subjects: vec![format!("{name}.>")],
            replicas: 1,
        }),
        ..config
    };
    let sink = harness.nats(&config);
    assert_eq!(sink.check().await, Ok(()));
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    let found = harness.jetstream.get_stream(&name).await.unwrap();
    assert_eq!(found.cached_info().config.storage, stream::StorageType::File);
    assert_eq!(found.cached_info().state.messages, 1);
}

#[tokio::test]
async fn a_stream_that_is_there_is_left_as_it_is() {
    let harness = NatsHarness::fresh().await;
    let config = Config {
        stream: Some(harness.stream.clone()),
        create_stream: Some(CreateStream {
            subjects: vec!["something.else".to_owned()],
            replicas: 1,
        }),
        ..harness.config()
    };
    let sink = harness.nats(&config);
    assert_eq!(sink.check().await, Ok(()));
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    let found = harness.jetstream.get_stream(&harness.stream).await.unwrap();
    assert_eq!(
        found.cached_info().config.subjects,
        [format!("{}.>", harness.stream)]
    );
}

#[tokio::test]
async fn another_stream_than_the_named_one_does_not_count() {
    let harness = NatsHarness::fresh().await;
    let other = fresh_name("other");
    create(&harness.jetstream, &other, &other).await;
    let config = Config {
        stream: Some(other),
        ..harness.config()
    };
    let sink = harness.nats(&config);
    assert_eq!(sink.check().await, Ok(()));
    let reason = retry_reason(sink.deliver(&delivery(order())).await);
    assert!(reason.contains("another stream"), "{reason}");
    assert_eq!(harness.arrived().await, []);
}

#[tokio::test]
async fn what_is_too_large_is_rejected_and_harms_no_neighbour() {
    let harness = NatsHarness::fresh().await;
    let sink = harness.sink().await;
    let huge = order().bytes(vec![0; 4 * 1024 * 1024], "application/octet-stream");
    let reason = reject_reason(sink.deliver(&delivery(huge)).await);
    assert!(reason.contains("`max_payload`"), "{reason}");
    let narrow = fresh_name("narrow");
    let limited = stream::Config {
        name: narrow.clone(),
        subjects: vec![narrow.clone()],
        max_message_size: 2000,
        ..stream::Config::default()
    };
    harness.jetstream.create_stream(limited).await.unwrap();
    let config = Config {
        subject: Template::parse(&narrow).unwrap(),
        ..harness.config()
    };
    let sink = Arc::new(harness.nats(&config));
    let large = delivery(order().bytes(vec![0; 3000], "application/octet-stream"));
    let mut tasks = JoinSet::new();
    for sent in std::iter::once(large.clone()).chain((0..50).map(|_| delivery(order()))) {
        let sink = sink.clone();
        tasks.spawn(async move { (sent.id, sink.deliver(&sent).await) });
    }
    for (id, outcome) in tasks.join_all().await {
        if id == large.id {
            assert!(reject_reason(outcome).contains("exceeds maximum"));
        } else {
            assert_eq!(outcome, Outcome::Delivered);
        }
    }
}

#[tokio::test]
async fn a_full_stream_is_tried_again() {
    let harness = NatsHarness::fresh().await;
    let name = fresh_name("full");
    let config = stream::Config {
        name: name.clone(),
        subjects: vec![name.clone()],
        max_messages: 1,
        discard: DiscardPolicy::New,
        ..stream::Config::default()
    };
    let full = harness.jetstream.create_stream(config).await.unwrap();
    let config = Config {
        subject: Template::parse(&name).unwrap(),
        ..harness.config()
    };
    let sink = harness.nats(&config);
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    let waiting = delivery(order());
    let reason = retry_reason(sink.deliver(&waiting).await);
    assert!(reason.contains("maximum messages exceeded"), "{reason}");
    full.purge().await.unwrap();
    assert_eq!(sink.deliver(&waiting).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_user_without_permission_is_an_error() {
    let harness = NatsHarness::fresh().await;
    let name = fresh_name("allowed");
    create(&harness.jetstream, &name, &format!("allowed.{name}")).await;
    let config = Config {
        user: Some("limited".to_owned()),
        password: Some("limited".into()),
        ..harness.config()
    };
    let sink = harness.nats(&config);
    assert_eq!(sink.check().await, Ok(()));
    let reason = retry_reason(sink.deliver(&delivery(order())).await);
    assert!(
        reason.contains("may not publish to") && reason.contains(&harness.stream),
        "{reason}"
    );
    let config = Config {
        stream: Some(name.clone()),
        subject: Template::parse(&format!("allowed.{name}")).unwrap(),
        ..config
    };
    let sink = harness.nats(&config);
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    let said = sink.check().await.unwrap_err();
    assert!(said.contains(&format!("$JS.API.STREAM.INFO.{name}")), "{said}");
}

#[tokio::test]
async fn a_right_password_is_let_in_from_the_url_and_beside_it() {
    let harness = NatsHarness::fresh().await;
    let in_url = harness.config_at(variable("PILLARBOX_TEST_NATS_AUTH_URL"));
    let beside = Config {
        user: Some("pillarbox".to_owned()),
        password: Some("secret".into()),
        ..harness.config()
    };
    for config in [in_url, beside] {
        let sink = harness.nats(&config);
        assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    }
}

#[tokio::test]
async fn the_next_server_is_tried_if_one_is_away() {
    let harness = NatsHarness::fresh().await;
    let there = harness.proxy.address();
    let config = harness.config_at(format!("nats://127.0.0.1:1,nats://{there}"));
    let sink = harness.nats(&config);
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let config = Config {
        connect_timeout: Duration::from_secs(2),
        ..harness.config_at(format!("nats://{address},nats://{there}"))
    };
    let sink = harness.nats(&config);
    until_it_answers(&sink).await;
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_server_that_says_nothing_does_not_hold_up_a_check() {
    let harness = NatsHarness::fresh().await;
    let config = Config {
        connect_timeout: Duration::from_millis(500),
        ..harness.config()
    };
    let sink = harness.nats(&config);
    until_it_answers(&sink).await;
    harness.proxy.black_hole();
    let said = sink.check().await.unwrap_err();
    assert!(said.contains("did not answer within 500ms"), "{said}");
    harness.proxy.restore().await;
    until_it_answers(&sink).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deliveries_share_one_connection() {
    let harness = NatsHarness::fresh().await;
    let sink = harness.sink().await;
    let outcomes = deliver_all(&sink, (0..100).map(|_| delivery(order())).collect()).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Delivered));
    assert_eq!(harness.proxy.accepted(), 1);
}

/// The client would send it when it has connected again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_in_a_client_whose_connection_was_lost_is_never_sent() {
    let harness = NatsHarness::fresh().await;
    let sink = harness.sink().await;
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    harness.proxy.black_hole();
    // More than the buffers on the way take, so that some wait in the client's queue and some with us.
    let bytes = Bytes::from(vec![0; 2 * 1024 * 1024]);
    let large = || delivery(order().bytes(bytes.clone(), "application/octet-stream"));
    let sent: Vec<Delivery> = (0..100).map(|_| large()).collect();
    let mut stuck: Vec<_> = sent.iter().map(|one| sink.deliver(one)).collect();
    for one in &mut stuck {
        assert_eq!(one.now_or_never(), None);
    }
    harness.proxy.cut();
    harness.proxy.restore().await;
    for outcome in join_all(stuck).await {
        assert!(
            matches!(outcome.name(), "connection_lost" | "unavailable"),
            "{outcome:?}"
        );
    }
    // Three connections: the first, the one that the lost client tries in vain, and the one of this event.
    let last = delivery(order());
    assert_eq!(sink.deliver(&last).await, Outcome::Delivered);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while harness.proxy.accepted() < 3 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the client made no attempt"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    assert_eq!(harness.arrived().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_mid_flight_loses_nothing_that_was_confirmed() {
    let server = Private::start("nats");
    let url = server.url("PILLARBOX_TEST_NATS_URL");
    let harness = NatsHarness::at(&url).await;
    let sink: Arc<dyn Sink> = Arc::new(harness.nats(&harness.config_at(url.clone())));
    let mut streams = JoinSet::new();
    for _ in 0..50 {
        streams.spawn(deliver_until_it_fails(sink.clone()));
    }
    while count(&harness.jetstream, &harness.stream).await < 500 {}
    tokio::task::block_in_place(|| server.kill());
    let ended = streams.join_all().await;
    assert_eq!(
        sink.deliver(&delivery(order())).await.name(),
        "unavailable",
        "the server is unavailable"
    );
    tokio::task::block_in_place(|| server.start_again());
    let jetstream = connect(&url).await;
    let there: BTreeSet<Uuid> = ids(&jetstream, &harness.stream).await.into_iter().collect();
    let mut expected = there.clone();
    for (sent, outcome) in &ended {
        assert!(
            matches!(outcome.name(), "connection_lost" | "unavailable"),
            "{outcome:?}"
        );
        let (last, confirmed) = sent.split_last().unwrap();
        assert!(
            confirmed.iter().all(|one| there.contains(&one.id)),
            "a confirmed message is lost"
        );
        // It may be there already; sent again, it is there once.
        assert_eq!(sink.deliver(last).await, Outcome::Delivered);
        expected.insert(last.id);
    }
    let there = ids(&jetstream, &harness.stream).await;
    assert_eq!(there.len(), expected.len());
    assert_eq!(there.into_iter().collect::<BTreeSet<_>>(), expected);
}

/// Delivers one event after another until one fails. Returns all of them, and how the last one ended.
async fn deliver_until_it_fails(sink: Arc<dyn Sink>) -> (Vec<Delivery>, Outcome) {
    let mut sent = Vec::new();
    loop {
        sent.push(delivery(order()));
        let outcome = sink.deliver(&sent[sent.len() - 1]).await;
        if outcome != Outcome::Delivered {
            return (sent, outcome);
        }
    }
}

async fn ids(jetstream: &Context, stream: &str) -> Vec<Uuid> {
    let messages = read_from(jetstream, stream, 1).await;
    messages.into_iter().map(|message| read(message).id).collect()
}

async fn deliver_all(sink: &Arc<dyn Sink>, deliveries: Vec<Delivery>) -> Vec<(Uuid, Outcome)> {
    let mut tasks = JoinSet::new();
    for delivery in deliveries {
        let sink = sink.clone();
        tasks.spawn(async move { (delivery.id, sink.deliver(&delivery).await) });
    }
    tasks.join_all().await
}

#[tokio::test]
async fn a_token_authenticates() {
    let users = (
        "PILLARBOX_SERVICES_NATS",
        "authorization: { token: s3cret }".to_owned(),
    );
    let server = Private::start_with("nats", vec![users]);
    let url = server.url("PILLARBOX_TEST_NATS_URL");
    let with = |token: &str| Config {
        token: Some(token.into()),
        ..Config::new(url.as_str())
    };
    assert_eq!(
        Nats::new("stream", &with("s3cret")).unwrap().check().await,
        Ok(())
    );
    let said = Nats::new("stream", &with("hunter2"))
        .unwrap()
        .check()
        .await
        .unwrap_err();
    assert!(
        said.contains("refused the token") && !said.contains("hunter2"),
        "{said}"
    );
}

#[tokio::test]
async fn a_credentials_file_authenticates() {
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
    let limits = json!({"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1, "subs": -1,
        "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1, "wildcards": true});
    let no_jetstream = json!({"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1,
        "payload": -1, "wildcards": true});
    let account_claims = |limits| json!({"type": "account", "version": 2, "limits": limits});
    let user_claims =
        json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}});
    let user_jwt = signed(&account, &user, user_claims);
    let users = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}",
        signed(&operator, &operator, json!({"type": "operator", "version": 2})),
        system.public_key(),
        system.public_key(),
        signed(&operator, &system, account_claims(no_jetstream)),
        account.public_key(),
        signed(&operator, &account, account_claims(limits)),
    );
    let server = Private::start_with("nats", vec![("PILLARBOX_SERVICES_NATS", users)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("user.creds");
    let file = |seed: &str| {
        format!(
            "-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    };
    std::fs::write(&path, file(&user.seed().unwrap())).unwrap();
    let config = Config {
        credentials: Some(pillarbox_sinks::Secret::file(&path)),
        ..Config::new(server.url("PILLARBOX_TEST_NATS_URL"))
    };
    let sink = Nats::new("stream", &config).unwrap();
    assert_eq!(sink.check().await, Ok(()));
    // The key of another user is refused.
    std::fs::write(&path, file(&KeyPair::new_user().seed().unwrap())).unwrap();
    let sink = Nats::new("stream", &config).unwrap();
    let said = sink.check().await.unwrap_err();
    assert!(said.contains("refused the credentials"), "{said}");
}

/// A JWT as NATS has them: signed with an nkey.
fn signed(issuer: &KeyPair, subject: &KeyPair, claims: serde_json::Value) -> String {
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let body = part(&json!({
        "jti": Uuid::now_v7().to_string(), "iat": 1_700_000_000, "name": "test",
        "iss": issuer.public_key(), "sub": subject.public_key(), "nats": claims,
    }));
    let signature = issuer.sign(format!("{header}.{body}").as_bytes()).unwrap();
    format!("{header}.{body}.{}", URL_SAFE_NO_PAD.encode(signature))
}
