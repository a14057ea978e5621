//! Joins the configured destinations with those in the outbox.
//!
//! A row whose destination is no longer configured waits. Its destination is listed here.

use std::collections::BTreeMap;

use pillarbox_store::operate::{DestinationRecord, MOST_WAITING, Paused};
use pillarbox_store::store::UNROUTED;
use serde::Serialize;

/// One destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// Is it configured? None if no configuration was read.
    pub(crate) configured: Option<bool>,
    pub(crate) paused: Option<Paused>,
    pub(crate) pending: u64,
    pub(crate) dead: u64,
    /// A hint for the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
}

/// All destinations that are configured or have rows, sorted by name.
pub(crate) fn list(records: Vec<DestinationRecord>, configured: Option<&[String]>) -> Vec<Listed> {
    let mut listed: BTreeMap<String, Listed> = BTreeMap::new();
    for record in records {
        let known = configured.map(|names| names.contains(&record.name));
        let entry = Listed {
            configured: known,
            paused: record.paused,
            pending: record.pending,
            dead: record.dead,
            note: note(&record.name, known, record.pending),
            name: record.name.clone(),
        };
        listed.insert(record.name, entry);
    }
    for name in configured.unwrap_or_default() {
        listed.entry(name.clone()).or_insert_with(|| Listed {
            name: name.clone(),
            configured: Some(true),
            paused: None,
            pending: 0,
            dead: 0,
            note: None,
        });
    }
    listed.into_values().collect()
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
        let listed = list(records, Some(&configured));
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
        let listed = list(vec![record("hook", 1)], None);
        assert_eq!((listed[0].configured, listed[0].note), (None, None));
    }

    #[test]
    fn a_count_at_the_maximum_has_a_plus() {
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(MOST_WAITING), "10000+");
    }
}
