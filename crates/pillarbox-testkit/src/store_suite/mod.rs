//! The suite that every store runs.
//!
//! A backend implements [`Harness`] in its integration tests and calls [`store_suite!`](crate::store_suite!)
//! once, in a module of its own, with an async function that makes a fresh outbox:
//!
//! ```ignore
//! mod suite {
//!     pillarbox_testkit::store_suite!(super::SqliteHarness::fresh);
//! }
//! ```
//!
//! Each case becomes one test. One more test compares random histories with the
//! [memory store](pillarbox_store::stores::memory).

pub mod auditing;
mod bench;
pub mod claiming;
pub mod crashes;
pub mod enqueueing;
pub mod finding;
pub mod foreign;
mod harness;
pub mod lanes;
mod lazy;
pub mod leases;
pub mod marking;
mod memory;
pub mod operating;
pub mod ordering;
pub mod pruning;
mod random_histories;
pub mod recording;
pub mod routing;
pub mod scope;
pub mod settling;
pub mod sweeping;
pub mod tenants;
pub mod time_passing;
pub mod unkept;
pub mod watching;

use std::io::Write;
use std::sync::Arc;

pub use bench::Bench;
pub use harness::{Capability, Corruption, Field, Harness, Skipped, Tx};
pub use lazy::Lazy;
pub use memory::MemoryHarness;
pub use random_histories::{check, random_histories};

/// The result of a case that does not panic.
pub type Ran = Result<(), Skipped>;

/// Runs one case on a fresh outbox. A skipped case is printed.
pub async fn run<H: Harness>(name: &str, harness: H, case: impl AsyncFnOnce(Bench) -> Ran) {
    let bench = Bench::new(Arc::new(harness));
    match case(bench.clone()).await {
        Ok(()) => {}
        Err(skipped) => print_skipped(name, skipped),
    }
    bench.harness.clean_up().await;
}

fn print_skipped(name: &str, Skipped(reason): Skipped) {
    // Directly to the stream, because the test harness captures `eprintln!`.
    writeln!(std::io::stderr(), "skipped: {name}: {reason}").expect("standard error can be written to");
}

