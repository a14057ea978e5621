//! The machine's clock decides, and may be put back.

use std::time::Duration;

use pillarbox::store::{ClaimRequest, Take};
use pillarbox::{Event, Scope, Store};
use pillarbox_testkit::Harness;
use uuid::Uuid;

use super::SqliteHarness;

const NOBODY: [Uuid; 0] = [];
const LEASE: Duration = Duration::from_secs(60);

async fn claim(outbox: &SqliteHarness, lease: Duration) -> Vec<Uuid> {
    let request = ClaimRequest {
        worker: Uuid::new_v4(),
        claim: Uuid::new_v4(),
        lease,
        take: Take::Due {
            limit: 10,
            recovered: 10,
        },
        max_bytes: usize::MAX,
        scope: Scope::All,
        max_attempts: 5,
    };
    let claimed = outbox.store.claim(&request).await.expect("a claim");
    claimed.iter().map(|delivery| delivery.id).collect()
}

#[tokio::test]
async fn what_is_fresh_does_not_wait_for_a_clock_that_was_put_back() {
    let outbox = SqliteHarness::fresh().await;
    let event = Event::new("shop", "orders");
    outbox
        .enqueue(std::slice::from_ref(&event))
        .await
        .expect("accepted");
    outbox.age(time::Duration::days(-2)).await;
    assert!(outbox.store.is_due(&Scope::All).await.expect("a look"));
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
    assert_eq!(claim(&outbox, LEASE).await, NOBODY, "it is still leased");

    outbox
        .store
        .sweep(&Scope::of(["till"]), 5, LEASE)
        .await
        .expect("a sweep");
    outbox.age(time::Duration::seconds(90)).await;
    assert_eq!(
        claim(&outbox, LEASE).await,
        NOBODY,
        "it is not the till's to mend"
    );

    outbox.store.sweep(&Scope::All, 5, LEASE).await.expect("a sweep");
    assert_eq!(claim(&outbox, LEASE).await, NOBODY, "it lasts one lease more");
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
    outbox.store.sweep(&Scope::All, 5, LEASE).await.expect("a sweep");
    outbox.age(time::Duration::hours(23)).await;
    assert_eq!(claim(&outbox, LEASE).await, NOBODY);
    outbox.age(time::Duration::hours(2)).await;
    assert_eq!(claim(&outbox, LEASE).await.len(), 1);
}
