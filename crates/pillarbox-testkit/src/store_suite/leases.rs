//! How long a worker owns a row.

use pillarbox_store::Verdict;
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, LEASE, NO_ROWS, ids};

/// A stale worker can settle nothing.
pub async fn a_lost_lease_cannot_settle(bench: Bench) -> Ran {
    let mine = bench.put_and_claim().await;
    bench.age(100).await;
    let rival = bench.rival();
    let theirs = rival.claim_one().await;
    assert_eq!((theirs.id, theirs.suspect, theirs.attempts), (mine.id, true, 2));

    let before = bench.show(mine.id).await;
    assert_eq!(bench.try_settle(&mine, Verdict::Delivered).await, [mine.id]);
    assert_eq!(bench.show(mine.id).await, before);
    rival.settle(&theirs, Verdict::Delivered).await;
    Ok(())
}

/// There is no reaper: the claim itself takes it.
pub async fn an_expired_lease_is_claimed_again(bench: Bench) -> Ran {
    let first = bench.put_and_claim().await;
    bench.age(30).await;
    assert!(!bench.sweep().await.suspects);
    assert_eq!(bench.claim(10).await, []);
    bench.age(70).await;
    assert!(bench.sweep().await.suspects);
    let second = bench.claim_one().await;
    assert_eq!((second.id, second.attempts, second.suspect), (first.id, 2, true));
    assert_ne!(second.claim, first.claim);
    Ok(())
}

/// Neither by other workers nor by its own.
pub async fn a_lease_that_holds_is_not_claimed(bench: Bench) -> Ran {
    let held = bench.put_and_claim().await;
    for worker in [bench.clone(), bench.rival()] {
        assert_eq!(worker.claim(10).await, []);
        assert_eq!(worker.claim_alone().await, []);
    }
    assert_eq!(bench.sweep().await.dead, NO_ROWS);
    assert_eq!(bench.show(held.id).await.attempts, 1);
    Ok(())
}

/// From now, not from its old end.
pub async fn renew_extends_the_lease(bench: Bench) -> Ran {
    bench.put_many(2).await;
    let held = bench.claim(2).await;
    bench.age(30).await;
    let pairs: Vec<(Uuid, Uuid)> = held
        .iter()
        .map(|delivery| (delivery.id, delivery.claim))
        .collect();
    assert_eq!(bench.renew(&pairs[..1], LEASE * 10).await, NO_ROWS);
    let row = bench.show(held[0].id).await;
    assert_eq!(
        (row.locked_until.expect("leased") - row.updated_at).whole_seconds(),
        600
    );
    assert_eq!(row.attempts, 1);
    bench.age(300).await;
    assert_eq!(ids(&bench.rival().claim(10).await), [held[1].id]);
    bench.settle(&held[0], Verdict::Delivered).await;
    Ok(())
}

/// And extends the rest.
pub async fn renew_reports_the_lost(bench: Bench) -> Ran {
    bench.put_many(3).await;
    let held = bench.claim(3).await;
    bench.settle(&held[0], Verdict::Delivered).await;
    let unknown = Uuid::new_v4();
    let pairs = [
        (held[0].id, held[0].claim),
        (held[1].id, Uuid::new_v4()),
        (held[2].id, held[2].claim),
        (unknown, unknown),
    ];
    let mut lost = bench.renew(&pairs, LEASE * 10).await;
    let mut expected = [held[0].id, held[1].id, unknown];
    lost.sort();
    expected.sort();
    assert_eq!(lost, expected);
    bench.age(300).await;
    assert_eq!(ids(&bench.claim(10).await), [held[1].id]);
    Ok(())
}

/// A claim's id alone is not enough.
pub async fn a_lease_of_another_worker_cannot_be_renewed(bench: Bench) -> Ran {
    let held = bench.put_and_claim().await;
    let rival = bench.rival();
    let lost = rival
        .store()
        .renew(rival.worker, &[(held.id, held.claim)], LEASE * 10)
        .await;
    assert_eq!(lost.expect("a renewal"), [held.id]);
    bench.age(300).await;
    assert_eq!(rival.claim_one().await.id, held.id);
    Ok(())
}
