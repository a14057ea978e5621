//! What a worker exports through the facade of the `metrics` crate, to the recorder that the application has installed.
//!
//! The handles are registered once, when the dispatcher is built, with every label that they will ever have: the names of the
//! configuration. Producers can name any destination, and such a name is `other`. What runs for each event is an atomic.
//!
//! docs/operations/metrics.md lists them, and a test compares the page with the program.

mod described;
mod destination;
mod pruned;
mod sampled;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};
use pillarbox_store::retention::Pruned;
use pillarbox_store::store::UNROUTED;
use time::OffsetDateTime;

pub(crate) use self::destination::{Attempted, DestinationMetrics, Measure};
use self::pruned::PrunedMetrics;
pub(crate) use self::sampled::SampledGauges;

/// The label of destinations that are not configured.
const OTHER: &str = "other";
/// The label of rows without a destination.
const NONE: &str = "none";

/// See the module.
pub(crate) struct Metrics {
    destinations: HashMap<String, Arc<DestinationMetrics>>,
    /// Dead rows of other destinations, and of none.
    other_dead: Counter,
    none_dead: Counter,
    pub(crate) unrouted: Counter,
    pub(crate) lost_leases: Counter,
    pub(crate) store_errors: Counter,
    pub(crate) database_up: Gauge,
    pub(crate) claim_rows: Histogram,
    pub(crate) claim_seconds: Histogram,
    pub(crate) settle_rows: Histogram,
    pub(crate) settle_seconds: Histogram,
    pruned: PrunedMetrics,
    pub(crate) sampled: SampledGauges,
    /// How far the database's clock is ahead of this machine's, in microseconds. Rows have times of the database.
    ahead: AtomicI64,
}

impl Metrics {
    /// Registers the metrics of a worker.
    pub(crate) fn new(database: &str, destinations: &[String], adopted_tables: &[String]) -> Self {
        described::describe();
        let database: SharedString = database.to_owned().into();
        let known = destinations.iter().map(|name| {
            let metrics = DestinationMetrics::new(database.clone(), name.clone().into());
            (name.clone(), Arc::new(metrics))
        });
        let dead =
            |label| counter!("pillarbox_dead_total", "database" => database.clone(), "destination" => label);
        Self {
            destinations: known.collect(),
            other_dead: dead(OTHER),
            none_dead: dead(NONE),
            unrouted: counter!("pillarbox_unrouted_total", "database" => database.clone()),
            lost_leases: counter!("pillarbox_lost_leases_total", "database" => database.clone()),
            store_errors: counter!("pillarbox_store_errors_total", "database" => database.clone()),
            database_up: gauge!("pillarbox_database_up", "database" => database.clone()),
            claim_rows: histogram!("pillarbox_claim_rows", "database" => database.clone()),
            claim_seconds: histogram!("pillarbox_claim_seconds", "database" => database.clone()),
            settle_rows: histogram!("pillarbox_settle_rows", "database" => database.clone()),
            settle_seconds: histogram!("pillarbox_settle_seconds", "database" => database.clone()),
            pruned: PrunedMetrics::new(&database),
            sampled: SampledGauges::new(&database, destinations, adopted_tables),
            ahead: AtomicI64::new(0),
        }
    }

    /// The metrics of a configured destination.
    pub(crate) fn destination(&self, name: &str) -> Arc<DestinationMetrics> {
        let known = self.destinations.get(name);
        Arc::clone(known.expect("every configured destination is registered"))
    }

    /// A row of this destination is dead without an attempt of this worker.
    pub(crate) fn dead(&self, destination: Option<&str>) {
        match destination {
            None => self.none_dead.increment(1),
            Some(name) => match self.destinations.get(name) {
                Some(known) => known.dead.increment(1),
                None => self.other_dead.increment(1),
            },
        }
    }

    /// A claim returned so many rows.
    pub(crate) fn claimed(&self, rows: usize, took: Duration) {
        self.claim_rows.record(count(rows));
        self.claim_seconds.record(took);
    }

    /// A settlement of so many rows was written.
    pub(crate) fn settled(&self, rows: usize, took: Duration) {
        self.settle_rows.record(count(rows));
        self.settle_seconds.record(took);
    }

    /// Retention deleted this in one batch.
    pub(crate) fn pruned(&self, pruned: &Pruned, took: Duration) {
        self.pruned.record(pruned, took);
    }

    /// The database's clock showed this when that of this machine showed `local`.
    pub(crate) fn database_clock(&self, database: OffsetDateTime, local: OffsetDateTime) {
        let ahead = (database - local).whole_microseconds();
        let ahead = i64::try_from(ahead).unwrap_or_default();
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// How long ago a row was written, if this machine's clock shows `local`.
    pub(crate) fn age(&self, created_at: OffsetDateTime, local: OffsetDateTime) -> Duration {
        let ahead = time::Duration::microseconds(self.ahead.load(Ordering::Relaxed));
        Duration::try_from(local - created_at + ahead).unwrap_or_default()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// A number of rows, as a histogram takes it.
#[expect(clippy::cast_precision_loss, reason = "a batch has a few thousand rows")]
fn count(rows: usize) -> f64 {
    rows as f64
}

/// The labels of destinations: the configured ones, and what all others are.
fn destination_labels(configured: &[String]) -> impl Iterator<Item = &str> {
    let fixed = [OTHER, NONE, UNROUTED];
    let configured = configured.iter().map(String::as_str);
    configured.clone().chain(
        fixed
            .into_iter()
            .filter(move |name| !configured.clone().any(|one| one == *name)),
    )
}
