//! A secret in the configuration of a sink is in no error and in no log line.

#![cfg(feature = "full")]

use std::sync::Arc;

use pillarbox::Sink;
use pillarbox_sinks::SinkConfig;
use pillarbox_testkit::CapturedLogs;
use pillarbox_testkit::sink_suite::delivery;

use crate::environment::{build, order};

/// What must not be seen.
const CANARY: &str = "canary-5f0b6c1d";

/// Destinations that nothing listens at, with a secret wherever one may be.
const UNREACHABLE: [&str; 9] = [
    "type = \"rabbitmq\"\nurl = \"amqp://shop:canary-5f0b6c1d@127.0.0.1:1/%2f\"\nexchange = \"e\"",
    "type = \"rabbitmq\"\nurl = \"amqps://shop:canary-5f0b6c1d@127.0.0.1:1/%2f\"\nexchange = \"e\"",
    "type = \"rabbitmq\"\nhost = \"127.0.0.1\"\nport = 1\nuser = \"shop\"\npassword = \"canary-5f0b6c1d\"\nexchange = \"e\"",
    "type = \"nats\"\nurl = \"nats://shop:canary-5f0b6c1d@127.0.0.1:1,tls://shop:canary-5f0b6c1d@127.0.0.1:2\"",
    "type = \"nats\"\nurl = \"nats://canary-5f0b6c1d@127.0.0.1:1\"",
    "type = \"nats\"\nurl = \"nats://127.0.0.1:1\"\ntoken = \"canary-5f0b6c1d\"",
    "type = \"redis\"\nurl = \"redis://shop:canary-5f0b6c1d@127.0.0.1:1/0\"",
    "type = \"redis\"\nurl = \"rediss://:canary-5f0b6c1d@127.0.0.1:1/0\"",
    "type = \"kafka\"\nbrokers = \"127.0.0.1:1\"\ntimeout = \"2s\"\n\
     sasl = { mechanism = \"PLAIN\", user = \"shop\", password = \"canary-5f0b6c1d\" }",
];

/// Settings that are refused, with a secret in them.
const REFUSED: [&str; 6] = [
    "type = \"rabbitmq\"\nurl = \"http://shop:canary-5f0b6c1d@mq\"\nexchange = \"e\"",
    "type = \"rabbitmq\"\nurl = \"amqp://shop:canary-5f0b6c1d@[::1]:5672\"\nexchange = \"e\"",
    "type = \"nats\"\nurl = \"ws://shop:canary-5f0b6c1d@mq\"",
    "type = \"nats\"\nurl = \"nats://a@mq\"\ntoken = \"canary-5f0b6c1d\"",
    "type = \"redis\"\nurl = \"http://shop:canary-5f0b6c1d@cache\"",
    "type = \"redis\"\nurl = \"rediss://shop:canary-5f0b6c1d@cache/#insecure\"",
];

fn config(text: &str) -> SinkConfig {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[tokio::test]
async fn a_destination_that_cannot_be_reached_is_reported_without_its_secret() {
    let logs = CapturedLogs::of_process();
    for text in UNREACHABLE {
        let sink: Arc<dyn Sink> = build(config(text), "").await;
        let error = sink.check().await.unwrap_err();
        let outcome = format!("{:?}", sink.deliver(&delivery(order())).await);
        assert!(error.contains("127.0.0.1"), "{error}");
        assert!(
            !error.contains(CANARY) && !outcome.contains(CANARY),
            "{error} {outcome}"
        );
    }
    let lines = logs.lines();
    for host in ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"] {
        assert!(
            lines.iter().any(|line| line.field("host") == Some(host)),
            "{host}"
        );
    }
    for line in lines {
        assert!(!format!("{line:?}").contains(CANARY), "{line:?}");
    }
}

/// Webhooks with a secret wherever one may be. `HOST` is a receiver that answers with the whole request.
const ECHOED: [&str; 11] = [
    "url = \"http://HOST/hook\"\nbearer = \"canary-5f0b6c1d\"",
    "url = \"http://HOST/hook\"\nbasic = { user = \"shop\", password = \"canary-5f0b6c1d\" }",
    "url = \"http://shop:canary-5f0b6c1d@HOST/hook\"",
    "url = \"http://canary-5f0b6c1d@HOST/hook\"",
    "url = \"http://canary-5f0b6c1d@HOST/hook/{topic}\"",
    "url = \"http://HOST/services/T00000000/canary-5f0b6c1d-0000\"",
    "url = \"http://HOST/{topic}/services/canary-5f0b6c1d-0000\"",
    "url = \"http://HOST/hook?topic={topic}&sig=canary-5f0b6c1d\"",
    "url = \"http://HOST/hook\"\nheaders = { x-shop = \"canary-5f0b6c1d\" }",
    "url = \"http://HOST/hook\"\nheaders = { x-shop = \"v1,{topic};t=canary-5f0b6c1d\" }",
    "url = \"http://HOST/hook\"\nheaders = { x-shop = { env = \"CARGO_PKG_NAME\" } }",
];

#[tokio::test]
async fn a_receiver_that_echoes_the_request_gives_no_secret_away() {
    let logs = CapturedLogs::of_process();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let echo = |request: axum::extract::Request| async move {
        let (parts, _) = request.into_parts();
        let headers = parts.headers.iter();
        let headers: String = headers
            .map(|(name, value)| format!("{name}: {value:?}; "))
            .collect();
        (
            axum::http::StatusCode::BAD_REQUEST,
            format!("{} {headers}", parts.uri),
        )
    };
    let server = axum::serve(listener, axum::Router::new().fallback(echo));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { server.await.unwrap() });
    let user_only = "Y2FuYXJ5LTVmMGI2YzFk"; // of `canary-5f0b6c1d` and `canary-5f0b6c1d:`
    for text in ECHOED {
        let text = format!("type = \"webhook\"\n{}", text.replace("HOST", &host));
        let config = config(&text);
        let shown = format!("{config:?} {}", toml::to_string(&config).unwrap());
        let sink = build(config, "").await;
        sink.check().await.unwrap();
        let outcome = format!("{:?}", sink.deliver(&delivery(order())).await);
        assert!(outcome.contains("content-type"), "it echoes: {outcome}");
        for said in [shown, outcome] {
            for secret in [CANARY, user_only, "pillarbox-sinks\\\""] {
                assert!(!said.contains(secret), "{text}: {said}");
            }
        }
    }
    for line in logs.lines() {
        assert!(!format!("{line:?}").contains(CANARY), "{line:?}");
    }
}

#[tokio::test]
async fn a_setting_is_refused_without_its_secret() {
    for text in REFUSED {
        let built = config(text)
            .build("destination", &toml::from_str("").unwrap())
            .await;
        let error = built.err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    }
}

/// A client key whose file holds no key.
#[tokio::test]
async fn a_private_key_that_cannot_be_read_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, format!("-----BEGIN PRIVATE KEY-----\n{CANARY}\n")).unwrap();
    let file = file.display();
    for sink in [
        "type = \"rabbitmq\"\nurl = \"amqps://127.0.0.1:1\"\nexchange = \"e\"",
        "type = \"nats\"\nurl = \"tls://127.0.0.1:1\"",
        "type = \"redis\"\nurl = \"rediss://127.0.0.1:1/0\"",
    ] {
        let text = format!("{sink}\ntls = {{ cert_file = \"{file}\", key_file = \"{file}\" }}");
        let built = config(&text)
            .build("destination", &toml::from_str("").unwrap())
            .await;
        let said = match built {
            Ok(sink) => sink.check().await.unwrap_err(),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!said.contains(CANARY), "{said}");
    }
}
