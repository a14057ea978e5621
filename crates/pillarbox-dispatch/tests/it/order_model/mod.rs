//! Every history of a few steps of the proposed keyed claim (docs/adr/0018-keyed-in-insertion-order.md), as a model.
//!
//! Three rows of one key, two workers, one lane. The model has the database's rows and lane, and the memory of each worker.
//! A claim is three steps: it begins, it is executed, its answer arrives. Everything else may happen between them. Each
//! test explores all histories within its [faults](Faults).
//!
//! With all rules no history delivers a row before an earlier one. Without any one of them some history does, so that the
//! model notices what each rule is for.

mod database;
mod explore;
mod worker;

use database::{Database, Status};
use explore::{explore, stuck};
use worker::Memory;

/// The rules of the ADR. A test removes one.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// K1: only the owner of the lane claims, and the claim's own statement checks it.
    one_owner: bool,
    /// K2: an earlier unfinished row of the key blocks it, unless it is in flight in the worker that claims.
    earlier_rows_block: bool,
    /// K3: a key whose row came back is closed for claims that began before that was committed.
    closed_keys: bool,
    /// K4: settlements are written in the order in which they were decided.
    settled_in_order: bool,
    /// K5: a row in flight in another worker blocks its key, and a floor is valid for one tenure of the lanes.
    others_block: bool,
    floor_per_tenure: bool,
    /// K6: rows of a claim whose answer was lost are not in flight.
    lost_answers_block: bool,
    /// K7: a row that another transaction locks ends the claim of its key, and the floor stays below it.
    holes: bool,
    /// K8: from a floor, a claim takes only rows that were numbered before the search that set the floor.
    ceiling: bool,
    /// K9: a row that came back resets the floor, and a claim that began before that was committed sets none.
    floor_reset: bool,
    /// K10: fresh rows behind a row that blocks them leave the fresh rows.
    moved: bool,
    /// K11: a row whose lease expired here is settled as a suspect. It is no longer in flight.
    lost_rows_settled: bool,
}

const ALL: Rules = Rules {
    one_owner: true,
    earlier_rows_block: true,
    closed_keys: true,
    settled_in_order: true,
    others_block: true,
    floor_per_tenure: true,
    lost_answers_block: true,
    holes: true,
    ceiling: true,
    floor_reset: true,
    moved: true,
    lost_rows_settled: true,
};

/// How often each fault may happen in one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Faults {
    /// The destination refuses a row.
    failures: u8,
    /// A worker dies. Its successor has another id.
    crashes: u8,
    /// The other worker takes the lane. The old owner does not notice.
    takeovers: u8,
    /// The lease of a claim expires: first by the worker's clock, later by the database's.
    lapses: u8,
    /// A worker releases a waiting row for lack of room.
    releases: u8,
    /// A row of another key is inserted and moves the floor.
    others: u8,
    /// An operator's transaction locks a row.
    locks: u8,
    /// A claim is executed and its answer is lost.
    lost_answers: u8,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    database: Database,
    workers: [Memory; 2],
    faults: Faults,
}

impl World {
    fn new(faults: Faults) -> Self {
        Self {
            database: Database::default(),
            workers: [Memory::new(0), Memory::new(1)],
            faults,
        }
    }

    /// Numbers claims and positions anew, and forgets what no longer matters. So equal situations are one state.
    fn normalise(&mut self) {
        for row in self
            .database
            .rows
            .iter_mut()
            .filter(|row| row.status != Status::Processing)
        {
            (row.worker, row.claim, row.expired) = (0, 0, false);
            row.tried &= row.status == Status::Pending;
            row.locked &= row.status == Status::Pending;
        }
        let held = self
            .database
            .rows
            .iter()
            .filter(|row| row.status == Status::Processing);
        let mut claims: Vec<u8> = held
            .map(|row| row.claim)
            .filter(|claim| *claim != u8::MAX)
            .collect();
        for worker in &self.workers {
            claims.extend(worker.claims());
        }
        claims.sort_unstable();
        claims.dedup();
        let number = |claim: u8| match claims.binary_search(&claim) {
            Ok(place) => u8::try_from(place).unwrap_or_default(),
            Err(_) => claim,
        };
        for row in self
            .database
            .rows
            .iter_mut()
            .filter(|row| row.status == Status::Processing)
        {
            row.claim = number(row.claim);
        }
        for worker in &mut self.workers {
            worker.normalise(&claims, number);
        }
        self.database.claims = u8::try_from(claims.len()).unwrap_or_default();
    }

    /// Have all rows arrived but the last? Then none can be overtaken.
    fn is_safe(&self) -> bool {
        self.database.rows[..2].iter().all(|row| row.has_arrived)
    }

    /// Has every row arrived?
    fn is_done(&self) -> bool {
        self.database.rows.iter().all(|row| row.has_arrived)
    }
}

fn all_rules(faults: Faults) {
    let explored = explore(ALL, faults);
    println!("{} states", explored.states);
    assert_eq!(explored.violation, None, "a row arrived before an earlier one");
    assert!(explored.completed, "no history delivers all rows");
}

