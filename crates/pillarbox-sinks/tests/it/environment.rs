//! What the tests of all sinks share: where the servers are, and how a destination is built.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Event, Outcome, Sink};
use pillarbox_sinks::{SinkConfig, Tls, message};

/// The value of a variable that `scripts/services env` or `scripts/cloudevents` prints.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run scripts/test, or eval \"$(scripts/services start)\" and \
             eval \"$(scripts/cloudevents)\" first"
        )
    })
}

/// A name that no other test has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::now_v7().simple())
}

/// Checks until the server answers. A busy one may exceed a short timeout.
pub(crate) async fn until_it_answers(sink: &dyn Sink) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while let Err(reason) = sink.check().await {
        assert!(tokio::time::Instant::now() < deadline, "still: {reason}");
    }
}

/// The sink of a destination with these keys beside those of the sink itself.
pub(crate) async fn build(sink: SinkConfig, keys: &str) -> Arc<dyn Sink> {
    let message: message::Config = toml::from_str(keys).unwrap();
    sink.build("destination", &message).await.unwrap()
}

/// TLS that trusts the private CA of the test servers.
pub(crate) fn private_ca() -> Tls {
    Tls {
        ca_file: Some(variable("PILLARBOX_TEST_CA_FILE").into()),
        ..Tls::default()
    }
}

/// An event, when any will do.
pub(crate) fn order() -> Event {
    Event::new("shop", "orders").event_type("OrderCreated")
}

/// The reason of a retry.
pub(crate) fn retry_reason(outcome: Outcome) -> String {
    match outcome {
        Outcome::Retry { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}
