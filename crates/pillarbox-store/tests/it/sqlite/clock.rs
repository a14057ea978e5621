//! The clock of the machine, which may be set back.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_store::store::{ClaimRequest, SweepRequest, Take};
use pillarbox_store::{Scope, Store};
use pillarbox_testkit::Harness;
use uuid::Uuid;

use super::SqliteHarness;
use super::harness::request;

const NONE: [Uuid; 0] = [];
const LEASE: Duration = Duration::from_secs(60);

/// What is due, and what came back.
async fn claim(outbox: &SqliteHarness, lease: Duration) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for take in [outbox.free(10).await, Take::Suspects(10)] {
        let request = ClaimRequest {
            lease,
            ..request(take)
        };
        let claimed = outbox.store.claim(&request).await.expect("a claim");
        ids.extend(claimed.iter().map(|delivery| delivery.id));
    }
    ids
}

async fn sweep(outbox: &SqliteHarness, scope: Scope) {
    let request = SweepRequest {
        worker: Uuid::new_v4(),
        scope,
        max_attempts: 5,
        grace: LEASE,
        excluded: Vec::new(),
    };
    outbox.store.sweep(&request).await.expect("a sweep");
}

#[tokio::test]
async fn fresh_rows_do_not_wait_after_the_clock_was_set_back() {
    let outbox = SqliteHarness::fresh().await;
    let event = Event::new("shop", "orders");
    outbox
        .enqueue(std::slice::from_ref(&event))
        .await
        .expect("accepted");
    outbox.age(time::Duration::days(-2)).await;
    assert!(outbox.is_due().await);
    assert_eq!(claim(&outbox, LEASE).await, [event.id]);
}

#[tokio::test]
async fn a_lease_longer_than_any_is_ended_by_the_sweep() {
    let outbox = SqliteHarness::fresh().await;
    let event = Event::new("shop", "orders");
    outbox
        .enqueue(std::slice::from_ref(&event))
        .await
        .expect("accepted");
    assert_eq!(claim(&outbox, LEASE).await, [event.id]);
    outbox.age(time::Duration::days(-2)).await;
    assert_eq!(claim(&outbox, LEASE).await, NONE, "it is still leased");

    sweep(&outbox, Scope::of(["till"])).await;
    outbox.age(time::Duration::seconds(90)).await;
    assert_eq!(claim(&outbox, LEASE).await, NONE, "it is not the till's to mend");

    sweep(&outbox, Scope::All).await;
    assert_eq!(claim(&outbox, LEASE).await, NONE, "it lasts one lease more");
    outbox.age(time::Duration::seconds(90)).await;
    assert_eq!(claim(&outbox, LEASE).await, [event.id]);
}

#[tokio::test]
async fn the_longest_lease_that_is_given_is_not_mended() {
    let outbox = SqliteHarness::fresh().await;
    outbox
        .enqueue(&[Event::new("shop", "orders")])
        .await
        .expect("accepted");
    assert_eq!(claim(&outbox, Duration::from_secs(10_000_000)).await.len(), 1);
    sweep(&outbox, Scope::All).await;
    outbox.age(time::Duration::hours(23)).await;
    assert_eq!(claim(&outbox, LEASE).await, NONE);
    outbox.age(time::Duration::hours(2)).await;
    assert_eq!(claim(&outbox, LEASE).await.len(), 1);
}
