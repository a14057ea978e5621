//! The daemon dies at each step of an event's path, and another one continues.
//!
//! If nothing was sent yet, there are no duplicates. If an event was confirmed and not settled, there must be one: a test
//! without a duplicate did not die at that step.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use pillarbox_testkit::process::Signal;

use uuid::Uuid;

use super::fixture::{Fixture, Tuning};
use pillarbox_testkit::environment::authority;
use pillarbox_testkit::proxy::{Faults, Proxy};
use pillarbox_testkit::wait::{Load, until};

const EVENTS: usize = 200;
const NONE: RangeInclusive<usize> = 0..=0;

/// At most 128 rows are in flight.
fn at_least(fewest: usize) -> RangeInclusive<usize> {
    fewest..=Tuning::short_leases().in_flight
}

/// A daemon dies at the failpoint and another one takes over.
async fn dies_at(failpoint: &str, duplicates: RangeInclusive<usize>) {
    let fixture = Fixture::new(Load::Light).await;
    fixture.producer.commit(EVENTS).await;
    let daemon = fixture.start_with(&Tuning::short_leases(), &[("PILLARBOX_ABORT_AT", failpoint)]);
    daemon.aborts_at(failpoint).await;
    fixture.producer.commit(20).await;
    finish(fixture, failpoint, duplicates).await;
}

/// A daemon without a fault finishes the work of the first, and repeats nothing of its own.
async fn finish(fixture: Fixture, failpoint: &str, duplicates: RangeInclusive<usize>) {
    let written = fixture.ids("delivered").await;
    let daemon = fixture.start(&Tuning::long_leases());
    fixture.until_done().await;
    daemon.stop().await;
    let report = fixture.check_ledger(failpoint, &[]).await;
    assert!(
        report.repeated.is_disjoint(&written),
        "a settled event was sent again"
    );
    assert!(
        duplicates.contains(&report.duplicates),
        "{} duplicates, not within {duplicates:?}",
        report.duplicates
    );
    // One for the crash, one in a small group, one alone.
    assert!(
        report.attempts <= 3,
        "one crash cost a row {} attempts",
        report.attempts
    );
}

