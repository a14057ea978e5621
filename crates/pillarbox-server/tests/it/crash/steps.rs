//! Dies at each step of an event's path, and comes back.
//!
//! Where nothing was sent yet, nothing may arrive twice. Where something was confirmed and not written
//! down, it must: a test that saw no duplicate there did not die where it says.

use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::process::Signal;

use super::door::{Door, Manners};
use super::patience::Weight;
use super::world::{Tuning, World};

const EVENTS: usize = 200;
const NONE: RangeInclusive<usize> = 0..=0;

/// With 128 rows in flight at the most.
fn at_least(fewest: usize) -> RangeInclusive<usize> {
    fewest..=Tuning::hasty().in_flight
}

/// A daemon dies at the failpoint and another one takes over.
async fn dies_at(failpoint: &str, duplicates: RangeInclusive<usize>) {
    let world = World::new(Weight::Light).await;
    world.producer.commit(EVENTS).await;
    let name = failpoint.split(':').next().unwrap_or(failpoint);
    let daemon = world.start_with(&Tuning::hasty(), &[("PILLARBOX_ABORT_AT", failpoint)]);
    daemon.aborts_at(name).await;
    world.producer.commit(20).await;
    finish(world, failpoint, duplicates).await;
}

/// A daemon without a fault ends what the first began, and repeats nothing of its own.
async fn finish(world: World, failpoint: &str, duplicates: RangeInclusive<usize>) {
    let written = world.ids("delivered").await;
    let daemon = world.start(&Tuning::calm());
    world.done().await;
    daemon.stop().await;
    let report = world.reckon(failpoint, &[]).await;
    assert!(
        report.repeated.is_disjoint(&written),
        "what was settled was sent again"
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

/// A broker that takes its time, so that rows are held for longer than half a lease.
async fn slow_broker(world: &World) -> (Door, Tuning) {
    let manners = Manners {
        delay: Duration::from_millis(30),
        ..Manners::default()
    };
    let door = Door::open(world.amqp(), manners).await;
    let tuning = Tuning {
        concurrency: 1,
        amqp: Some(door.url(world.amqp())),
        ..Tuning::hasty()
    };
    (door, tuning)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_while_leases_are_renewed_loses_nothing() {
    let world = World::new(Weight::Light).await;
    let (_door, slow) = slow_broker(&world).await;
    world.producer.commit(EVENTS).await;
    let daemon = world.start_with(&slow, &[("PILLARBOX_ABORT_AT", "after_renew")]);
    daemon.aborts_at("after_renew").await;
    finish(world, "after_renew", at_least(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_while_a_shutdown_gives_rows_back_loses_nothing() {
    let world = World::new(Weight::Light).await;
    let (_door, slow) = slow_broker(&world).await;
    world.producer.commit(EVENTS).await;
    let daemon = world.start_with(&slow, &[("PILLARBOX_ABORT_AT", "on_release")]);
    world.more_than(5, "delivered").await;
    daemon.signal(Signal::TERM);
    daemon.aborts_at("on_release").await;
    finish(world, "on_release", at_least(0)).await;
}

/// What a crash leaves behind is what the design says: leased rows with their attempt counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn a_claim_counts_its_attempt_when_it_commits_and_not_before() {
    let world = World::new(Weight::Light).await;
    world.producer.commit(EVENTS).await;
    for (failpoint, attempts) in [("in_claim", 0), ("after_claim", 1)] {
        let daemon = world.start_with(&Tuning::hasty(), &[("PILLARBOX_ABORT_AT", failpoint)]);
        daemon.aborts_at(failpoint).await;
        assert_eq!(world.most_attempts().await, attempts, "{failpoint}");
        assert_eq!(world.count("processing").await > 0, attempts > 0, "{failpoint}");
    }
    finish(world, "in_claim, then after_claim", NONE).await;
}
