//! The gauges of the table, which come from the newest sample of the database.
//!
//! A name that vanishes from the sample reads zero, and never its last value.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, SharedString, counter, gauge};
use pillarbox_store::sample::{AdoptedRows, Depth, MOST_NAMES, OpenSagas, Sample, Sampled};

use super::{NONE, OTHER, UNROUTED, destination_labels};

/// See the module.
pub(crate) struct SampledGauges {
    database: SharedString,
    destinations: HashMap<String, DestinationGauges>,
    adopted: HashMap<String, AdoptedGauges>,
    /// Kinds of sagas are known once the sample has them.
    sagas: Mutex<HashMap<String, [Gauge; 2]>>,
    blocked_keys: Gauge,
    stale_processing: Gauge,
    oldest_processing: Gauge,
    workers_alive: Gauge,
    manual_retries: Counter,
    age: Gauge,
}

struct DestinationGauges {
    pending: Gauge,
    processing: Gauge,
    dead: Gauge,
    unknown: Gauge,
    oldest: Gauge,
    paused: Gauge,
    disabled: Gauge,
}

/// In progress, write-back pending, write-back rejected, not imported.
struct AdoptedGauges([Gauge; 4]);

impl SampledGauges {
    pub(super) fn new(database: &SharedString, destinations: &[String], tables: &[String]) -> Self {
        let destinations = destination_labels(destinations);
        let destinations = destinations.map(|name| (name.to_owned(), DestinationGauges::new(database, name)));
        // Without adopted tables there is nothing to show, unless another worker has some.
        let tables = tables.iter().map(String::as_str).chain([OTHER]);
        let adopted = tables.map(|name| (name.to_owned(), AdoptedGauges::new(database, name)));
        let of_database = |name: &'static str| gauge!(name, "database" => database.clone());
        Self {
            destinations: destinations.collect(),
            adopted: adopted.collect(),
            sagas: Mutex::default(),
            blocked_keys: of_database("pillarbox_blocked_keys"),
            stale_processing: of_database("pillarbox_stale_processing"),
            oldest_processing: of_database("pillarbox_oldest_processing_seconds"),
            workers_alive: of_database("pillarbox_workers_alive"),
            manual_retries: counter!("pillarbox_manual_retries_total", "database" => database.clone()),
            age: of_database("pillarbox_sample_age_seconds"),
            database: database.clone(),
        }
    }

    /// Sets the age of the sample. It grows whatever happens to the database.
    pub(crate) fn set_age(&self, age: Duration) {
        self.age.set(age);
    }

    /// Shows a sample.
    pub(crate) fn show(&self, sampled: &Sampled) {
        self.manual_retries.absolute(sampled.manual_retries);
        let Some(sample) = &sampled.sample else {
            return;
        };
        self.show_destinations(sample);
        self.show_adopted(sample);
        self.show_sagas(sample);
        self.blocked_keys.set(float(sample.blocked_keys));
        self.stale_processing.set(float(sample.stale_processing));
        self.oldest_processing.set(sample.oldest_processing_seconds);
        self.workers_alive.set(float(sample.workers_alive));
    }

    fn show_destinations(&self, sample: &Sample) {
        let mut shown: HashMap<&str, Depth> = HashMap::new();
        let named = sample
            .destinations
            .iter()
            .map(|(name, depth)| (name.as_str(), depth));
        for (name, depth) in named.chain([(NONE, &sample.none), (OTHER, &sample.other)]) {
            let is_known = self.destinations.contains_key(name);
            shown
                .entry(if is_known { name } else { OTHER })
                .or_default()
                .add(depth);
        }
        for (name, gauges) in &self.destinations {
            gauges.show(&shown.remove(name.as_str()).unwrap_or_default());
        }
    }

    fn show_adopted(&self, sample: &Sample) {
        let mut shown: HashMap<&str, AdoptedRows> = HashMap::new();
        for (name, rows) in &sample.adopted_tables {
            let is_known = self.adopted.contains_key(name.as_str());
            let sum = shown.entry(if is_known { name } else { OTHER }).or_default();
            sum.in_progress += rows.in_progress;
            sum.write_back_pending += rows.write_back_pending;
            sum.write_back_rejected += rows.write_back_rejected;
            sum.not_imported += rows.not_imported;
        }
        for (name, gauges) in &self.adopted {
            gauges.show(&shown.remove(name.as_str()).unwrap_or_default());
        }
    }

    /// The names are those that the applications have registered, and there are few. Any more of them are one.
    fn show_sagas(&self, sample: &Sample) {
        let mut gauges = self.sagas.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown: HashMap<&str, OpenSagas> = HashMap::new();
        for (name, sagas) in &sample.sagas {
            let has_room = gauges.contains_key(name.as_str()) || gauges.len() < MOST_NAMES;
            let name = if has_room { name } else { OTHER };
            gauges.entry(name.to_owned()).or_insert_with(|| {
                ["running", "compensating"].map(|status| {
                    let (database, saga) = (self.database.clone(), name.to_owned());
                    gauge!("pillarbox_sagas", "database" => database, "saga" => saga, "status" => status)
                })
            });
            let sum = shown.entry(name).or_default();
            sum.running += sagas.running;
            sum.compensating += sagas.compensating;
        }
        for (name, [running, compensating]) in gauges.iter() {
            let sagas = shown.remove(name.as_str()).unwrap_or_default();
            running.set(float(sagas.running));
            compensating.set(float(sagas.compensating));
        }
    }
}

impl DestinationGauges {
    fn new(database: &SharedString, name: &str) -> Self {
        let label = || SharedString::from(name.to_owned());
        let events = |status: &'static str| gauge!("pillarbox_events", "database" => database.clone(), "destination" => label(), "status" => status);
        let paused = |by: &'static str| gauge!("pillarbox_destination_paused", "database" => database.clone(), "destination" => label(), "by" => by);
        // Unrouted rows are held on purpose, and wait for a route.
        let oldest = match name {
            UNROUTED => Gauge::noop(),
            _ => {
                let (database, destination) = (database.clone(), label());
                gauge!("pillarbox_oldest_pending_seconds", "database" => database, "destination" => destination)
            }
        };
        Self {
            pending: events("pending"),
            processing: events("processing"),
            dead: events("dead"),
            unknown: events("unknown"),
            oldest,
            paused: paused("operator"),
            disabled: paused("receiver"),
        }
    }

    fn show(&self, depth: &Depth) {
        self.pending.set(float(depth.pending));
        self.processing.set(float(depth.processing));
        self.dead.set(float(depth.dead));
        self.unknown.set(float(depth.unknown));
        self.oldest.set(depth.oldest_pending_seconds);
        self.paused.set(float(u64::from(depth.paused)));
        self.disabled.set(float(u64::from(depth.disabled)));
    }
}

impl AdoptedGauges {
    fn new(database: &SharedString, name: &str) -> Self {
        let states = [
            "in_progress",
            "write_back_pending",
            "write_back_rejected",
            "not_imported",
        ];
        Self(states.map(|state| {
            let (database, table) = (database.clone(), name.to_owned());
            gauge!("pillarbox_adopted_rows", "database" => database, "table" => table, "state" => state)
        }))
    }

    fn show(&self, rows: &AdoptedRows) {
        let counts = [
            rows.in_progress,
            rows.write_back_pending,
            rows.write_back_rejected,
            rows.not_imported,
        ];
        for (gauge, count) in self.0.iter().zip(counts) {
            gauge.set(float(count));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stop far below the limit")]
fn float(count: u64) -> f64 {
    count as f64
}
