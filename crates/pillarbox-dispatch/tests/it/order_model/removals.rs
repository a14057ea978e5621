//! Without any one rule some history breaks the order, or other rules cover it. So the model notices what each rule is for.

use super::{
    Broker, Faults, NONE, Rules, Setting, Unrouted, growing, growing_by_two, histories, inserted, routed,
};

/// Without this rule, some history breaks the order. With it, none does.
fn without(remove: impl Fn(&mut Rules), setting: Setting) {
    assert_eq!(histories(|_| (), &setting, false).violation, None);
    let history = histories(remove, &setting, false).violation;
    println!("{:#?}", history.expect("no history needs this rule"));
}

/// Without this rule, no history breaks the order.
fn covered(remove: impl Fn(&mut Rules), setting: Setting) {
    assert_eq!(histories(remove, &setting, false).violation, None);
}

#[test]
fn without_the_question_for_earlier_rows_a_row_in_flight_is_overtaken() {
    without(|rules| rules.earlier_rows_block = false, inserted(NONE));
}

#[test]
fn without_the_question_for_tried_rows_a_failed_row_below_the_bottom_is_overtaken() {
    let failures = 1;
    without(
        |rules| rules.tried_rows_block = false,
        inserted(Faults { failures, ..NONE }),
    );
}

#[test]
fn without_the_question_for_unrouted_rows_a_row_without_a_destination_is_overtaken() {
    without(
        |rules| rules.unrouted_rows_block = false,
        routed([Unrouted, Broker, Broker], NONE),
    );
}

#[test]
fn without_ending_a_key_at_a_locked_row_it_is_overtaken() {
    let remove = |rules: &mut Rules| rules.locked_rows_end_their_key = false;
    without(remove, inserted(Faults { locks: 1, ..NONE }));
}

#[test]
fn without_ending_a_key_at_a_changed_row_it_is_overtaken() {
    let remove = |rules: &mut Rules| rules.changed_rows_end_their_key = false;
    without(remove, inserted(Faults { retries: 1, ..NONE }));
}

#[test]
fn without_moving_routed_rows_one_that_enters_below_the_bottom_is_overtaken() {
    without(
        |rules| rules.routed_rows_by_key = false,
        routed([Unrouted, Broker, Broker], NONE),
    );
}

#[test]
fn without_moving_retried_rows_a_dead_one_that_returns_below_the_bottom_is_overtaken() {
    let remove = |rules: &mut Rules| rules.retried_rows_by_key = false;
    without(remove, inserted(Faults { deaths: 1, ..NONE }));
}

#[test]
fn without_asking_before_it_is_sent_a_routed_row_overtakes_one_at_its_destination() {
    without(
        |rules| rules.routing_asks = false,
        routed([Unrouted, Unrouted, Broker], Faults { failures: 1, ..NONE }),
    );
}

#[test]
fn without_the_claim_id_a_late_settlement_brings_a_settled_row_back() {
    let remove = |rules: &mut Rules| rules.settles_fenced = false;
    without(remove, inserted(Faults { lapses: 1, ..NONE }));
}

#[test]
fn without_an_unbroken_run_of_suspects_an_expired_row_overtakes_a_pending_one() {
    let remove = |rules: &mut Rules| rules.suspects_in_order = false;
    without(remove, inserted(Faults { lapses: 1, ..NONE }));
}

#[test]
fn without_waiting_for_writers_the_bottom_passes_a_row_that_is_not_committed() {
    without(
        |rules| rules.bottom_waits_for_writers = false,
        growing_by_two(NONE),
    );
}

#[test]
fn without_reading_the_sequence_first_the_bottom_passes_a_row_that_was_inserted_between() {
    without(
        |rules| rules.sequence_before_holders = false,
        growing_by_two(NONE),
    );
}

#[test]
fn without_reading_the_bottom_last_it_passes_a_row_that_was_committed_between() {
    without(|rules| rules.bottom_read_last = false, growing_by_two(NONE));
}

#[test]
fn without_numbers_under_the_lock_the_bottom_passes_a_number_that_is_not_inserted() {
    without(|rules| rules.numbers_under_lock = false, growing_by_two(NONE));
}

#[test]
fn without_its_name_a_prepared_transaction_looks_as_if_it_had_ended() {
    let remove = |rules: &mut Rules| rules.prepared_transactions_keep_their_names = false;
    without(remove, growing_by_two(Faults { prepares: 1, ..NONE }));
}

#[test]
fn without_an_order_of_looks_an_old_answer_ends_the_wait_for_a_writer() {
    let setting = Setting {
        shares_watermark: true,
        ..growing_by_two(NONE)
    };
    without(|rules| rules.looks_in_order = false, setting);
}

#[test]
fn without_resetting_bottoms_a_failover_hides_rows_that_are_numbered_again() {
    let remove = |rules: &mut Rules| rules.failover_resets_bottoms = false;
    without(remove, growing_by_two(Faults { failovers: 1, ..NONE }));
}

/// Every claim compares all that it takes with the database. One owner keeps workers from claiming the same rows at the same
/// time, which would leave each of them a part of a key, or nothing.
#[test]
fn one_owner_is_not_needed_for_the_order_of_a_key() {
    let remove = |rules: &mut Rules| rules.lanes_locked = false;
    covered(remove, inserted(Faults { failures: 1, ..NONE }));
    covered(
        remove,
        routed([Unrouted, Broker, Broker], Faults { failures: 1, ..NONE }),
    );
    covered(remove, routed([Unrouted, Unrouted, Broker], NONE));
}

/// One statement could read and ask in one snapshot, like a claim from key to key. Later questions only see more: an earlier row
/// enters the backlog as one that was tried, and was a barrier until then.
#[test]
fn questions_in_the_snapshot_of_the_read_would_keep_the_order_too() {
    let remove = |rules: &mut Rules| rules.probes_after_read = false;
    covered(
        remove,
        inserted(Faults {
            failures: 1,
            retries: 1,
            ..NONE
        }),
    );
    covered(
        remove,
        routed([Unrouted, Broker, Broker], Faults { failures: 1, ..NONE }),
    );
    covered(remove, growing(NONE));
}

/// A row that comes back into its own backlog was unfinished all the time, so the bottom is not above it. It leaves the fresh
/// rows because floors may be above it.
#[test]
fn moving_rows_that_come_back_is_not_needed_for_the_order() {
    let remove = |rules: &mut Rules| rules.returned_rows_by_key = false;
    covered(
        remove,
        inserted(Faults {
            failures: 1,
            releases: 1,
            ..NONE
        }),
    );
    covered(
        remove,
        inserted(Faults {
            suspects: 1,
            lapses: 1,
            ..NONE
        }),
    );
}
