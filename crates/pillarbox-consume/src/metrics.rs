//! What a consumer exports through the facade of the `metrics` crate, to the recorder that the application has installed.
//!
//! Registered once, when the consumer is made. docs/operations/metrics.md lists it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};
use metrics::{describe_counter, describe_gauge, describe_histogram};

/// See the module.
#[derive(Debug)]
pub(crate) struct ConsumerMetrics {
    pub(crate) handled: Counter,
    pub(crate) duplicate: Counter,
    pub(crate) retry: Counter,
    pub(crate) dead_letter: Counter,
    pub(crate) held: Counter,
    pub(crate) unreadable: Counter,
    pub(crate) ignored: Counter,
    handle_seconds: Histogram,
    up: Gauge,
    has_broker: AtomicBool,
    has_database: AtomicBool,
}

impl ConsumerMetrics {
    pub(crate) fn new(consumer: &str) -> Self {
        describe_counter!(
            "pillarbox_consumer_messages_total",
            "Messages by what became of them"
        );
        describe_histogram!(
            "pillarbox_consumer_handle_seconds",
            "Time of an attempt to handle an event"
        );
        describe_gauge!(
            "pillarbox_consumer_up",
            "Are the broker and the database reachable?"
        );
        let consumer: SharedString = consumer.to_owned().into();
        let outcome = |outcome: &'static str| counter!("pillarbox_consumer_messages_total", "consumer" => consumer.clone(), "outcome" => outcome);
        let metrics = Self {
            handled: outcome("handled"),
            duplicate: outcome("duplicate"),
            retry: outcome("retry"),
            dead_letter: outcome("dead_letter"),
            held: outcome("held"),
            unreadable: outcome("unreadable"),
            ignored: outcome("ignored"),
            handle_seconds: histogram!("pillarbox_consumer_handle_seconds", "consumer" => consumer.clone()),
            up: gauge!("pillarbox_consumer_up", "consumer" => consumer.clone()),
            has_broker: AtomicBool::new(false),
            has_database: AtomicBool::new(true),
        };
        metrics.up.set(0.0); // until it is connected
        metrics
    }

    /// A handler ran for so long, with its mark and its commit.
    pub(crate) fn attempted(&self, took: Duration) {
        self.handle_seconds.record(took);
    }

    /// Is the broker connected?
    pub(crate) fn set_broker(&self, is_connected: bool) {
        if self.has_broker.swap(is_connected, Ordering::AcqRel) != is_connected {
            self.show();
        }
    }

    /// Does the database answer?
    pub(crate) fn set_database(&self, answers: bool) {
        if self.has_database.swap(answers, Ordering::AcqRel) != answers {
            self.show();
        }
    }

    fn show(&self) {
        let is_up = self.has_broker.load(Ordering::Acquire) && self.has_database.load(Ordering::Acquire);
        self.up.set(f64::from(u8::from(is_up)));
    }
}
