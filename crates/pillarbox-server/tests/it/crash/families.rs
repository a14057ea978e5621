//! The daemon dies while a family is written, and another one continues: every event has one row for each destination.

use std::time::Duration;

use uuid::Uuid;

use super::fixture::{Fixture, Tuning};
use super::order_databases;
use super::shop::{self, HOOK};
use crate::receiver::{Behaviour, Receiver};
use pillarbox_testkit::wait::Load;

const EVENTS: usize = 150;

/// A daemon dies at the failpoint and another one takes over. Nothing was sent, so there are no duplicates.
async fn dies_at(failpoint: &str) {
    let fixture = Fixture::new(Load::Light).await;
    let hook = Receiver::start(Behaviour::Accepts);
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let with_families = |tuning: Tuning| Tuning {
        more: format!("{}{}", hook.destination(HOOK), shop::routes("broker")),
        ..tuning
    };
    shop::commit(&database, EVENTS).await;
    let first = with_families(Tuning::short_leases());
    let daemon = fixture.start_with(&first, &[("PILLARBOX_ABORT_AT", failpoint)]);
    daemon.aborts_at(failpoint).await;
    let siblings = siblings(&fixture).await;
    assert_eq!(
        siblings > 0,
        failpoint == "after_route",
        "{failpoint}: {siblings} siblings exist"
    );

    shop::commit(&database, EVENTS / 5).await;
    let daemon = fixture.start(&with_families(Tuning::long_leases()));
    shop::until_done(&database, Duration::from_secs(60)).await;
    daemon.stop().await;
    let broker: Vec<Uuid> = fixture
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    let totals = shop::check_ledger(&database, ("broker", &broker), &hook.ledger()).await;
    println!("{failpoint}: {totals}");
    assert_eq!(totals.all_duplicates(), 0, "{totals}");
    assert!(totals.rows > totals.events, "there are no families");
    // One for the crash, one in a small group, one alone.
    assert!(totals.attempts <= 3, "{totals}");
    fixture.remove().await;
}

async fn siblings(fixture: &Fixture) -> i64 {
    sqlx::query_scalar("select count(*) from pillarbox.outbox_events where parent_id is not null")
        .fetch_one(&fixture.pool)
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
