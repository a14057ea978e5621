//! The log lines of a consumer's connection, and the secrets that they must not have.

use pillarbox_testkit::CapturedLogs;
use pillarbox_testkit::wait::until;

use crate::ledger::Ledger;
use crate::running::Running;

/// What must not be seen.
const CANARY: &str = "canary-5f0b6c1d";

/// The messages of the connection to this host.
fn messages(logs: &CapturedLogs, host: &str) -> Vec<String> {
    let lines = logs.lines().into_iter();
    lines
        .filter(|line| line.field("host") == Some(host) && line.field("consumer") == Some("ledger"))
        .map(|line| line.message)
        .collect()
}

fn no_secret_is_logged(logs: &CapturedLogs) {
    for line in logs.lines() {
        assert!(!format!("{line:?}").contains(CANARY), "{line:?}");
    }
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_rabbitmq_is_logged_when_established_lost_and_recovered() {
    let logs = CapturedLogs::of_process();
    let (ledger, broker) = (Ledger::create().await, crate::rabbitmq::Broker::fresh().await);
    let proxy = crate::rabbitmq::behind_a_proxy().await;
    let host = proxy.address().to_string();
    let url = crate::rabbitmq::url_of(&proxy);
    let running = Running::start(ledger.consumer(), broker.config_at(&url));
    broker.until_consumed().await;
    until("it is connected", || async {
        messages(&logs, &host) == ["connected"]
    })
    .await;
    proxy.cut();
    let expected = [
        "connected",
        "connection lost; reconnecting",
        "connection recovered",
    ];
    until("it is connected again", || async {
        messages(&logs, &host) == expected
    })
    .await;
    running.stop().await;
    ledger.drop().await;
    broker.clean_up().await;
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_password_is_logged_once_and_never_printed() {
    let logs = CapturedLogs::of_process();
    let ledger = Ledger::create().await;
    let proxy = crate::rabbitmq::behind_a_proxy().await;
    let host = proxy.address().to_string();
    let url = format!("amqp://guest:{CANARY}@{host}/%2f");
    let config = pillarbox_consume::rabbitmq::Config::new(url, "refused");
    let running = Running::start(ledger.consumer(), config);
    until("it has tried several times", || async { proxy.accepted() >= 4 }).await;
    assert_eq!(messages(&logs, &host), ["not connected; retrying"]);
    no_secret_is_logged(&logs);
    running.stop().await;
    ledger.drop().await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_kafka_is_logged_without_the_password() {
    let logs = CapturedLogs::of_process();
    let ledger = Ledger::create().await;
    let host = "127.0.0.1:1";
    let config = pillarbox_consume::kafka::Config::new(host, "ledger")
        .topic("entries")
        .declared_elsewhere()
        .sasl(pillarbox_sinks::kafka::Sasl {
            mechanism: pillarbox_sinks::kafka::Mechanism::Plain,
            user: "shop".to_owned(),
            password: CANARY.into(),
        });
    let running = Running::start(ledger.consumer(), config);
    until("it is logged", || async {
        messages(&logs, host) == ["not connected; retrying"]
    })
    .await;
    no_secret_is_logged(&logs);
    running.stop().await;
    ledger.drop().await;
}
