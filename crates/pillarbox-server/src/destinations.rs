//! Destinations as people see them: what the outbox knows of each, beside what is configured.
//!
//! A row on its way to a destination that is no longer configured waits; it is listed here, not lost.

use std::collections::BTreeMap;

use pillarbox_store::operate::{DestinationRecord, MOST_WAITING, Paused};
use pillarbox_store::store::UNROUTED;
use serde::Serialize;

/// One destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// Is it in the configuration? Unknown where none was read.
    pub(crate) configured: Option<bool>,
    pub(crate) paused: Option<Paused>,
    pub(crate) pending: u64,
    pub(crate) dead: u64,
    /// What a person should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
}

/// All that are configured or have something to tell, in the order of their names.
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
        _ if name == UNROUTED => Some("no route leads anywhere; add one"),
        Some(false) if pending > 0 => Some("not configured any more: its rows wait"),
        Some(false) => Some("not configured any more"),
        Some(true) | None => None,
    }
}

/// A count as people read it: it stops somewhere.
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
    fn what_is_configured_and_what_has_rows_is_listed() {
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
    fn without_a_configuration_nothing_is_said_about_it() {
        let listed = list(vec![record("hook", 1)], None);
        assert_eq!((listed[0].configured, listed[0].note), (None, None));
    }

    #[test]
    fn a_count_that_stopped_says_so() {
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(MOST_WAITING), "10000+");
    }
}
