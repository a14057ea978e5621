//! Two modules share one table without seeing each other.

use pillarbox::store::{ClaimRequest, Take};
use pillarbox::{Event, Scope};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, LEASE, LIMIT, ids};

async fn put_two(bench: &Bench) -> (Uuid, Uuid) {
    let ours = bench.put(Event::new("shop", "orders")).await;
    let theirs = bench.put(Event::new("till", "orders")).await;
    (ours, theirs)
}

fn shop(bench: &Bench, take: Take) -> ClaimRequest {
    ClaimRequest {
        scope: Scope::of(["shop", "kiosk"]),
        take,
        ..bench.request(0)
    }
}

/// Neither when it is fresh nor when its lease ran out.
pub async fn a_row_outside_the_scope_is_not_claimed(bench: Bench) -> Ran {
    let (ours, theirs) = put_two(&bench).await;
    let due = Take::Due {
        limit: 10,
        recovered: 10,
    };
    assert_eq!(ids(&bench.claim_as(shop(&bench, due)).await), [ours]);
    assert_eq!(ids(&bench.claim(10).await), [theirs]);
    bench.age(100).await;
    assert_eq!(ids(&bench.claim_as(shop(&bench, due)).await), [ours]);
    assert_eq!(ids(&bench.claim(10).await), [theirs]);
    bench.age(100).await;
    assert_eq!(ids(&bench.claim_as(shop(&bench, Take::Alone)).await), [ours]);
    assert_eq!(bench.claim_as(shop(&bench, Take::Alone)).await, []);
    Ok(())
}

/// And does not ask to be alone.
pub async fn a_row_outside_the_scope_is_not_swept(bench: Bench) -> Ran {
    let (ours, theirs) = put_two(&bench).await;
    let claim = ClaimRequest {
        max_attempts: 1,
        ..bench.request(10)
    };
    assert_eq!(bench.claim_as(claim).await.len(), 2);
    bench.age(300).await;
    let scope = Scope::of(["shop"]);
    assert_eq!(
        bench.store.sweep(&scope, 1, LEASE).await.expect("a sweep").dead,
        [ours]
    );
    assert_eq!(bench.show(theirs).await.status, "processing");

    assert_eq!(ids(&bench.claim(10).await), [theirs]);
    bench.age(300).await;
    assert!(
        !bench
            .store
            .sweep(&scope, LIMIT, LEASE)
            .await
            .expect("a sweep")
            .alone
    );
    assert!(bench.sweep().await.alone);
    Ok(())
}

/// Nobody is woken for somebody else's rows.
pub async fn a_row_outside_the_scope_is_not_due(bench: Bench) -> Ran {
    bench.put(Event::new("till", "orders")).await;
    let due = async |scope: Scope| bench.store.is_due(&scope).await.expect("a look");
    assert!(!due(Scope::of(["shop"])).await);
    assert!(due(Scope::of(["till"])).await);
    assert!(due(Scope::All).await);
    bench.claim_one().await;
    bench.age(100).await;
    assert!(!due(Scope::of(["shop"])).await);
    assert!(due(Scope::of(["till"])).await);
    Ok(())
}
