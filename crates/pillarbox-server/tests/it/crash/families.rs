//! Dies while families are written, and comes back: every event has one row for every destination, once.

use std::time::Duration;

use uuid::Uuid;

use super::books;
use super::patience::Weight;
use super::shop::{self, HOOK};
use super::world::{Tuning, World};
use crate::receiver::{Mood, Receiver};

const EVENTS: usize = 150;

/// A daemon dies at the failpoint and another one takes over. Nothing was sent, so nothing comes twice.
async fn dies_at(failpoint: &str) {
    let world = World::new(Weight::Light).await;
    let hook = Receiver::start(Mood::Answers);
    let books = books::Postgres::open(world.pool.clone()).await;
    let with_families = |tuning: Tuning| Tuning {
        more: format!("{}{}", hook.destination(HOOK), shop::routes("broker")),
        ..tuning
    };
    shop::commit(&books, EVENTS).await;
    let doomed = with_families(Tuning::hasty());
    let daemon = world.start_with(&doomed, &[("PILLARBOX_ABORT_AT", failpoint)]);
    daemon.aborts_at(failpoint).await;
    let siblings = siblings(&world).await;
    assert_eq!(
        siblings > 0,
        failpoint == "after_route",
        "{failpoint}: {siblings} siblings are there"
    );

    shop::commit(&books, EVENTS / 5).await;
    let daemon = world.start(&with_families(Tuning::calm()));
    shop::done(&books, Duration::from_secs(60)).await;
    daemon.stop().await;
    let broker: Vec<Uuid> = world
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    let reckoning = shop::reckon(&books, ("broker", &broker), &hook.ledger()).await;
    println!("{failpoint}: {reckoning}");
    assert_eq!(reckoning.all_duplicates(), 0, "{reckoning}");
    assert!(reckoning.rows > reckoning.events, "there are no families");
    // One for the crash, one in a small group, one alone.
    assert!(reckoning.attempts <= 3, "{reckoning}");
    world.remove().await;
}

async fn siblings(world: &World) -> i64 {
    sqlx::query_scalar("select count(*) from pillarbox.outbox_events where parent_id is not null")
        .fetch_one(&world.pool)
        .await
        .expect("the database answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_before_a_family_is_written_leaves_none_of_it() {
    dies_at("before_route").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_between_a_family_and_its_commit_leaves_none_of_it() {
    dies_at("in_route").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_right_after_a_family_is_written_leaves_all_of_it_once() {
    dies_at("after_route").await;
}
