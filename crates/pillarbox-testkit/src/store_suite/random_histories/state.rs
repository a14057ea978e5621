//! Everything that the ports show of a store, without times and `seq`, which differ between stores.

use std::collections::BTreeSet;

use pillarbox_store::Scope;
use pillarbox_store::operate::{Filter, Record};
use pillarbox_store::store::{Backlog, Parked};

use super::operation::Supported;
use crate::OPERATOR;
use crate::store_suite::harness::Harness;

/// The state of a store.
#[derive(Debug, PartialEq)]
pub(super) struct State {
    /// One line for each fact.
    lines: Vec<String>,
    /// Backlogs with keys that a claim may take.
    keyed: BTreeSet<Backlog>,
}

impl State {
    pub(super) async fn of(harness: &dyn Harness, supported: &Supported) -> Self {
        let mut lines = Vec::new();
        rows(harness, &mut lines).await;
        parked(harness, supported, &mut lines).await;
        keys_destinations_and_workers(harness, &mut lines).await;
        if !supported.own_table {
            lines.sort();
        }
        let keyed = backlogs(harness, &mut lines).await;
        Self { lines, keyed }
    }
}

/// The lines in which they differ, or nothing. A store may find keys that no claim can take, unless it is exact.
pub(super) fn differences(state: &State, reference: &State, supported: &Supported) -> String {
    let mut differences = String::new();
    for line in state.lines.iter().filter(|line| !reference.lines.contains(line)) {
        differences.push_str(&format!("only in the store:     {line}\n"));
    }
    for line in reference.lines.iter().filter(|line| !state.lines.contains(line)) {
        differences.push_str(&format!("only in the reference: {line}\n"));
    }
    if differences.is_empty() && state.lines != reference.lines {
        differences = format!(
            "the order differs: {:#?}, in the reference {:#?}\n",
            state.lines, reference.lines
        );
    }
    let agree = if supported.exact_keys {
        state.keyed == reference.keyed
    } else {
        state.keyed.is_superset(&reference.keyed)
    };
    if !agree {
        differences.push_str(&format!(
            "backlogs with keys: {:?}, in the reference {:?}\n",
            state.keyed, reference.keyed
        ));
    }
    differences
}

async fn rows(harness: &dyn Harness, lines: &mut Vec<String>) {
    let all = Filter {
        limit: 10_000,
        ..Filter::default()
    };
    let rows = harness.operate().list(&OPERATOR, &all).await.expect("a list");
    lines.extend(rows.iter().map(row));
}

fn row(row: &Record) -> String {
    // Times are sums of 50 and 100 seconds and of moments: the nearest multiple of 50 is exact.
    let since = |time: time::OffsetDateTime| {
        (time - row.created_at + time::Duration::seconds(20)).whole_seconds() / 50
    };
    format!(
        "row {} of {} to {:?} key {:?} dedupe {:?} {} attempts {}/{:?} due {} leased {:?} by {:?} delivered {} \
         unordered {} error {:?}",
        row.id,
        row.event.id,
        row.destination,
        row.ordering_key,
        row.dedupe_key,
        row.status,
        row.attempts,
        row.max_attempts,
        since(row.next_attempt_at),
        row.locked_until.map(since),
        row.locked_by.filter(|worker| !worker.is_nil()),
        row.delivered_at.is_some(),
        row.unordered,
        row.last_error,
    )
}

async fn parked(harness: &dyn Harness, supported: &Supported, lines: &mut Vec<String>) {
    for what in [Parked::Unrouted, Parked::Blocking] {
        let stubs = harness.store().parked(what, &Scope::All, None, 1_000).await;
        for stub in stubs.expect("a list") {
            let event = supported.comparable(stub.event);
            lines.push(format!("parked {what:?} {} {event:?}", stub.id));
        }
    }
}

async fn keys_destinations_and_workers(harness: &dyn Harness, lines: &mut Vec<String>) {
    let operate = harness.operate();
    let mut stats = operate.stats(&OPERATOR, &Scope::All).await.expect("statistics");
    stats.oldest_pending_seconds = stats.oldest_pending_seconds.map(fifties);
    lines.push(format!("{stats:?}"));
    for mut key in operate
        .blocked(&OPERATOR, &Scope::All, 100)
        .await
        .expect("blocked keys")
    {
        key.seq = 0;
        key.age_seconds = fifties(key.age_seconds);
        key.next_attempt_at = None;
        lines.push(format!("{key:?}"));
    }
    for mut destination in operate
        .destinations(&OPERATOR, &Scope::All, &[])
        .await
        .expect("destinations")
    {
        if let Some(paused) = &mut destination.paused {
            paused.since = time::OffsetDateTime::UNIX_EPOCH;
        }
        lines.push(format!("{destination:?}"));
    }
    for worker in operate.workers(&OPERATOR).await.expect("workers") {
        lines.push(format!(
            "worker {} alive {} lanes {}",
            worker.id, worker.alive, worker.lanes
        ));
    }
}

/// Real time passes on a slow machine, far less than 45 seconds.
fn fifties(seconds: f64) -> f64 {
    ((seconds + 5.0) / 50.0).floor()
}

/// Adds backlogs with rows without a key, and paused destinations. Returns the backlogs with keys.
async fn backlogs(harness: &dyn Harness, lines: &mut Vec<String>) -> BTreeSet<Backlog> {
    let found = harness
        .store()
        .find(&Scope::All, None, None, 1_000)
        .await
        .expect("a search");
    let mut keyed = BTreeSet::new();
    for due in found.due {
        let fresh = due.lowest.is_some();
        if fresh || due.waited {
            lines.push(format!(
                "due {:?} fresh {fresh} waited {}",
                due.backlog, due.waited
            ));
        }
        if due.keyed {
            keyed.insert(due.backlog);
        }
    }
    lines.push(format!("paused {:?} more {}", found.paused, found.more));
    keyed
}
