//! Prints what happens to each attempt. On standard error, because standard output belongs to the `log` destination.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, RetryPolicy, Sink};
use pillarbox_store::Verdict;
use pillarbox_store::verdict::decide;

use crate::output;

/// Prints one line. A closed standard error is ignored.
pub(super) fn print(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}

/// A sink that prints the outcome of every delivery.
pub(super) struct ReportingSink {
    name: String,
    inner: Arc<dyn Sink>,
    retry: RetryPolicy,
}

impl ReportingSink {
    /// `retry` is the destination's policy, without jitter.
    pub(super) fn new(name: &str, inner: Arc<dyn Sink>, retry: RetryPolicy) -> Self {
        Self {
            name: name.to_owned(),
            inner,
            retry,
        }
    }
}

#[async_trait]
impl Sink for ReportingSink {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let outcome = self.inner.deliver(delivery).await;
        print(&describe(&self.name, delivery, &outcome, &self.retry));
        outcome
    }

    async fn check(&self) -> Result<(), String> {
        self.inner.check().await
    }

    fn keeps_order(&self) -> bool {
        self.inner.keeps_order()
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.inner.part(delivery)
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Makes the dispatcher's decision and describes it.
fn describe(to: &str, delivery: &Delivery, outcome: &Outcome, retry: &RetryPolicy) -> String {
    let event = &delivery.event;
    let what = format!(
        "{} of order {}",
        output::escape(event.event_type.as_deref().unwrap_or("event")),
        output::escape(event.aggregate_id.as_deref().unwrap_or("?"))
    );
    let attempt = delivery.attempts;
    let why = |reason: &str| output::cut(&output::escape(reason), 100);
    match decide(outcome.clone(), attempt, retry, Duration::ZERO, 0.0) {
        Verdict::Delivered if attempt > 1 => format!("  → {what} delivered to {to}, on attempt {attempt}"),
        Verdict::Delivered => format!("  → {what} delivered to {to}"),
        Verdict::Retry { after, reason } => {
            let after = after.as_secs_f64();
            format!(
                "  ✗ {what}: attempt {attempt} failed: {}; retrying in {after:.1} s",
                why(&reason)
            )
        }
        Verdict::Dead { reason } => format!("  ☠ {what} is dead after attempt {attempt}: {}", why(&reason)),
        Verdict::Release { .. } | Verdict::Suspect { .. } | Verdict::Delete => {
            format!("  … {what}: {to} is unavailable ({}); will retry", outcome.name())
        }
    }
}
