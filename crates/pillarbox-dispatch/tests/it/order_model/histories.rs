//! With all rules every history keeps the order, and every row can arrive.

use super::database::{Backlog, ROWS};
use super::{Broker, Faults, NONE, Setting, Unrouted, growing, growing_by_two, histories, inserted, routed};

type Backlogs = [Backlog; ROWS as usize];

/// Rows of one backlog; rows that are routed before, between and behind rows of the other.
const MIXES: [Backlogs; 5] = [
    [Broker, Broker, Broker],
    [Unrouted, Broker, Broker],
    [Unrouted, Unrouted, Broker],
    [Unrouted, Broker, Unrouted],
    [Broker, Unrouted, Broker],
];

const SOME_MIXES: [Backlogs; 2] = [MIXES[0], MIXES[1]];

fn keep_the_order(setting: Setting) {
    let explored = histories(|_| (), &setting, false);
    assert_eq!(explored.violation, None);
    assert!(explored.completed, "no history delivers all rows");
}

/// Every state also leads to one in which all rows have arrived.
fn keep_the_order_and_arrive(mixes: &[Backlogs], faults: Faults) {
    for &mix in mixes {
        let explored = histories(|_| (), &routed(mix, faults), true);
        assert_eq!(explored.violation, None);
        assert_eq!(explored.stuck, None, "the rows never arrive");
        assert!(explored.completed, "no history delivers all rows");
    }
}

#[test]
fn rows_of_a_key_arrive_in_order_where_nothing_fails() {
    keep_the_order_and_arrive(&MIXES, NONE);
}

#[test]
fn rows_that_are_committed_late_keep_the_order() {
    keep_the_order(growing(NONE));
    keep_the_order(growing_by_two(Faults { failures: 1, ..NONE }));
}

#[test]
fn a_failure_keeps_the_order_and_every_row_can_arrive() {
    keep_the_order_and_arrive(&MIXES, Faults { failures: 1, ..NONE });
}

#[test]
fn a_dead_row_keeps_the_order_until_an_operator_retries_it() {
    keep_the_order_and_arrive(&SOME_MIXES, Faults { deaths: 1, ..NONE });
}

#[test]
fn a_suspect_keeps_the_order_and_every_row_can_arrive() {
    keep_the_order_and_arrive(&MIXES, Faults { suspects: 1, ..NONE });
}

#[test]
fn a_crash_keeps_the_order_and_every_row_can_arrive() {
    keep_the_order_and_arrive(&MIXES, Faults { crashes: 1, ..NONE });
}

#[test]
fn a_take_over_keeps_the_order_and_every_row_can_arrive() {
    keep_the_order_and_arrive(&SOME_MIXES, Faults { takeovers: 1, ..NONE });
}

#[test]
fn an_expired_lease_and_a_late_settlement_keep_the_order_and_every_row_can_arrive() {
    keep_the_order_and_arrive(&SOME_MIXES, Faults { lapses: 1, ..NONE });
}

#[test]
fn releases_keep_the_order_and_every_row_can_arrive() {
    keep_the_order_and_arrive(&MIXES, Faults { releases: 1, ..NONE });
}

#[test]
fn operators_keep_the_order_and_every_row_can_arrive() {
    keep_the_order_and_arrive(&MIXES, Faults { locks: 1, ..NONE });
    keep_the_order_and_arrive(&MIXES, Faults { retries: 1, ..NONE });
}

#[test]
fn a_lost_answer_keeps_the_order_and_every_row_can_arrive() {
    let lost_answers = 1;
    keep_the_order_and_arrive(&MIXES, Faults { lost_answers, ..NONE });
}

#[test]
fn two_faults_keep_the_order() {
    let failures = 1;
    for faults in [
        Faults { lapses: 1, ..NONE },
        Faults { crashes: 1, ..NONE },
        Faults { retries: 1, ..NONE },
        Faults { takeovers: 1, ..NONE },
    ] {
        keep_the_order(inserted(Faults { failures, ..faults }));
    }
}

/// Every two faults in one history, and more rows that are inserted meanwhile: millions of states.
#[test]
#[ignore = "takes minutes: docs/testing.md says how to run it"]
fn many_faults_keep_the_order() {
    type Add = fn(&mut Faults);
    let faults: [Add; 10] = [
        |faults| faults.failures += 1,
        |faults| faults.deaths += 1,
        |faults| faults.suspects += 1,
        |faults| faults.crashes += 1,
        |faults| faults.takeovers += 1,
        |faults| faults.lapses += 1,
        |faults| faults.releases += 1,
        |faults| faults.locks += 1,
        |faults| faults.retries += 1,
        |faults| faults.lost_answers += 1,
    ];
    for (place, one) in faults.iter().enumerate() {
        for other in &faults[place..] {
            let mut both = NONE;
            one(&mut both);
            other(&mut both);
            keep_the_order_and_arrive(&MIXES, both);
        }
    }
    keep_the_order(growing(Faults { failures: 1, ..NONE }));
    keep_the_order(growing_by_two(Faults { takeovers: 1, ..NONE }));
    keep_the_order(Setting {
        backlogs: [Unrouted, Unrouted, Broker],
        owners: [0, 1],
        ..growing_by_two(NONE)
    });
}
