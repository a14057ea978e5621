//! The Redis sink against a real server, behind a proxy that can be cut.

#![cfg(feature = "redis")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pillarbox::{Delivery, Event, Outcome, Sink};
use pillarbox_sinks::headers::Table;
use pillarbox_sinks::redis::{Config, Redis};
use pillarbox_sinks::{SinkConfig, Template};
use pillarbox_testkit::sink_suite::{Arrived, Attributes, Harness, delivery, event_id};
use pillarbox_testkit::{Private, Proxy, Skipped};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, cmd};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::{build, fresh_name, order, private_ca, retry_reason, until_it_answers, variable};

/// Entries as XRANGE gives them: an id, then names and values in turn.
type Entries = Vec<(String, Vec<Vec<u8>>)>;

/// A stream of our own, read past the proxy.
pub(crate) struct RedisHarness {
    stream: String,
    proxy: Proxy,
    connection: MultiplexedConnection,
}

impl RedisHarness {
    pub(crate) async fn fresh() -> Self {
        Self::at(&variable("PILLARBOX_TEST_REDIS_URL")).await
    }

    async fn at(url: &str) -> Self {
        Self {
            stream: fresh_name("orders"),
            proxy: Proxy::start(url.trim_start_matches("redis://")).await,
            connection: connect(url).await,
        }
    }

    fn config(&self) -> Config {
        self.config_at(format!("redis://{}", self.proxy.address()))
    }

    fn config_at(&self, url: String) -> Config {
        Config {
            stream: Template::parse(&self.stream).unwrap(),
            ..Config::new(url)
        }
    }

    fn redis(&self, config: &Config) -> Redis {
        Redis::new("stream", config).unwrap()
    }

    /// Runs a command, past the proxy.
    async fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        run(&self.connection, words).await
    }
}

async fn connect(url: &str) -> MultiplexedConnection {
    let client = Client::open(url).unwrap();
    // Its own second to connect and half a second for an answer are not enough on a machine that is busy.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    connection.await.unwrap()
}

async fn run<T: FromRedisValue>(connection: &MultiplexedConnection, words: &[&str]) -> T {
    let mut command = cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(&mut connection.clone()).await.unwrap()
}

async fn read_all(connection: &MultiplexedConnection, stream: &str) -> Vec<Arrived> {
    let entries: Entries = run(connection, &["XRANGE", stream, "-", "+"]).await;
    entries.into_iter().map(|(_, fields)| read(fields)).collect()
}

fn read(fields: Vec<Vec<u8>>) -> Arrived {
    let mut headers = BTreeMap::new();
    let mut payload = Bytes::new();
    for pair in fields.chunks(2) {
        let name = String::from_utf8(pair[0].clone()).unwrap().to_lowercase();
        if name == "payload" {
            payload = Bytes::from(pair[1].clone());
        } else {
            headers.insert(name, String::from_utf8(pair[1].clone()).unwrap());
        }
    }
    Arrived {
        id: event_id(&headers, &payload),
        payload,
        content_type: headers["content-type"].clone(),
        content_encoding: headers.get("content-encoding").cloned(),
        headers,
    }
}

#[async_trait]
impl Harness for RedisHarness {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.redis(&self.config()))
    }

    async fn arrived(&self) -> Vec<Arrived> {
        read_all(&self.connection, &self.stream).await
    }

    fn connection_host(&self) -> Option<String> {
        Some(self.proxy.address().to_string())
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }

    fn poison(&self) -> Result<Event, Skipped> {
        Err(Skipped("a Redis stream takes any name and any value"))
    }

    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped> {
        let config = Config {
            user: Some("pillarbox".to_owned()),
            password: Some("hunter2".into()),
            ..self.config()
        };
        Ok((Arc::new(self.redis(&config)), "hunter2".to_owned()))
    }

    async fn with_tls(&self, knows_the_ca: bool) -> Result<Arc<dyn Sink>, Skipped> {
        let config = Config {
            tls: knows_the_ca.then(private_ca),
            ..self.config_at(variable("PILLARBOX_TEST_REDIS_TLS_URL"))
        };
        Ok(Arc::new(self.redis(&config)))
    }

    async fn with_headers(&self, headers: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped> {
        let config = Config {
            headers: Table::new(headers.iter().copied()).unwrap(),
            ..self.config()
        };
        Ok(Arc::new(self.redis(&config)))
    }

    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped> {
        Ok(build(SinkConfig::Redis(self.config()), keys).await)
    }

    fn attributes(&self) -> Option<Attributes> {
        Some(Attributes {
            prefix: "ce-",
            percent_encoded: false,
        })
    }

    async fn clean_up(&self) {
        let _: i64 = self.run(&["DEL", &self.stream]).await;
    }
}

mod suite {
    pillarbox_testkit::sink_suite!(super::RedisHarness::fresh);
}

#[tokio::test]
async fn a_key_that_is_no_stream_says_so_and_can_be_mended() {
    let harness = RedisHarness::fresh().await;
    let () = harness.run(&["SET", &harness.stream, "a text"]).await;
    let sink = harness.sink().await;
    assert_eq!(sink.check().await, Ok(()));
    let sent = delivery(order());
    let reason = retry_reason(sink.deliver(&sent).await);
    assert!(reason.contains("is not a stream"), "{reason}");
    let _: i64 = harness.run(&["DEL", &harness.stream]).await;
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
}

#[tokio::test]
async fn an_event_without_the_streams_name_is_rejected() {
    let harness = RedisHarness::fresh().await;
    let config = Config {
        stream: Template::parse("orders:{severity}").unwrap(),
        ..harness.config()
    };
    let outcome = harness.redis(&config).deliver(&delivery(order())).await;
    assert_eq!(outcome.name(), "reject", "{outcome:?}");
}

