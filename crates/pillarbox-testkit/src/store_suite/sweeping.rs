//! Rows that have no attempts left and whose worker did not come back.

use pillarbox::Delivery;
use pillarbox_store::Verdict;
use pillarbox_store::state::SWEPT;
use pillarbox_store::store::Settlement;

use super::Ran;
use super::bench::{Bench, LIMIT, NO_ROWS, event, retry, settlement};

/// A row in its last attempt.
async fn put_and_claim_last(bench: &Bench) -> Delivery {
    bench.put_tried(LIMIT - 1).await;
    let delivery = bench.claim_one().await;
    assert_eq!(delivery.attempts, LIMIT);
    delivery
}

/// And not before: until then a late settle is good.
pub async fn an_exhausted_row_is_swept_one_lease_after_its_own_expired(bench: Bench) -> Ran {
    let last = put_and_claim_last(&bench).await;
    assert_eq!(bench.sweep().await.dead, NO_ROWS, "its lease holds");
    bench.age(90).await; // a lease is 60 seconds, and so is the grace
    assert_eq!(bench.sweep().await.dead, NO_ROWS, "it ended just now");
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.claim_alone().await, []);
    bench.age(60).await;
    let swept = bench.sweep().await;
    assert_eq!(swept.dead, [last.id]);
    let row = bench.show(last.id).await;
    assert_eq!(row.status, "dead");
    let reported: Vec<_> = swept
        .rows
        .iter()
        .map(|row| (row.event, row.attempts, Some(row.reason.clone())))
        .collect();
    assert_eq!(reported, [(last.event.id, LIMIT, row.last_error.clone())]);
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    assert_eq!(bench.sweep().await.dead, NO_ROWS);
    Ok(())
}

/// For example after the limit was lowered.
pub async fn a_pending_row_at_its_limit_is_swept(bench: Bench) -> Ran {
    let tried = bench.put_tried(LIMIT).await;
    bench.put_tried(LIMIT - 1).await;
    assert_eq!(bench.sweep().await.dead, [tried]);
    assert_eq!(bench.show(tried).await.status, "dead");
    assert_eq!(bench.claim(10).await.len(), 1);
    Ok(())
}

/// In both directions.
pub async fn a_sweep_uses_the_limit_of_the_row(bench: Bench) -> Ran {
    let few = bench.put(event()).await;
    let many = bench.put(event()).await;
    let batch: Vec<Settlement> = bench
        .claim(10)
        .await
        .iter()
        .map(|delivery| Settlement {
            max_attempts: Some(if delivery.id == few { 1 } else { 99 }),
            ..settlement(delivery, retry(0))
        })
        .collect();
    assert_eq!(bench.settle_all(&batch).await, NO_ROWS);
    for _ in 0..LIMIT {
        let delivery = bench.claim_one().await;
        assert_eq!(delivery.id, many);
        bench.settle(&delivery, retry(0)).await;
    }
    assert_eq!(bench.sweep().await.dead, [few]);
    assert_eq!(bench.show(many).await.status, "pending");
    Ok(())
}

/// A reason is never lost, and one is made up where there was none.
pub async fn a_sweep_keeps_an_earlier_error(bench: Bench) -> Ran {
    let with_error = bench.put_tried(LIMIT).await;
    let without_error = bench.put(event()).await;
    let crashed = bench.claim_one().await;
    let limited = Settlement {
        max_attempts: Some(1),
        ..settlement(&crashed, super::bench::release(0))
    };
    assert_eq!(bench.settle_all(&[limited]).await, NO_ROWS);
    assert_eq!(bench.claim_one().await.id, without_error);
    bench.age(300).await;

    let mut dead = bench.sweep().await.dead;
    let mut expected = [with_error, without_error];
    dead.sort();
    expected.sort();
    assert_eq!(dead, expected);
    assert_eq!(
        bench.show(with_error).await.last_error.as_deref(),
        Some("connection reset")
    );
    assert_eq!(bench.show(without_error).await.last_error.as_deref(), Some(SWEPT));
    Ok(())
}

/// Its worker comes back too late.
pub async fn a_swept_row_cannot_be_settled(bench: Bench) -> Ran {
    let last = put_and_claim_last(&bench).await;
    bench.age(300).await;
    assert_eq!(bench.sweep().await.dead, [last.id]);
    assert_eq!(bench.try_settle(&last, Verdict::Delivered).await, [last.id]);
    assert_eq!(bench.show(last.id).await.status, "dead");
    Ok(())
}

/// Only for a row that has attempts left and was tried twice.
pub async fn a_sweep_reports_suspects(bench: Bench) -> Ran {
    let row = bench.put_and_claim().await;
    bench.age(100).await;
    assert!(
        !bench.sweep().await.lone_suspect,
        "its second attempt may have company"
    );
    assert_eq!(bench.claim_one().await.id, row.id);
    assert!(!bench.sweep().await.lone_suspect, "its lease holds");
    bench.age(100).await;
    for attempt in 3..=LIMIT {
        assert!(bench.sweep().await.lone_suspect);
        assert_eq!(bench.claim_alone().await[0].attempts, attempt);
        bench.age(100).await;
    }
    assert!(!bench.sweep().await.lone_suspect, "no attempts are left");
    Ok(())
}