/// Makes one test of each case, for one store. Takes an async function that gives a fresh [`Harness`].
#[macro_export]
macro_rules! store_suite {
    ($fresh:path) => {
        $crate::producer_suite!($fresh);

        $crate::store_suite! { @cases $fresh;
            claiming::a_claim_counts_an_attempt
            claiming::a_claim_takes_no_more_than_its_limit
            claiming::claims_come_in_seq_order
            claiming::a_claim_takes_no_more_bytes_than_asked_but_always_one_row
            claiming::four_claimers_never_share_a_row
            claiming::retried_rows_cannot_starve_fresh_ones_and_vice_versa
            claiming::retried_and_fresh_rows_share_claims_of_one_row
            claiming::a_dead_row_is_not_claimed
            claiming::a_delivered_row_is_final
            claiming::a_row_at_its_limit_is_not_claimed
            claiming::a_row_knows_its_own_max_attempts
            claiming::unlimited_attempts_have_no_end
            claiming::an_empty_outbox_gives_nothing
            settling::settle_is_idempotent
            settling::a_settle_by_another_worker_changes_nothing
            settling::a_settle_under_another_claim_changes_nothing
            settling::a_settle_after_the_lease_is_good_if_no_other_worker_has_the_row
            settling::a_release_gives_the_attempt_back
            settling::a_retry_is_due_later_and_records_the_error
            settling::a_batch_settles_each_row_as_it_should
            settling::a_loss_in_a_batch_does_not_harm_the_others
            settling::settling_writes_the_destination_and_its_limit
            settling::every_error_text_is_cleaned_and_cut_to_fit
            settling::an_unknown_id_is_reported_as_lost
            settling::updated_at_moves_with_each_transition
            unkept::a_delivered_row_that_is_not_kept_is_deleted
            unkept::only_a_delivered_row_is_deleted
            unkept::a_row_with_a_dedupe_key_is_kept
            unkept::a_family_is_kept
            unkept::a_row_of_an_adopted_table_is_kept
            unkept::a_deleted_row_frees_its_key
            unkept::rows_that_were_lost_are_reported_and_stay
            unkept::a_deleted_row_cannot_be_settled_or_renewed
            unkept::the_rest_of_a_claim_outlives_a_deleted_row
            unkept::a_deleted_row_leaves_no_lease_behind
            pruning::rows_are_pruned_when_they_are_old_enough
            pruning::a_row_that_has_not_ended_is_never_pruned
            pruning::a_dead_row_that_blocks_its_key_is_never_pruned
            pruning::a_family_is_pruned_as_a_whole
            pruning::a_dead_sibling_that_blocks_its_key_keeps_its_family
            pruning::a_namespace_has_a_retention_of_its_own
            pruning::a_pass_in_small_batches_deletes_everything
            pruning::pruning_ends_the_dedupe_key
            pruning::old_marks_of_every_consumer_are_pruned
            pruning::an_operator_deletes_old_events
            pruning::pruned_rows_are_archived_and_can_be_restored
            leases::a_lost_lease_cannot_settle
            leases::an_expired_lease_is_claimed_again
            leases::a_lease_that_holds_is_not_claimed
            leases::renew_extends_the_lease
            leases::renew_reports_the_lost
            leases::a_lease_of_another_worker_cannot_be_renewed
            crashes::a_second_attempt_after_a_crash_is_claimed_in_a_small_group
            crashes::a_third_attempt_after_a_crash_is_claimed_alone
            crashes::a_suspect_row_is_claimed_like_one_whose_lease_expired
            crashes::a_suspect_row_has_no_worker
            sweeping::an_exhausted_row_is_swept_one_lease_after_its_own_expired
            sweeping::a_pending_row_at_its_limit_is_swept
            sweeping::a_sweep_uses_the_limit_of_the_row
            sweeping::a_sweep_keeps_an_earlier_error
            sweeping::a_swept_row_cannot_be_settled
            sweeping::a_sweep_reports_suspects
            time_passing::a_row_is_not_claimed_before_it_is_due
            time_passing::a_clock_that_goes_backwards_does_no_harm
            time_passing::an_idle_outbox_is_not_due
            scope::a_row_outside_the_scope_is_not_claimed
            scope::a_row_outside_the_scope_is_not_swept
            scope::a_row_outside_the_scope_is_not_due
            scope::an_empty_scope_sees_nothing
            tenants::every_call_needs_its_permission
            tenants::an_actor_of_a_tenant_sees_and_changes_nothing_of_another
            tenants::without_the_permission_content_is_hidden
            auditing::a_change_writes_one_line
            auditing::each_kind_of_change_has_its_line
            auditing::a_call_that_changes_nothing_writes_no_line
            auditing::content_never_enters_the_audit
            auditing::lines_are_filtered_and_come_in_pages
            foreign::an_unknown_status_is_left_alone_counted_and_shown
            foreign::negative_attempts_count_as_none
            foreign::a_lease_without_an_end_has_expired
            foreign::headers_that_are_not_text_become_text
            foreign::a_row_with_an_impossible_time_harms_no_other
            operating::stats_count_each_state
            operating::stats_stay_within_the_scope
            operating::list_gives_the_newest_first_in_pages
            operating::list_filters
            operating::show_gives_the_payload
            operating::a_manual_retry_makes_dead_and_pending_rows_due
            operating::a_manual_retry_leaves_delivered_and_leased_rows_alone
            operating::the_old_claim_of_a_retried_row_cannot_settle
            operating::delete_leaves_leased_rows_alone
            operating::check_accepts_a_fresh_outbox
            finding::a_search_names_the_backlogs_with_due_rows
            finding::a_search_continues_where_the_last_one_ended
            finding::a_search_names_rows_below_the_floor
            finding::a_claim_takes_from_the_backlogs_that_it_names
            finding::every_tenant_gets_its_turn
            finding::every_tenant_gets_its_turn_in_small_claims
            finding::scheduled_rows_of_many_tenants_delay_no_other
            finding::a_search_passes_over_destinations_that_are_not_served
            finding::a_listing_of_destinations_is_bounded
            finding::every_search_sees_a_pause
            finding::an_event_is_delivered_at_its_time
            watching::a_watch_reports_new_events_and_the_end_of_their_transactions
            watching::a_watch_reports_events_that_came_between_two_calls
            ordering::a_keyed_claim_takes_the_beginning_of_every_key
            ordering::a_blocked_head_holds_its_key_and_no_other
            ordering::a_key_in_flight_is_not_claimed
            ordering::keys_share_a_claim
            ordering::many_rows_of_a_key_in_flight_hold_up_no_other_key
            ordering::a_cut_by_bytes_leaves_a_beginning
            ordering::a_row_without_a_destination_blocks_later_ones_of_its_key
            ordering::an_unordered_row_neither_waits_nor_blocks
            ordering::rows_of_a_key_whose_lease_expired_are_claimed_in_order
            ordering::an_expired_row_waits_for_an_earlier_one_in_the_lane_of_another_worker
            ordering::a_suspect_head_of_a_key_is_claimed_alone
            ordering::rows_of_an_excluded_destination_are_not_claimed_again
            lanes::lanes_are_shared_evenly
            lanes::a_worker_claims_from_its_own_lanes
            lanes::lanes_follow_a_new_worker
            lanes::a_worker_whose_lane_lease_expired_cannot_claim
            lanes::lanes_are_free_when_their_owner_has_died_or_deregistered
            lanes::a_new_number_of_ranges_starts_when_all_are_free
            lanes::only_workers_of_a_namespace_lease_its_lanes
            lanes::lanes_are_shared_among_workers_that_serve_the_destination
            lanes::lanes_leave_a_worker_that_cannot_reach_the_destination
            lanes::lanes_that_no_worker_leases_are_pruned
            lanes::workers_are_listed
            lanes::open_breakers_are_listed_by_worker
            routing::a_row_with_one_destination_stays_as_it_is
            routing::a_family_tells_how_its_rows_have_ended
            routing::a_family_is_written_under_the_claim
            routing::routing_twice_finds_the_rows_lost
            routing::a_stale_claim_cannot_route
            routing::a_member_waits_behind_an_earlier_row_at_its_destination
            routing::a_row_that_would_overtake_is_released
            routing::unrouted_rows_are_held_and_unparked
            routing::a_row_with_verdict_delete_is_deleted
            operating::a_blocked_key_is_listed_and_can_be_skipped
            operating::keys_that_no_live_worker_serves_are_listed
            operating::dead_rows_that_block_are_listed_and_unparked
            => every_case_is_listed
        }

        $crate::store_suite! { @histories $fresh }
    };
    (@histories $fresh:path) => {
        #[test]
        fn random_histories_agree_with_the_reference() {
            $crate::store_suite::random_histories($fresh);
        }
    };
    (@cases $fresh:path; $($topic:ident::$case:ident)+ => $complete:ident) => {
        $crate::store_suite! { @cases $fresh; $($topic::$case)+ }

        #[test]
        fn $complete() {
            $crate::store_suite::assert_complete(&[$(concat!(stringify!($topic), "::", stringify!($case))),+]);
        }
    };
    (@cases $fresh:path; $($topic:ident::$case:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let outbox = $crate::store_suite::Lazy::new(module_path!(), $fresh);
                let run = $crate::store_suite::run(
                    stringify!($case), outbox, $crate::store_suite::$topic::$case,
                );
                // On the heap: a case's future is large.
                Box::pin(run).await;
            }
        )+
    };
}