/// Without this rule, some history breaks the order.
fn without(remove: impl Fn(&mut Rules), faults: Faults) {
    all_rules(faults);
    let mut rules = ALL;
    remove(&mut rules);
    let explored = explore(rules, faults);
    assert!(
        explored.violation.is_some(),
        "no history of {} states needs this rule",
        explored.states
    );
}

const NONE: Faults = Faults {
    failures: 0,
    crashes: 0,
    takeovers: 0,
    lapses: 0,
    releases: 0,
    others: 0,
    locks: 0,
    lost_answers: 0,
};

#[test]
fn rows_of_a_key_arrive_in_order_where_nothing_fails() {
    all_rules(NONE);
}

#[test]
fn failures_and_releases_keep_the_order() {
    all_rules(Faults {
        failures: 1,
        releases: 1,
        ..NONE
    });
}

#[test]
fn a_take_over_and_a_failure_keep_the_order() {
    all_rules(Faults {
        failures: 1,
        takeovers: 1,
        ..NONE
    });
}

#[test]
fn a_crash_and_a_failure_keep_the_order() {
    all_rules(Faults {
        crashes: 1,
        failures: 1,
        ..NONE
    });
}

#[test]
fn an_expired_lease_and_a_failure_keep_the_order() {
    all_rules(Faults {
        lapses: 1,
        failures: 1,
        ..NONE
    });
}

#[test]
fn whatever_failed_every_row_can_still_arrive() {
    let failures = Faults {
        failures: 1,
        releases: 1,
        ..NONE
    };
    assert_eq!(stuck(ALL, failures), 0);
    let locks = Faults {
        locks: 1,
        failures: 1,
        ..NONE
    };
    assert_eq!(stuck(ALL, locks), 0);
    assert_eq!(stuck(ALL, Faults { crashes: 1, ..NONE }), 0);
}

/// More faults in one history: millions of states.
#[test]
#[ignore = "takes minutes: docs/testing.md says how to run it"]
fn many_faults_keep_the_order() {
    all_rules(Faults {
        failures: 2,
        releases: 1,
        others: 1,
        ..NONE
    });
    all_rules(Faults {
        failures: 1,
        takeovers: 2,
        ..NONE
    });
    all_rules(Faults {
        failures: 1,
        takeovers: 1,
        lapses: 1,
        ..NONE
    });
    all_rules(Faults {
        crashes: 1,
        takeovers: 1,
        lapses: 1,
        ..NONE
    });
}

/// The others check every claim against the database. One owner keeps workers from moving each other's rows.
#[test]
fn one_owner_is_not_needed_for_the_order_of_a_key() {
    let rules = Rules {
        one_owner: false,
        ..ALL
    };
    let faults = Faults {
        takeovers: 1,
        failures: 1,
        ..NONE
    };
    assert_eq!(explore(rules, faults).violation, None);
}

#[test]
fn without_the_check_of_earlier_rows_a_failing_head_is_overtaken() {
    let remove = |rules: &mut Rules| rules.earlier_rows_block = false;
    without(remove, Faults { failures: 1, ..NONE });
}

#[test]
fn without_closed_keys_a_claim_under_way_overtakes_a_failed_row() {
    let remove = |rules: &mut Rules| rules.closed_keys = false;
    without(remove, Faults { failures: 1, ..NONE });
}

#[test]
fn without_settling_in_order_a_released_row_looks_like_the_head() {
    let remove = |rules: &mut Rules| rules.settled_in_order = false;
    without(remove, Faults { failures: 1, ..NONE });
}

#[test]
fn without_blocking_rows_of_other_workers_a_new_owner_overtakes_the_old_one() {
    let remove = |rules: &mut Rules| rules.others_block = false;
    without(remove, Faults { takeovers: 1, ..NONE });
}

#[test]
fn without_a_floor_per_tenure_a_new_owner_misses_a_row() {
    let remove = |rules: &mut Rules| rules.floor_per_tenure = false;
    without(
        remove,
        Faults {
            takeovers: 1,
            others: 1,
            ..NONE
        },
    );
}

#[test]
fn without_blocking_lost_answers_their_rows_are_overtaken() {
    let remove = |rules: &mut Rules| rules.lost_answers_block = false;
    without(
        remove,
        Faults {
            lost_answers: 1,
            ..NONE
        },
    );
}

#[test]
fn without_holes_a_locked_row_is_overtaken() {
    let remove = |rules: &mut Rules| rules.holes = false;
    without(remove, Faults { locks: 1, ..NONE });
}

#[test]
fn without_a_ceiling_a_late_commit_is_overtaken() {
    let remove = |rules: &mut Rules| rules.ceiling = false;
    without(remove, Faults { others: 1, ..NONE });
}

#[test]
fn without_resetting_the_floor_a_released_row_is_missed() {
    let remove = |rules: &mut Rules| rules.floor_reset = false;
    without(remove, Faults { releases: 1, ..NONE });
}

#[test]
fn without_moving_blocked_rows_the_floor_passes_them() {
    let remove = |rules: &mut Rules| rules.moved = false;
    without(remove, Faults { failures: 1, ..NONE });
}

#[test]
fn without_settling_lost_rows_they_are_overtaken() {
    let remove = |rules: &mut Rules| rules.lost_rows_settled = false;
    without(remove, Faults { lapses: 1, ..NONE });
}
