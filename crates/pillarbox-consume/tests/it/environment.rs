//! Where the servers are, and how to wait for a fact.

use std::future::Future;
use std::time::{Duration, Instant};

/// Long enough for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The value of a variable that `scripts/services env` prints.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run scripts/test, or eval \"$(scripts/services start)\" first")
    })
}

/// A name that nobody else has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::new_v4().simple())
}

/// Asks until the answer is yes.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, ask: impl FnMut() -> F) {
    until_within(PATIENCE, what, ask).await;
}

/// The same with another patience.
pub(crate) async fn until_within<F: Future<Output = bool>>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut() -> F,
) {
    let started = Instant::now();
    while !ask().await {
        assert!(started.elapsed() < patience, "{what}: not within {patience:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
