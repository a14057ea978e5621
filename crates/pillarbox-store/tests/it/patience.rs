//! Waiting for a fact.

use std::time::{Duration, Instant};

/// How long a fact may take to show itself on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What the fact is, as soon as there is one.
pub(crate) async fn eventually<T>(what: &str, fact: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(known) = fact().await {
            return known;
        }
        assert!(Instant::now() < deadline, "{what}: not so far");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