/// Makes one test of each case of a producer: for a further library or function that enqueues into a store that has run the
/// whole suite.
#[macro_export]
macro_rules! producer_suite {
    ($fresh:path) => {
        $crate::store_suite! { @cases $fresh;
            enqueueing::rolled_back_events_are_never_claimed
            enqueueing::late_commits_with_lower_seq_are_not_skipped
            enqueueing::uncommitted_events_are_not_seen
            enqueueing::many_events_in_one_call_keep_their_order
            enqueueing::an_empty_batch_does_nothing
            enqueueing::an_invalid_event_rejects_the_whole_batch
            enqueueing::a_rejected_event_leaves_the_transaction_usable
            enqueueing::a_tenant_and_a_dedupe_key_must_agree
            enqueueing::no_producer_chooses_a_derived_id
            enqueueing::a_dedupe_conflict_is_already_enqueued
            enqueueing::a_duplicate_within_one_call_is_already_enqueued
            enqueueing::the_same_event_twice_is_already_enqueued
            enqueueing::the_same_dedupe_key_in_another_topic_is_new
            enqueueing::a_dedupe_key_holds_as_long_as_its_row
            enqueueing::a_dedupe_key_of_a_rolled_back_event_is_free
            enqueueing::racing_transactions_with_one_dedupe_key_write_one_row
            enqueueing::the_loser_of_a_race_learns_the_first_id
            enqueueing::the_second_is_new_when_the_first_rolls_back
            enqueueing::callers_with_crossing_keys_do_not_deadlock
            enqueueing::an_id_that_exists_is_rejected
            enqueueing::payload_bytes_come_back_as_they_were
            enqueueing::json_payloads_come_back_equal_as_json
            enqueueing::all_columns_survive_the_round_trip
            enqueueing::a_large_batch_goes_through
            enqueueing::a_savepoint_that_rolls_back_takes_its_events_with_it
            enqueueing::a_large_payload_is_compressed_and_marked_so
            enqueueing::an_event_has_the_trace_of_its_transaction
            recording::a_transaction_sees_the_outbox_and_its_own_events
            recording::a_compressed_payload_is_seen_uncompressed
            recording::a_family_is_seen_as_one_event
            recording::recorded_events_are_enqueued_in_order_and_stay_recorded
            recording::recorded_events_that_were_rolled_back_are_enqueued_again
            recording::recorded_events_that_were_committed_are_not_enqueued_again
            marking::an_event_is_new_once_for_each_consumer
            marking::a_mark_that_is_rolled_back_is_not_there
            marking::an_event_that_is_unmarked_is_new_again
            marking::of_two_equal_keys_in_one_call_the_first_is_new
            marking::ten_thousand_events_are_marked_in_one_call
            marking::the_second_of_two_deliveries_waits_for_the_first_to_end
            marking::consumers_with_crossing_events_do_not_deadlock
            marking::only_old_marks_are_pruned
            => every_producer_case_is_listed
        }
    };
}

