//! The suite that every sink runs.
//!
//! A backend implements [`Harness`] in its integration tests and calls [`sink_suite!`](crate::sink_suite!)
//! once, in a module of its own, with an async function that makes a fresh destination:
//!
//! ```ignore
//! mod suite {
//!     pillarbox_testkit::sink_suite!(super::RabbitMqHarness::fresh);
//! }
//! ```

#[allow(missing_docs, reason = "the name of a case is its sentence")]
pub mod arriving;
mod bench;
#[allow(missing_docs, reason = "the name of a case is its sentence")]
pub mod failing;
#[allow(missing_docs, reason = "the name of a case is its sentence")]
pub mod formats;
mod harness;
#[allow(missing_docs, reason = "the name of a case is its sentence")]
pub mod refusing;

use std::io::Write;
use std::sync::Arc;

pub use bench::{Bench, delivery};
pub use harness::{Arrived, Attributes, Harness, event_id};

use crate::store_suite::{Ran, Skipped};

/// Runs one case on a fresh destination. A skipped case is printed.
pub async fn run<H: Harness>(name: &str, harness: H, case: impl AsyncFnOnce(Bench) -> Ran) {
    let bench = Bench::new(Arc::new(harness));
    match case(bench.clone()).await {
        Ok(()) => {}
        // Directly to the stream, because the test harness captures `eprintln!`.
        Err(Skipped(reason)) => writeln!(std::io::stderr(), "skipped: {name}: {reason}")
            .expect("standard error can be written to"),
    }
    bench.harness.clean_up().await;
}

/// Makes one test of each case, for one sink. Takes an async function that gives a fresh [`Harness`].
#[macro_export]
macro_rules! sink_suite {
    ($fresh:path) => {
        $crate::sink_suite! { @cases $fresh;
            arriving::a_delivered_event_arrives_unchanged
            arriving::the_event_id_travels
            arriving::headers_travel
            arriving::configured_headers_are_made_from_the_event
            arriving::binary_payloads_arrive_as_they_were
            arriving::an_empty_payload_arrives
            arriving::a_large_payload_arrives
            arriving::the_same_event_may_be_delivered_twice_with_the_same_id
            arriving::a_thousand_concurrent_events_all_arrive
            arriving::an_ordered_sink_keeps_the_order_without_waiting
            formats::a_cloudevent_arrives_with_its_attributes_in_headers
            formats::a_cloudevent_arrives_in_one_piece
            formats::bytes_arrive_in_a_cloudevent_as_they_were
            formats::a_compressed_payload_arrives_uncompressed
            formats::a_compressed_payload_arrives_compressed_if_configured
            formats::a_payload_too_large_or_not_zstd_is_rejected_alone
            formats::a_compressed_event_is_not_overtaken_where_order_is_kept
            formats::the_trace_that_an_event_was_enqueued_within_arrives
            failing::check_says_yes_when_there
            failing::check_says_no_when_gone
            failing::check_sends_nothing
            failing::an_unreachable_place_is_not_delivered
            failing::it_recovers_when_the_place_is_back
            failing::a_connection_is_logged_when_established_lost_and_recovered
            failing::an_unanswered_event_is_not_delivered_even_if_it_arrived
            failing::a_connection_cut_mid_flight_is_never_reported_as_delivered_unless_it_arrived
            failing::a_dropped_delivery_leaves_the_sink_usable
            failing::a_closed_sink_can_be_built_again
            refusing::an_event_that_can_never_be_accepted_is_rejected
            refusing::a_rejected_event_harms_no_other
            refusing::wrong_credentials_say_so_and_do_not_print_the_password
            refusing::tls_with_a_private_ca_works
            refusing::an_unknown_ca_is_refused
        }
    };
    (@cases $fresh:path; $($module:ident :: $case:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let harness = $fresh().await;
                $crate::sink_suite::run(
                    stringify!($case),
                    harness,
                    $crate::sink_suite::$module::$case,
                )
                .await;
            }
        )+
    };
}
