//! Says what becomes of each attempt, in lines for people. On standard error: standard output belongs to
//! the `log` destination.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, RetryPolicy, Sink};
use pillarbox_store::Verdict;
use pillarbox_store::verdict::decide;

use crate::output;

/// Says one line. If nobody listens any more, there is nobody to tell that.
pub(super) fn say(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}

/// A sink that talks about what it does.
pub(super) struct Narrated {
    name: String,
    inner: Arc<dyn Sink>,
    retry: RetryPolicy,
}

impl Narrated {
    /// `retry` is the destination's own policy, without chance in it.
    pub(super) fn new(name: &str, inner: Arc<dyn Sink>, retry: RetryPolicy) -> Self {
        Self {
            name: name.to_owned(),
            inner,
            retry,
        }
    }
}

#[async_trait]
impl Sink for Narrated {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let outcome = self.inner.deliver(delivery).await;
        say(&describe(&self.name, delivery, &outcome, &self.retry));
        outcome
    }

    async fn check(&self) -> Result<(), String> {
        self.inner.check().await
    }

    fn keeps_order(&self) -> bool {
        self.inner.keeps_order()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// The same decision as the dispatcher's, put into words.
fn describe(to: &str, delivery: &Delivery, outcome: &Outcome, retry: &RetryPolicy) -> String {
    let event = &delivery.event;
    let what = format!(
        "{} of order {}",
        output::escape(event.event_type.as_deref().unwrap_or("event")),
        output::escape(event.aggregate_id.as_deref().unwrap_or("?"))
    );
    let tries = delivery.attempts;
    let why = |reason: &str| output::cut(&output::escape(reason), 100);
    match decide(outcome.clone(), tries, retry, Duration::ZERO, 0.0) {
        Verdict::Delivered if tries > 1 => format!("  → {what} delivered to {to}, on attempt {tries}"),
        Verdict::Delivered => format!("  → {what} delivered to {to}"),
        Verdict::Retry { after, reason } => {
            let after = after.as_secs_f64();
            format!(
                "  ✗ {what}: attempt {tries} failed: {}; retrying in {after:.1} s",
                why(&reason)
            )
        }
        Verdict::Dead { reason } => format!("  ☠ {what} is dead after attempt {tries}: {}", why(&reason)),
        Verdict::Release { .. } | Verdict::Suspect { .. } | Verdict::Delete => {
            format!(
                "  … {what}: {to} cannot be reached ({}); trying again later",
                outcome.name()
            )
        }
    }
}