/// Makes one test of each case that depends on the columns of an adopted table, and random histories: for a further layout of a
/// store that has run the whole suite on other layouts. These cases read the payload, the limit and the times of a row, or
/// write back its state, attempts, error, lease or time. What remains of the suite only depends on the imported row.
#[macro_export]
macro_rules! column_suite {
    ($fresh:path) => {
        $crate::store_suite! { @cases $fresh;
            enqueueing::rolled_back_events_are_never_claimed
            enqueueing::late_commits_with_lower_seq_are_not_skipped
            enqueueing::uncommitted_events_are_not_seen
            enqueueing::many_events_in_one_call_keep_their_order
            enqueueing::payload_bytes_come_back_as_they_were
            enqueueing::json_payloads_come_back_equal_as_json
            enqueueing::all_columns_survive_the_round_trip
            claiming::a_claim_counts_an_attempt
            claiming::a_dead_row_is_not_claimed
            claiming::a_delivered_row_is_final
            claiming::a_row_at_its_limit_is_not_claimed
            claiming::a_row_knows_its_own_max_attempts
            claiming::unlimited_attempts_have_no_end
            settling::settle_is_idempotent
            settling::a_settle_by_another_worker_changes_nothing
            settling::a_settle_under_another_claim_changes_nothing
            settling::a_settle_after_the_lease_is_good_if_no_other_worker_has_the_row
            settling::a_release_gives_the_attempt_back
            settling::a_retry_is_due_later_and_records_the_error
            settling::a_batch_settles_each_row_as_it_should
            settling::a_loss_in_a_batch_does_not_harm_the_others
            settling::settling_writes_the_destination_and_its_limit
            settling::every_error_text_is_cleaned_and_cut_to_fit
            settling::updated_at_moves_with_each_transition
            leases::a_lost_lease_cannot_settle
            leases::an_expired_lease_is_claimed_again
            leases::renew_extends_the_lease
            crashes::a_suspect_row_is_claimed_like_one_whose_lease_expired
            sweeping::an_exhausted_row_is_swept_one_lease_after_its_own_expired
            sweeping::a_pending_row_at_its_limit_is_swept
            sweeping::a_sweep_uses_the_limit_of_the_row
            sweeping::a_sweep_keeps_an_earlier_error
            sweeping::a_swept_row_cannot_be_settled
            time_passing::a_row_is_not_claimed_before_it_is_due
            operating::stats_count_each_state
            operating::show_gives_the_payload
            operating::a_manual_retry_makes_dead_and_pending_rows_due
            operating::a_manual_retry_leaves_delivered_and_leased_rows_alone
            operating::delete_leaves_leased_rows_alone
            finding::an_event_is_delivered_at_its_time
            routing::a_family_is_written_under_the_claim
            routing::unrouted_rows_are_held_and_unparked
            routing::a_row_with_verdict_delete_is_deleted
        }

        $crate::store_suite! { @histories $fresh }
    };
}

/// Is each case of the files in the list, for every topic that the list has at all?
#[doc(hidden)]
pub fn assert_complete(listed: &[&str]) {
    let files = [
        ("enqueueing", include_str!("enqueueing.rs")),
        ("recording", include_str!("recording.rs")),
        ("marking", include_str!("marking.rs")),
        ("claiming", include_str!("claiming.rs")),
        ("settling", include_str!("settling.rs")),
        ("leases", include_str!("leases.rs")),
        ("unkept", include_str!("unkept.rs")),
        ("crashes", include_str!("crashes.rs")),
        ("sweeping", include_str!("sweeping.rs")),
        ("time_passing", include_str!("time_passing.rs")),
        ("scope", include_str!("scope.rs")),
        ("tenants", include_str!("tenants.rs")),
        ("auditing", include_str!("auditing.rs")),
        ("foreign", include_str!("foreign.rs")),
        ("operating", include_str!("operating.rs")),
        ("finding", include_str!("finding.rs")),
        ("ordering", include_str!("ordering.rs")),
        ("lanes", include_str!("lanes.rs")),
        ("routing", include_str!("routing.rs")),
        ("watching", include_str!("watching.rs")),
    ];
    for (topic, file) in files {
        if !listed.iter().any(|case| case.split("::").next() == Some(topic)) {
            continue;
        }
        for line in file.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
            let name = line.split('(').next().unwrap_or_default();
            let case = format!("{topic}::{name}");
            assert!(listed.contains(&case.as_str()), "{case} is not in `store_suite!`");
        }
    }
}
