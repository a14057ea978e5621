//! A recorder for the `metrics` facade, as an application installs one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

/// Keeps the value of each metric. Clones are the same recorder. Use it with [`metrics::with_local_recorder`].
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<BTreeMap<Key, Kept>>>);

#[derive(Debug, Clone)]
enum Kept {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Values>),
}

/// The number of values of a histogram.
#[derive(Debug, Default)]
struct Values(AtomicU64);

impl HistogramFn for Values {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Recorder {
    /// The values of all metrics, by name and labels, such as `up{database="default"}`. Of a histogram, how many it has.
    #[expect(clippy::cast_precision_loss, reason = "tests count small numbers")]
    pub fn values(&self) -> BTreeMap<String, f64> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = |kept: &Kept| match kept {
            Kept::Counter(count) => count.load(Ordering::SeqCst) as f64,
            Kept::Gauge(bits) => f64::from_bits(bits.load(Ordering::SeqCst)),
            Kept::Histogram(values) => values.0.load(Ordering::SeqCst) as f64,
        };
        kept.iter().map(|(key, kept)| (name(key), value(kept))).collect()
    }

    fn keep(&self, key: &Key, new: Kept) -> Kept {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry(key.clone()).or_insert(new).clone()
    }
}

fn name(key: &Key) -> String {
    let labels: Vec<String> = key
        .labels()
        .map(|label| format!("{}=\"{}\"", label.key(), label.value()))
        .collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.keep(key, Kept::Counter(Arc::default())) {
            Kept::Counter(count) => Counter::from_arc(count),
            Kept::Gauge(_) | Kept::Histogram(_) => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.keep(key, Kept::Gauge(Arc::default())) {
            Kept::Gauge(bits) => Gauge::from_arc(bits),
            Kept::Counter(_) | Kept::Histogram(_) => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.keep(key, Kept::Histogram(Arc::default())) {
            Kept::Histogram(values) => Histogram::from_arc(values),
            Kept::Counter(_) | Kept::Gauge(_) => Histogram::noop(),
        }
    }
}