#[tokio::test]
async fn a_full_server_is_unavailable_and_check_says_so() {
    let server = Private::start("redis");
    let harness = RedisHarness::at(&server.url("PILLARBOX_TEST_REDIS_URL")).await;
    let sink = harness.sink().await;
    assert_eq!(sink.check().await, Ok(()));
    let () = harness.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let sent = delivery(order());
    let outcome = sink.deliver(&sent).await;
    assert_eq!(outcome.name(), "unavailable", "{outcome:?}");
    let said = sink.check().await.unwrap_err();
    assert!(said.contains("OOM") && said.contains("maxmemory"), "{said}");
    let () = harness.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(sink.check().await, Ok(()));
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    assert_eq!(harness.arrived().await.len(), 1, "check adds nothing");
    let keys: Vec<String> = harness.run(&["KEYS", "*"]).await;
    assert_eq!(keys, [harness.stream.as_str()]);
}

#[tokio::test]
async fn a_replica_is_unavailable_until_it_is_the_master() {
    let server = Private::start("redis");
    let harness = RedisHarness::at(&server.url("PILLARBOX_TEST_REDIS_URL")).await;
    let sink = harness.sink().await;
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    let () = harness.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let outcome = sink.deliver(&delivery(order())).await;
    assert_eq!(outcome.name(), "unavailable", "{outcome:?}");
    assert!(sink.check().await.is_err());
    let () = harness.run(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    assert!(
        harness.proxy.accepted() > 1,
        "a new connection may lead to another server"
    );
}

#[tokio::test]
async fn a_user_without_permission_is_an_error() {
    let harness = RedisHarness::fresh().await;
    let config = Config {
        user: Some("limited".to_owned()),
        password: Some("limited".into()),
        ..harness.config()
    };
    let sink = harness.redis(&config);
    assert_eq!(sink.check().await, Ok(()));
    let reason = retry_reason(sink.deliver(&delivery(order())).await);
    assert!(reason.contains("may not write to the stream"), "{reason}");
    let config = Config {
        stream: Template::parse(&format!("allowed:{}", harness.stream)).unwrap(),
        ..config
    };
    let sink = harness.redis(&config);
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
}

#[tokio::test]
async fn a_right_password_is_let_in_from_the_url_and_beside_it() {
    let harness = RedisHarness::fresh().await;
    let in_url = harness.config_at(variable("PILLARBOX_TEST_REDIS_AUTH_URL"));
    let beside = Config {
        user: Some("pillarbox".to_owned()),
        password: Some("secret".into()),
        ..harness.config()
    };
    for config in [in_url, beside] {
        let sink = harness.redis(&config);
        assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_trimmed_if_asked() {
    let harness = RedisHarness::fresh().await;
    let config = Config {
        max_len: NonZeroU64::new(100),
        ..harness.config()
    };
    let sink: Arc<dyn Sink> = Arc::new(harness.redis(&config));
    let outcomes = deliver_all(&sink, (0..1000).map(|_| delivery(order())).collect()).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Delivered));
    let left: usize = harness.run(&["XLEN", &harness.stream]).await;
    assert!((100..1000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_server_that_says_nothing_does_not_hold_up_a_check() {
    let harness = RedisHarness::fresh().await;
    let config = Config {
        connect_timeout: Duration::from_millis(500),
        ..harness.config()
    };
    let sink = harness.redis(&config);
    until_it_answers(&sink).await;
    harness.proxy.black_hole();
    let said = sink.check().await.unwrap_err();
    assert!(said.contains("did not answer within 500ms"), "{said}");
    harness.proxy.restore().await;
    until_it_answers(&sink).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deliveries_share_one_connection() {
    let harness = RedisHarness::fresh().await;
    let sink = harness.sink().await;
    let outcomes = deliver_all(&sink, (0..100).map(|_| delivery(order())).collect()).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Delivered));
    assert_eq!(harness.proxy.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_mid_flight_loses_nothing_that_was_confirmed() {
    let server = Private::start("redis");
    let url = server.url("PILLARBOX_TEST_REDIS_URL");
    let harness = RedisHarness::at(&url).await;
    let sink: Arc<dyn Sink> = Arc::new(harness.redis(&harness.config_at(url.clone())));
    let mut streams = JoinSet::new();
    for _ in 0..50 {
        streams.spawn(deliver_until_it_fails(sink.clone()));
    }
    while harness.run::<usize>(&["XLEN", &harness.stream]).await < 1000 {}
    tokio::task::block_in_place(|| server.kill());
    let ended = streams.join_all().await;
    assert_eq!(
        sink.deliver(&delivery(order())).await.name(),
        "unavailable",
        "the server is unavailable"
    );
    tokio::task::block_in_place(|| server.start_again());
    let there = read_all(&connect(&url).await, &harness.stream).await;
    let there: BTreeSet<Uuid> = there.into_iter().map(|one| one.id).collect();
    for (sent, outcome) in ended {
        assert!(
            matches!(outcome.name(), "connection_lost" | "unavailable"),
            "{outcome:?}"
        );
        let confirmed = &sent[..sent.len() - 1];
        assert!(
            confirmed.iter().all(|one| there.contains(&one.id)),
            "a confirmed entry is lost"
        );
    }
    assert_eq!(sink.deliver(&delivery(order())).await, Outcome::Delivered);
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

async fn deliver_all(sink: &Arc<dyn Sink>, deliveries: Vec<Delivery>) -> Vec<(Uuid, Outcome)> {
    let mut tasks = JoinSet::new();
    for delivery in deliveries {
        let sink = sink.clone();
        tasks.spawn(async move { (delivery.id, sink.deliver(&delivery).await) });
    }
    tasks.join_all().await
}
