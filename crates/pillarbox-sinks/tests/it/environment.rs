//! Where the servers are, and how a destination is built.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::Sink;
use pillarbox_sinks::{SinkConfig, message};

/// The value of a variable that `scripts/services env` or `scripts/cloudevents` prints.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run scripts/test, or eval \"$(scripts/services start)\" and \
             eval \"$(scripts/cloudevents)\" first"
        )
    })
}

/// A name that nobody else has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::now_v7().simple())
}

/// Checks until there is an answer: one whose patience is short gets none in time from a server that is busy.
pub(crate) async fn until_it_answers(sink: &dyn Sink) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while let Err(said) = sink.check().await {
        assert!(tokio::time::Instant::now() < deadline, "still: {said}");
    }
}

/// The sink of a destination with these keys beside those of the sink itself.
pub(crate) async fn build(sink: SinkConfig, keys: &str) -> Arc<dyn Sink> {
    let message: message::Config = toml::from_str(keys).unwrap();
    sink.build("destination", &message).await.unwrap()
}
