//! Exports metrics in the format of Prometheus: the recorder behind the `metrics` facade, and its upkeep.
//!
//! A histogram keeps each value until the upkeep has sorted it into its buckets. So the upkeep runs every few seconds, and not
//! only when the metrics are scraped.
//!
//! **If we die here** counts start again at zero. Prometheus knows that.

use std::time::Duration;

use metrics::{describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::task::JoinSet;

use crate::failure::Failure;

/// How long between two upkeeps.
const UPKEEP: Duration = Duration::from_secs(5);

/// From enqueue to delivered: milliseconds, and days after an outage.
const LAG: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0,
];
/// From the claim to the settlement. The alert is at 30 s.
const PROCESSING: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0,
    300.0,
];
/// Statements.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// Batches.
const ROWS: &[f64] = &[
    0.0, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0,
];

/// See the module. The upkeep ends when it is dropped.
pub(crate) struct Exporter {
    handle: PrometheusHandle,
    _upkeep: JoinSet<()>,
}

impl Exporter {
    /// Installs the recorder, before anything registers a metric.
    pub(crate) fn install() -> Result<Self, Failure> {
        let failed =
            |error: &dyn std::error::Error| Failure::failed(format!("cannot export metrics: {error}"));
        let recorder = builder().map_err(|error| failed(&error))?.build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(|error| failed(&error))?;
        describe_gauge!("pillarbox_build_info", "1, with the version of the program");
        gauge!("pillarbox_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        let mut tasks = JoinSet::new();
        tasks.spawn(upkeep(handle.clone()));
        Ok(Self {
            handle,
            _upkeep: tasks,
        })
    }

    /// What renders the metrics.
    pub(crate) fn handle(&self) -> PrometheusHandle {
        self.handle.clone()
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("pillarbox_lag_seconds".to_owned()), LAG)?
        .set_buckets_for_metric(
            Matcher::Full("pillarbox_processing_seconds".to_owned()),
            PROCESSING,
        )?
        .set_buckets_for_metric(Matcher::Suffix("_rows".to_owned()), ROWS)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
}

#[expect(clippy::disallowed_methods, reason = "the wait between two upkeeps")]
async fn upkeep(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        handle.run_upkeep();
    }
}