macro_rules! dies {
    ($($(#[$why:meta])* $sentence:ident: $failpoint:literal, $duplicates:expr;)*) => {$(
        $(#[$why])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
        async fn $sentence() {
            dies_at($failpoint, $duplicates).await;
        }
    )*};
}

dies! {
    dying_before_a_claim_loses_nothing: "before_claim", NONE;
    dying_between_a_claim_and_its_commit_loses_nothing: "in_claim", NONE;
    dying_right_after_a_claim_loses_nothing: "after_claim", NONE;
    dying_after_routing_loses_nothing: "after_route", NONE;
    dying_before_the_first_send_loses_nothing: "before_send", NONE;
    dying_in_the_middle_of_a_batch_loses_nothing: "before_send:100", at_least(0);
    dying_after_the_first_confirmation_repeats_it: "after_send", at_least(1);
    dying_after_the_hundredth_confirmation_repeats_what_was_in_flight: "after_send:100", at_least(1);
    dying_before_a_settle_repeats_its_batch: "before_settle", at_least(1);
    dying_between_a_settle_and_its_commit_repeats_its_batch: "in_settle", at_least(1);
    dying_right_after_a_settle_repeats_nothing_that_was_written: "after_settle", at_least(0);
    dying_in_a_sweep_loses_nothing: "after_sweep", at_least(0);
}

/// A daemon that deletes delivered rows dies at the failpoint, and another one takes over.
async fn dies_deleting_at(failpoint: &str, duplicates: RangeInclusive<usize>) {
    dies_with(failpoint, "[retention]\ndelivered = \"0s\"", duplicates).await;
}

/// A daemon with a retention that ends at once dies at the failpoint, and another one takes over.
async fn dies_pruning_at(failpoint: &str) {
    let more = "[retention]\ndelivered = \"1ms\"\ninterval = \"1s\"\nbatch = 20";
    dies_with(failpoint, more, at_least(0)).await;
}

async fn dies_with(failpoint: &str, more: &str, duplicates: RangeInclusive<usize>) {
    let fixture = Fixture::new(Load::Light).await;
    fixture.producer.commit(EVENTS).await;
    let short = Tuning {
        more: more.into(),
        ..Tuning::short_leases()
    };
    let daemon = fixture.start_with(&short, &[("PILLARBOX_ABORT_AT", failpoint)]);
    daemon.aborts_at(failpoint).await;
    let left = fixture.left().await;
    let orders = fixture.orders().await;
    let deleted: HashSet<Uuid> = orders.into_keys().filter(|id| !left.contains(id)).collect();
    fixture.producer.commit(20).await;
    let long = Tuning {
        more: more.into(),
        ..Tuning::long_leases()
    };
    let daemon = fixture.start(&long);
    fixture.until_done().await;
    until("every delivered row is deleted", async || {
        fixture.left().await.is_empty()
    })
    .await;
    daemon.stop().await;
    let report = fixture.check_ledger_of_deleted_rows(failpoint).await;
    assert!(
        report.repeated.is_disjoint(&deleted),
        "a deleted event was sent again"
    );
    assert!(duplicates.contains(&report.duplicates), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_between_the_delete_of_delivered_rows_and_its_commit_repeats_its_batch() {
    dies_deleting_at("in_settle", at_least(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_right_after_delivered_rows_are_deleted_repeats_none_of_them() {
    dies_deleting_at("after_settle", at_least(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_between_a_prune_and_its_commit_loses_nothing() {
    // The first hit is a pass over dead rows, of which there are none.
    dies_pruning_at("in_prune:3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_right_after_a_prune_repeats_nothing_that_was_deleted() {
    dies_pruning_at("after_prune:8").await;
}

/// A slow broker, so that rows are in flight for longer than half a lease.
async fn slow_broker(fixture: &Fixture) -> (Proxy, Tuning) {
    let faults = Faults {
        delay: Duration::from_millis(30),
        ..Faults::default()
    };
    let proxy = Proxy::start_with(authority(fixture.amqp()), faults).await;
    let tuning = Tuning {
        concurrency: 1,
        amqp: Some(proxy.url(fixture.amqp())),
        ..Tuning::short_leases()
    };
    (proxy, tuning)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_while_leases_are_renewed_loses_nothing() {
    let fixture = Fixture::new(Load::Light).await;
    let (_proxy, slow) = slow_broker(&fixture).await;
    fixture.producer.commit(EVENTS).await;
    let daemon = fixture.start_with(&slow, &[("PILLARBOX_ABORT_AT", "after_renew")]);
    daemon.aborts_at("after_renew").await;
    finish(fixture, "after_renew", at_least(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_while_a_shutdown_releases_rows_loses_nothing() {
    let fixture = Fixture::new(Load::Light).await;
    let (_proxy, slow) = slow_broker(&fixture).await;
    fixture.producer.commit(EVENTS).await;
    let daemon = fixture.start_with(&slow, &[("PILLARBOX_ABORT_AT", "on_release")]);
    fixture.until_more_than(5, "delivered").await;
    daemon.signal(Signal::TERM);
    daemon.aborts_at("on_release").await;
    finish(fixture, "on_release", at_least(0)).await;
}

/// A crash leaves leased rows with their attempt counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn a_claim_counts_its_attempt_when_it_commits_and_not_before() {
    let fixture = Fixture::new(Load::Light).await;
    fixture.producer.commit(EVENTS).await;
    for (failpoint, attempts) in [("in_claim", 0), ("after_claim", 1)] {
        let daemon = fixture.start_with(&Tuning::short_leases(), &[("PILLARBOX_ABORT_AT", failpoint)]);
        daemon.aborts_at(failpoint).await;
        assert_eq!(fixture.most_attempts().await, attempts, "{failpoint}");
        assert_eq!(fixture.count("processing").await > 0, attempts > 0, "{failpoint}");
    }
    finish(fixture, "in_claim, then after_claim", NONE).await;
}
