//! No consumer talks to a broker with a certificate that is expired, for another host, or of an unknown authority. Credentials
//! that would travel unencrypted to another machine are a warning, and `strict` refuses them.

use std::path::Path;

use pillarbox_sinks::Tls;
use pillarbox_testkit::CapturedLogs;
use pillarbox_testkit::captured_logs::Line;
use pillarbox_testkit::tls::{FLAWS, Flaw, Greeting, TlsServer};
use pillarbox_testkit::wait::until_some;

use crate::ledger::Ledger;
use crate::running::{BrokerConfig, Running};

/// What must not be seen.
const CANARY: &str = "canary-5f0b6c1d";

fn trusting(ca_file: &Path) -> Tls {
    Tls {
        ca_file: Some(ca_file.to_owned()),
        ..Tls::default()
    }
}

/// What a consumer logs first about the connection to this host, and what its server saw of it.
async fn runs_into(config: impl BrokerConfig, server: &TlsServer, logs: &CapturedLogs) -> (Line, usize) {
    let ledger = Ledger::create().await;
    let host = format!("localhost:{}", server.port());
    let running = Running::start(ledger.consumer(), config);
    let line = until_some("the connection failed", async || {
        let lines = logs.with("not connected; retrying").into_iter();
        lines.into_iter().find(|line| line.field("host") == Some(&host))
    })
    .await;
    running.stop().await;
    ledger.drop().await;
    (line, server.accepted())
}

/// Starts servers with every flaw, and one without.
async fn refuses_every_flaw<C: BrokerConfig>(config: impl Fn(&TlsServer) -> C, word: &str) {
    let logs = CapturedLogs::of_process();
    for flaw in FLAWS {
        let server = TlsServer::start(flaw, Greeting::None).await;
        let (line, accepted) = runs_into(config(&server), &server, &logs).await;
        let error = line.field("error").expect("a reason");
        assert!(error.contains(word), "{flaw:?}: {error}");
        assert_eq!(accepted, 0, "{flaw:?}");
    }
    // Without this, a consumer that cannot connect at all would pass.
    let server = TlsServer::start(Flaw::None, Greeting::None).await;
    let ledger = Ledger::create().await;
    let running = Running::start(ledger.consumer(), config(&server));
    until_some("the consumer speaks over TLS", async || {
        (server.accepted() > 0).then_some(())
    })
    .await;
    running.stop().await;
    ledger.drop().await;
    for line in logs.lines() {
        assert!(!format!("{line:?}").contains(CANARY), "{line:?}");
    }
}

/// A warning when the consumer starts, which names the host and not the secret.
async fn warns_of_exposure(config: impl BrokerConfig, key: &str, host: &str) {
    let logs = CapturedLogs::of_process();
    let ledger = Ledger::create().await;
    let running = Running::start(ledger.consumer(), config);
    let exposed = format!(" unencrypted to {host} (");
    let line = until_some("the warning", async || {
        let lines = logs.with("credentials are sent unencrypted").into_iter();
        lines.into_iter().find(|line| {
            line.field("reason")
                .is_some_and(|reason| reason.contains(&exposed))
        })
    })
    .await;
    assert_eq!(
        (line.level, line.field("consumer")),
        (tracing::Level::WARN, Some("ledger"))
    );
    assert!(
        line.field("reason").unwrap().starts_with(&format!("`{key}` ")),
        "{line:?}"
    );
    assert!(!format!("{line:?}").contains(CANARY), "{line:?}");
    running.stop().await;
    ledger.drop().await;
}

#[cfg(feature = "rabbitmq")]
mod on_rabbitmq {
    use pillarbox_consume::rabbitmq::{Config, RabbitMq};

    use super::{CANARY, refuses_every_flaw, trusting, warns_of_exposure};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_broker_with_a_flawed_certificate_gets_nothing() {
        refuses_every_flaw(
            |server| {
                let url = format!("amqps://u:{CANARY}@localhost:{}/%2f", server.port());
                Config::new(url, "letters").tls(trusting(&server.ca_file()))
            },
            "certificate",
        )
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_password_without_tls_is_a_warning_and_strict_refuses_it() {
        let url = format!("amqp://u:{CANARY}@rabbitmq.invalid/%2f");
        let config = || Config::new(url.as_str(), "letters");
        warns_of_exposure(config(), "url", "rabbitmq.invalid").await;
        let error = RabbitMq::new(config().strict()).err().expect("is refused");
        assert_eq!(error.key, "url");
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
        let encrypted = Config::new(url.replace("amqp:", "amqps:"), "letters");
        assert!(RabbitMq::new(encrypted.strict()).is_ok());
    }
}

#[cfg(feature = "kafka")]
mod on_kafka {
    use pillarbox_consume::kafka::{Config, Kafka};
    use pillarbox_sinks::Tls;
    use pillarbox_sinks::kafka::{Mechanism, Sasl};

    use super::{CANARY, refuses_every_flaw, trusting, warns_of_exposure};

    fn config(brokers: &str) -> Config {
        let sasl = Sasl {
            mechanism: Mechanism::Plain,
            user: "shop".to_owned(),
            password: CANARY.into(),
        };
        let config = Config::new(brokers, "ledger").topic("entries");
        config.declared_elsewhere().sasl(sasl)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_broker_with_a_flawed_certificate_gets_nothing() {
        refuses_every_flaw(
            |server| config(&format!("localhost:{}", server.port())).tls(trusting(&server.ca_file())),
            "SSL",
        )
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn credentials_without_tls_are_a_warning_and_strict_refuses_them() {
        let brokers = "kafka.invalid:9092";
        warns_of_exposure(config(brokers), "sasl", "kafka.invalid").await;
        let error = Kafka::new(config(brokers).strict()).err().expect("is refused");
        assert_eq!(error.key, "sasl");
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
        assert!(Kafka::new(config(brokers).tls(Tls::default()).strict()).is_ok());
    }
}
