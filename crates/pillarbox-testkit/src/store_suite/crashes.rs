//! A crash must not kill its neighbours.

use pillarbox_store::Verdict;
use pillarbox_store::store::Take;

use super::Ran;
use super::bench::{Bench, ids, suspect};

/// What may have killed a worker comes back with few others.
pub async fn a_second_attempt_after_a_crash_is_claimed_in_a_small_group(bench: Bench) -> Ran {
    let put = bench.put_many(10).await;
    assert_eq!(bench.claim(10).await.len(), 10);
    bench.age(100).await;
    let fresh = bench.put_many(2).await;
    assert!(bench.sweep().await.suspects);
    let suspects = bench.claim_as(bench.request(Take::Suspects(3))).await;
    assert_eq!(ids(&suspects), put[..3]);
    assert!(
        suspects
            .iter()
            .all(|delivery| delivery.suspect && delivery.attempts == 2)
    );
    let free = bench.claim_free(100, |request| request).await;
    assert_eq!(ids(&free), fresh, "an ordinary claim takes none of them");
    assert!(free.iter().all(|delivery| !delivery.suspect));
    Ok(())
}

/// From the third attempt on, the claim has no other row.
pub async fn a_third_attempt_after_a_crash_is_claimed_alone(bench: Bench) -> Ran {
    let put = bench.put_many(3).await;
    for _ in 0..2 {
        assert_eq!(bench.claim(10).await.len(), 3);
        bench.age(100).await;
    }
    assert_eq!(bench.claim(10).await, [], "not in company");
    for (n, id) in put.iter().enumerate() {
        assert!(bench.sweep().await.lone_suspect, "{n}");
        let alone = bench.claim_alone().await;
        assert_eq!(ids(&alone), [*id]);
        assert_eq!((alone[0].attempts, alone[0].suspect), (3, true));
        bench.settle(&alone[0], Verdict::Delivered).await;
    }
    assert!(!bench.sweep().await.lone_suspect);
    assert_eq!(bench.claim_alone().await, []);
    Ok(())
}

/// Once, in a small group; twice, alone.
pub async fn a_suspect_row_is_claimed_like_one_whose_lease_expired(bench: Bench) -> Ran {
    let first = bench.put_and_claim().await;
    bench.settle(&first, suspect(200)).await;
    let row = bench.show(first.id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("processing", 1));
    assert_eq!(row.last_error.as_deref(), Some("connection lost"));

    bench.age(100).await;
    assert_eq!(bench.claim(10).await, []);
    bench.age(150).await;
    let second = bench.claim_one().await;
    assert_eq!((second.attempts, second.suspect), (2, true));
    bench.settle(&second, suspect(200)).await;
    bench.age(250).await;
    assert_eq!(bench.claim(10).await, []);
    let third = bench.claim_alone().await;
    assert_eq!((third[0].attempts, third[0].suspect), (3, true));
    Ok(())
}

/// The claim that made it suspect cannot settle it, and neither can the nil claim.
pub async fn a_suspect_row_has_no_worker(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    bench.settle(&delivery, suspect(200)).await;
    let row = bench.show(delivery.id).await;
    assert!(row.locked_by.is_none_or(|worker| worker.is_nil()));
    assert_eq!(
        bench.try_settle(&delivery, Verdict::Delivered).await,
        [delivery.id]
    );
    let held = [(delivery.id, delivery.claim)];
    let lost = bench
        .store()
        .renew(bench.worker, &held, super::bench::LEASE)
        .await;
    assert_eq!(lost.expect("a renewal"), [delivery.id]);
    assert_eq!(bench.show(delivery.id).await, row);
    Ok(())
}
