//! Who gets which rows.

use std::collections::BTreeSet;

use pillarbox_store::Verdict;
use pillarbox_store::store::{ClaimRequest, Settlement, SweepRequest, Take};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, LIMIT, NO_ROWS, backlog, dead, event, free_from, ids, retry, settlement};
use super::harness::Field;

/// Counted when it is taken, so that a crash counts.
pub async fn a_claim_counts_an_attempt(bench: Bench) -> Ran {
    let id = bench.put(event()).await;
    assert_eq!(bench.show(id).await.attempts, 0);
    let delivery = bench.claim_one().await;
    assert_eq!((delivery.attempts, delivery.suspect), (1, false));
    let row = bench.show(id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("processing", 1));
    assert_eq!(row.locked_by, Some(bench.worker));
    let lease = row.locked_until.expect("leased") - row.updated_at;
    assert_eq!(lease.whole_seconds(), 60);
    Ok(())
}

/// Also beside rows that are suspect, which have a limit of their own.
pub async fn a_claim_takes_no_more_than_its_limit(bench: Bench) -> Ran {
    let put = bench.put_many(5).await;
    assert_eq!(ids(&bench.claim(2).await), put[..2]);
    assert_eq!(ids(&bench.claim(2).await), put[2..4]);
    bench.age(100).await;
    let suspect = bench.request(Take::Suspects(1));
    assert_eq!(ids(&bench.claim_as(suspect).await), [put[0]]);
    let free = bench.request(free_from([backlog(None)], 3));
    assert_eq!(ids(&bench.claim_as(free).await), [put[4]]);
    Ok(())
}

/// First come, first served.
pub async fn claims_come_in_seq_order(bench: Bench) -> Ran {
    let mut put = Vec::new();
    for _ in 0..4 {
        put.extend(bench.put_many(3).await);
    }
    let mut claimed = bench.claim(5).await;
    claimed.extend(bench.claim(50).await);
    assert_eq!(ids(&claimed), put);
    assert!(claimed.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    Ok(())
}

/// Memory is bounded, and a row larger than the bound still gets its turn.
pub async fn a_claim_takes_no_more_bytes_than_asked_but_always_one_row(bench: Bench) -> Ran {
    bench.needs(&[Field::Bytes])?;
    let sized = |bytes: usize| event().bytes(vec![7; bytes], "application/octet-stream");
    let put = bench
        .put_all(&[sized(400), sized(400), sized(400), sized(5_000), sized(10)])
        .await;
    let claim = async || {
        ids(&bench
            .claim_free(10, |request| ClaimRequest {
                max_bytes: 1_000,
                ..request
            })
            .await)
    };
    assert_eq!(claim().await, put[..2]);
    assert_eq!(claim().await, put[2..3]);
    assert_eq!(claim().await, put[3..4]);
    assert_eq!(claim().await, put[4..]);
    Ok(())
}

/// One owner: together they get every row, and no row twice.
pub async fn four_claimers_never_share_a_row(bench: Bench) -> Ran {
    let put: BTreeSet<Uuid> = bench.put_many(300).await.into_iter().collect();
    let claimers: Vec<_> = (0..4).map(|_| tokio::spawn(claim_all(bench.rival()))).collect();
    let mut claimed = Vec::new();
    for claimer in claimers {
        claimed.extend(claimer.await.expect("no panic"));
    }
    // One that looked while another held the last rows may have left early.
    claimed.extend(claim_all(bench).await);
    assert_eq!(claimed.len(), 300, "no row twice");
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), put, "every row");
    Ok(())
}

async fn claim_all(bench: Bench) -> Vec<Uuid> {
    let mut all = Vec::new();
    loop {
        let batch = bench.claim(7).await;
        if batch.is_empty() {
            return all;
        }
        all.extend(ids(&batch));
        tokio::task::yield_now().await;
    }
}

/// Half of a claim belongs to each, if both are there.
pub async fn retried_rows_cannot_starve_fresh_ones_and_vice_versa(bench: Bench) -> Ran {
    let old: BTreeSet<Uuid> = bench.put_many(20).await.into_iter().collect();
    let claimed = bench.claim(20).await;
    let failed: Vec<Settlement> = claimed
        .iter()
        .map(|delivery| settlement(delivery, retry(30)))
        .collect();
    assert_eq!(bench.settle_all(&failed).await, NO_ROWS);
    bench.put_many(20).await;
    bench.age(100).await;

    let mixed = ids(&bench.claim(10).await);
    assert_eq!(mixed.len(), 10);
    assert_eq!(mixed.iter().filter(|id| old.contains(id)).count(), 5);
    Ok(())
}

