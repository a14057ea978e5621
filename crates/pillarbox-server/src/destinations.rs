//! Joins the configured destinations with those in the outbox, and with the breakers that workers report.
//!
//! A row whose destination is no longer configured waits. Its destination is listed here.

use std::collections::BTreeMap;

use pillarbox_store::operate::{DestinationRecord, MOST_WAITING, Paused, WorkerRecord};
use pillarbox_store::store::{BreakerState, OpenBreaker, UNROUTED};
use serde::Serialize;
use uuid::Uuid;

/// One destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// Is it configured? None if no configuration was read.
    pub(crate) configured: Option<bool>,
    pub(crate) state: State,
    pub(crate) paused: Option<Paused>,
    /// The breakers that are not closed, of the workers that are alive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) breakers: Vec<Breaker>,
    pub(crate) pending: u64,
    pub(crate) dead: u64,
    /// A hint for the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
    /// The setting with which credentials would travel unencrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exposure: Option<String>,
}

/// Whether events are sent to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// No worker reports that its breaker is open.
    Closed,
    /// The breaker of at least one worker is open.
    Open,
    /// The breaker of at least one worker is half-open, and none is open.
    HalfOpen,
    /// Paused by an operator.
    Paused,
    /// Disabled, because the destination asked for no more events.
    Disabled,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
        }
    }
}

/// The breaker of one worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Breaker {
    pub(crate) worker: Uuid,
    #[serde(flatten)]
    pub(crate) breaker: OpenBreaker,
}

fn state(paused: Option<&Paused>, breakers: &[Breaker]) -> State {
    let any = |state| breakers.iter().any(|worker| worker.breaker.state == state);
    match paused {
        Some(paused) if paused.disabled => State::Disabled,
        Some(_) => State::Paused,
        None if any(BreakerState::Open) => State::Open,
        None if any(BreakerState::HalfOpen) => State::HalfOpen,
        None => State::Closed,
    }
}

/// All destinations that are configured, have rows or an open breaker, sorted by name.
pub(crate) fn list(
    records: Vec<DestinationRecord>,
    workers: &[WorkerRecord],
    configured: Option<&[String]>,
) -> Vec<Listed> {
    let mut listed = join(records, configured);
    for worker in workers.iter().filter(|worker| worker.alive) {
        for (name, breaker) in &worker.breakers {
            let configured = configured.map(|names| names.contains(name));
            let entry = listed
                .entry(name.clone())
                .or_insert_with(|| Listed::new(name, configured));
            entry.breakers.push(Breaker {
                worker: worker.id,
                breaker: breaker.clone(),
            });
        }
    }
    for entry in listed.values_mut() {
        entry.state = state(entry.paused.as_ref(), &entry.breakers);
    }
    listed.into_values().collect()
}

fn join(records: Vec<DestinationRecord>, configured: Option<&[String]>) -> BTreeMap<String, Listed> {
    let mut listed: BTreeMap<String, Listed> = BTreeMap::new();
    for record in records {
        let known = configured.map(|names| names.contains(&record.name));
        let entry = Listed {
            paused: record.paused,
            pending: record.pending,
            dead: record.dead,
            note: note(&record.name, known, record.pending),
            ..Listed::new(&record.name, known)
        };
        listed.insert(record.name, entry);
    }
    for name in configured.unwrap_or_default() {
        listed
            .entry(name.clone())
            .or_insert_with(|| Listed::new(name, Some(true)));
    }
    listed
}

impl Listed {
    /// A destination without rows.
    fn new(name: &str, configured: Option<bool>) -> Self {
        Self {
            name: name.to_owned(),
            configured,
            state: State::Closed,
            paused: None,
            breakers: Vec::new(),
            pending: 0,
            dead: 0,
            note: None,
            exposure: None,
        }
    }
}

fn note(name: &str, configured: Option<bool>, pending: u64) -> Option<&'static str> {
    match configured {
        _ if name == UNROUTED => Some("no route matches (add a route)"),
        Some(false) if pending > 0 => Some("no longer configured; its rows wait"),
        Some(false) => Some("no longer configured"),
        Some(true) | None => None,
    }
}

/// A count with `+` if it stopped at the maximum.
pub(crate) fn count(rows: u64) -> String {
    if rows >= MOST_WAITING {
        format!("{MOST_WAITING}+")
    } else {
        rows.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, pending: u64) -> DestinationRecord {
        DestinationRecord {
            name: name.to_owned(),
            paused: None,
            pending,
            dead: 0,
        }
    }

    #[test]
    fn configured_destinations_and_those_with_rows_are_listed() {
        let records = vec![record("gone", 3), record("hook", 1), record(UNROUTED, 2)];
        let configured = ["hook".to_owned(), "log".to_owned()];
        let listed = list(records, &[], Some(&configured));
        let seen: Vec<(&str, Option<bool>, u64, bool)> = listed
            .iter()
            .map(|to| (to.name.as_str(), to.configured, to.pending, to.note.is_some()))
            .collect();
        assert_eq!(
            seen,
            [
                ("gone", Some(false), 3, true),
                ("hook", Some(true), 1, false),
                ("log", Some(true), 0, false),
                (UNROUTED, Some(false), 2, true),
            ]
        );
    }

    #[test]
    fn without_a_configuration_there_is_no_note() {
        let listed = list(vec![record("hook", 1)], &[], None);
        assert_eq!((listed[0].configured, listed[0].note), (None, None));
    }

    fn worker(number: u128, alive: bool, breakers: &[(&str, BreakerState)]) -> WorkerRecord {
        let breakers = breakers.iter().map(|(name, state)| {
            let breaker = OpenBreaker {
                state: *state,
                since: time::OffsetDateTime::UNIX_EPOCH,
                reason: "refused".to_owned(),
            };
            ((*name).to_owned(), breaker)
        });
        WorkerRecord {
            id: Uuid::from_u128(number),
            host: "here".to_owned(),
            version: "1".to_owned(),
            scope: None,
            started_at: time::OffsetDateTime::UNIX_EPOCH,
            seen_at: time::OffsetDateTime::UNIX_EPOCH,
            alive,
            lanes: 0,
            claimed: 0,
            delivered: 0,
            failed: 0,
            breakers: breakers.collect(),
        }
    }

    #[test]
    fn the_state_is_the_worst_of_what_live_workers_report() {
        use BreakerState::{HalfOpen, Open};
        let paused = |disabled| Paused {
            since: time::OffsetDateTime::UNIX_EPOCH,
            reason: "why".to_owned(),
            disabled,
        };
        let mut records = vec![record("asleep", 1), record("gone", 1), record("hook", 1)];
        records[0].paused = Some(paused(false));
        records[1].paused = Some(paused(true));
        let workers = [
            worker(
                1,
                true,
                &[("asleep", Open), ("hook", HalfOpen), ("idle", HalfOpen)],
            ),
            worker(2, true, &[("hook", Open)]),
            worker(3, false, &[("hook", Open), ("stale", Open)]),
        ];
        let listed = list(records, &workers, Some(&["well".to_owned()]));
        let seen: Vec<(&str, State, usize)> = listed
            .iter()
            .map(|to| (to.name.as_str(), to.state, to.breakers.len()))
            .collect();
        assert_eq!(
            seen,
            [
                ("asleep", State::Paused, 1),
                ("gone", State::Disabled, 0),
                ("hook", State::Open, 2),
                ("idle", State::HalfOpen, 1),
                ("well", State::Closed, 0),
            ]
        );
    }

    #[test]
    fn a_count_at_the_maximum_has_a_plus() {
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(MOST_WAITING), "10000+");
    }
}
