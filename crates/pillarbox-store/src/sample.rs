//! A sample: what the tables of an outbox hold, for metrics.
//!
//! Counted from one snapshot and within bounds, by one worker of a database for all of them. So it costs the same with any
//! number of workers, and a scrape of their metrics costs the database nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// How long between two samples, unless they take long.
pub const INTERVAL: Duration = Duration::from_secs(15);
/// Up to how many rows of one namespace and destination are counted in each index. After a sample that took too long it is
/// less.
pub const MOST_COUNTED: u64 = 100_000;
/// How many destinations are counted apart.
pub const MOST_DESTINATIONS: usize = 1000;
/// How many adopted tables and kinds of sagas are counted apart.
pub const MOST_NAMES: usize = 100;
/// For how long a row may be in processing before it counts as stale.
pub const STALE_AFTER: Duration = Duration::from_secs(600);

/// A worker asks for the newest sample, and takes one if that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleRequest {
    /// The worker.
    pub worker: Uuid,
    /// Its destinations. Those of other live workers are counted too.
    pub destinations: Vec<String>,
}

/// The newest sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// What it found; `None` if there is none yet.
    pub sample: Option<Sample>,
    /// How old it is.
    pub age: Duration,
    /// When the next is due.
    pub due_in: Duration,
    /// How many rows operators have retried.
    pub manual_retries: u64,
    /// What the database's clock shows.
    pub now: OffsetDateTime,
}

/// What the tables held at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Up to how many rows were counted.
    pub cap: u64,
    /// By destination: those of live workers, and `unrouted`.
    pub destinations: BTreeMap<String, Depth>,
    /// Rows without a destination.
    pub none: Depth,
    /// The rows of all other destinations.
    pub other: Depth,
    /// Ordering keys whose first unfinished row is dead.
    pub blocked_keys: u64,
    /// Rows that have been in processing for longer than [`STALE_AFTER`].
    pub stale_processing: u64,
    /// How long ago the oldest of the rows in processing was claimed, in seconds.
    pub oldest_processing_seconds: f64,
    /// Workers whose last heartbeat arrived in time.
    pub workers_alive: u64,
    /// By adopted table.
    pub adopted_tables: BTreeMap<String, AdoptedRows>,
    /// By kind of saga.
    pub sagas: BTreeMap<String, OpenSagas>,
}

impl Sample {
    /// The largest of its counts.
    #[cfg(feature = "postgres")]
    pub(crate) fn largest(&self) -> u64 {
        let all = self.destinations.values().chain([&self.none, &self.other]);
        let counts = all.flat_map(|depth| [depth.pending, depth.processing, depth.dead, depth.unknown]);
        counts.max().unwrap_or_default()
    }

    /// The rows of this destination, which is '' for none yet.
    pub(crate) fn depth(&mut self, destination: &str) -> &mut Depth {
        if destination.is_empty() {
            return &mut self.none;
        }
        self.destinations.get_mut(destination).unwrap_or(&mut self.other)
    }

    /// Adds a fact that a statement returned, under its name in the statement.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn fact(&mut self, what: &str, name: &str, value: f64) {
        match what {
            "pending" => self.depth(name).pending += whole(value),
            "waited" => {
                let depth = self.depth(name);
                depth.oldest_pending_seconds = depth.oldest_pending_seconds.max(value);
            }
            "processing" => self.depth(name).processing += whole(value),
            "dead" => self.depth(name).dead += whole(value),
            "unknown" => self.depth(name).unknown += whole(value),
            "paused" => self.depth(name).paused = true,
            "disabled" => self.depth(name).disabled = true,
            "stale" => self.stale_processing = whole(value),
            "oldest" => self.oldest_processing_seconds = value,
            "blocked" => self.blocked_keys = whole(value),
            "alive" => self.workers_alive = whole(value),
            status => {
                if self.sagas.len() < MOST_NAMES || self.sagas.contains_key(name) {
                    let kind = self.sagas.entry(name.to_owned()).or_default();
                    match status {
                        "compensating" => kind.compensating += whole(value),
                        _ => kind.running += whole(value),
                    }
                }
            }
        }
    }
}

/// A count, which a statement returns beside times.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are small and not negative"
)]
pub(crate) fn whole(count: f64) -> u64 {
    count.round() as u64
}

/// The rows of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Depth {
    /// Waiting.
    pub pending: u64,
    /// Claimed.
    pub processing: u64,
    /// Given up on.
    pub dead: u64,
    /// With an unknown status.
    pub unknown: u64,
    /// How long the oldest row that is due has been due, in seconds.
    pub oldest_pending_seconds: f64,
    /// Did an operator pause it?
    pub paused: bool,
    /// Did it ask for no more events?
    pub disabled: bool,
}

impl Depth {
    /// Adds the rows of another destination.
    pub fn add(&mut self, other: &Self) {
        self.pending += other.pending;
        self.processing += other.processing;
        self.dead += other.dead;
        self.unknown += other.unknown;
        self.oldest_pending_seconds = self.oldest_pending_seconds.max(other.oldest_pending_seconds);
        self.paused |= other.paused;
        self.disabled |= other.disabled;
    }
}

/// The rows of an adopted table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AdoptedRows {
    /// Imported and not delivered.
    pub in_progress: u64,
    /// Their state is not written back yet.
    pub write_back_pending: u64,
    /// The table rejects their state.
    pub write_back_rejected: u64,
    /// They cannot be imported.
    pub not_imported: u64,
}

/// Sagas of a kind that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenSagas {
    /// They go on.
    pub running: u64,
    /// They undo what they did.
    pub compensating: u64,
}