/// A limit of one is what a destination with a low rate has. With and without a fair share for every tenant.
pub async fn retried_and_fresh_rows_share_claims_of_one_row(bench: Bench) -> Ran {
    for is_fair in [false, true] {
        let old: BTreeSet<Uuid> = bench.put_many(30).await.into_iter().collect();
        let claimed = bench.claim(30).await;
        let failed: Vec<Settlement> = claimed
            .iter()
            .map(|delivery| settlement(delivery, retry(30)))
            .collect();
        assert_eq!(bench.settle_all(&failed).await, NO_ROWS);
        bench.put_many(30).await;
        bench.age(100).await;

        let mut retried = Vec::new();
        for _ in 0..60 {
            let claimed = bench.claim_free(1, |request| with_fair(request, is_fair)).await;
            assert_eq!(claimed.len(), 1, "a claim takes a row while there is one");
            retried.push(old.contains(&claimed[0].id));
        }
        // Chance decides. Fewer than three of thirty come up once in a million times.
        let early = retried[..30].iter().filter(|is_retried| **is_retried).count();
        assert!((3..=27).contains(&early), "fair: {is_fair}, {early} of 30");
        assert_eq!(retried.iter().filter(|is_retried| **is_retried).count(), 30);
        assert_eq!(
            bench.claim_free(1, |request| with_fair(request, is_fair)).await,
            []
        );
    }
    Ok(())
}

fn with_fair(mut request: ClaimRequest, is_fair: bool) -> ClaimRequest {
    if let Take::Free(shares) = &mut request.take {
        for share in shares {
            share.fair = is_fair;
        }
    }
    request
}

/// Only a manual retry makes it due again.
pub async fn a_dead_row_is_not_claimed(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    bench.settle(&delivery, dead()).await;
    bench.age(100_000).await;
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.claim_alone().await, []);
    assert!(!bench.is_due().await);
    let row = bench.show(delivery.id).await;
    assert_eq!(
        (row.status.as_str(), row.last_error.as_deref()),
        ("dead", Some("refused"))
    );
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    Ok(())
}

/// And when it was is written down.
pub async fn a_delivered_row_is_final(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    bench.settle(&delivery, Verdict::Delivered).await;
    let row = bench.show(delivery.id).await;
    assert_eq!(
        (row.status.as_str(), row.delivered_at),
        ("delivered", Some(row.updated_at))
    );
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    bench.age(100_000).await;
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.claim_alone().await, []);
    assert_eq!(bench.sweep().await.dead, NO_ROWS);
    assert!(!bench.is_due().await);
    assert_eq!(bench.try_settle(&delivery, retry(0)).await, [delivery.id]);
    assert_eq!(bench.show(delivery.id).await.status, "delivered");
    Ok(())
}

/// A sweep will see to it; a claim does not.
pub async fn a_row_at_its_limit_is_not_claimed(bench: Bench) -> Ran {
    let id = bench.put_tried(LIMIT).await;
    bench.age(100).await;
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(i64::from(bench.show(id).await.attempts), i64::from(LIMIT));
    Ok(())
}

/// The row's own limit counts, not the dispatcher's, in both directions.
pub async fn a_row_knows_its_own_max_attempts(bench: Bench) -> Ran {
    let few = bench.put(event()).await;
    let many = bench.put(event()).await;
    for delivery in bench.claim(10).await {
        let settlement = Settlement {
            max_attempts: Some(if delivery.id == few { 1 } else { LIMIT + 2 }),
            ..settlement(&delivery, retry(0))
        };
        assert_eq!(bench.settle_all(&[settlement]).await, NO_ROWS);
    }
    for attempt in 2..=LIMIT + 2 {
        let delivery = bench.claim_one().await;
        assert_eq!((delivery.id, delivery.attempts), (many, attempt));
        assert_eq!(delivery.max_attempts, Some(LIMIT + 2));
        bench.settle(&delivery, retry(0)).await;
    }
    assert_eq!(bench.claim(10).await, []);
    Ok(())
}

/// The largest number that the column holds stands for no limit.
pub async fn unlimited_attempts_have_no_end(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let settlement = Settlement {
        max_attempts: Some(u32::MAX),
        ..settlement(&delivery, retry(0))
    };
    assert_eq!(bench.settle_all(&[settlement]).await, NO_ROWS);
    assert_eq!(bench.show(delivery.id).await.max_attempts, Some(i32::MAX));
    for _ in 0..LIMIT + 3 {
        let delivery = bench
            .claim_free(1, |request| ClaimRequest {
                max_attempts: u32::MAX,
                ..request
            })
            .await;
        bench.settle(&delivery[0], retry(0)).await;
    }
    let sweep = SweepRequest {
        max_attempts: u32::MAX,
        ..bench.sweep_request()
    };
    assert_eq!(bench.sweep_as(sweep).await.dead, NO_ROWS);
    Ok(())
}

/// No rows, no error.
pub async fn an_empty_outbox_gives_nothing(bench: Bench) -> Ran {
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.claim_alone().await, []);
    assert_eq!(bench.sweep().await, pillarbox_store::store::Swept::default());
    Ok(())
}
