//! Due, not yet due, and clocks that jump.

use pillarbox_store::Verdict;

use super::Ran;
use super::bench::{Bench, NO_ROWS, event, retry};

/// Not a moment before its time.
pub async fn a_row_is_not_claimed_before_it_is_due(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    bench.settle(&delivery, retry(300)).await;
    for _ in 0..2 {
        assert!(!bench.is_due().await);
        assert_eq!(bench.claim(10).await, []);
        bench.age(120).await;
    }
    bench.age(120).await;
    assert!(bench.is_due().await);
    assert_eq!(bench.claim_one().await.id, delivery.id);
    Ok(())
}

/// Nothing is taken twice, nothing is lost, and work goes on.
pub async fn a_clock_that_goes_backwards_does_no_harm(bench: Bench) -> Ran {
    let held = bench.put_and_claim().await;
    let waiting = bench.put(event()).await;
    bench.age(-3_600).await;

    let rival = bench.rival();
    assert!(
        !rival
            .claim(10)
            .await
            .iter()
            .any(|delivery| delivery.id == held.id),
        "a lease holds"
    );
    assert_eq!(rival.claim_alone().await, []);
    assert_eq!(bench.sweep().await.dead, NO_ROWS);
    bench.settle(&held, Verdict::Delivered).await;
    let fresh = bench.put(event()).await;
    let mut seen: Vec<_> = bench
        .claim(10)
        .await
        .into_iter()
        .map(|delivery| delivery.id)
        .collect();

    // The clock catches up; by then every lease that was given meanwhile is over too.
    bench.age(7_200).await;
    seen.extend(bench.claim(10).await.into_iter().map(|delivery| delivery.id));
    assert!(seen.contains(&fresh) && seen.contains(&waiting) && !seen.contains(&held.id));
    assert_eq!(bench.show(held.id).await.status, "delivered");
    Ok(())
}

/// What a worker asks when there is nothing to do.
pub async fn an_idle_outbox_is_not_due(bench: Bench) -> Ran {
    assert!(!bench.is_due().await);
    let delivery = bench.put_and_claim().await;
    assert!(!bench.is_due().await);
    bench.settle(&delivery, Verdict::Delivered).await;
    assert!(!bench.is_due().await);
    bench.put(event()).await;
    assert!(bench.is_due().await);
    Ok(())
}
