//! Values that other programs wrote into the table.

use crate::OPERATOR;
use pillarbox_store::operate::Filter;
use pillarbox_store::store::SweepRequest;
use pillarbox_store::{Status, Verdict};

use super::Ran;
use super::bench::{Bench, LIMIT, NO_ROWS, event, ids};
use super::harness::{Capability, Corruption};

/// It is not ours to touch, and not ours to hide.
pub async fn an_unknown_status_is_left_alone_counted_and_shown(bench: Bench) -> Ran {
    let corruption = Corruption::Status("NEW");
    bench.harness.can(Capability::Corrupt(corruption))?;
    let held = bench.put_and_claim().await;
    let id = bench.put(event()).await;
    for id in [held.id, id] {
        bench.harness.corrupt(id, corruption).await;
    }
    bench.age(100_000).await;
    let before = bench.rows().await;

    assert!(!bench.is_due().await);
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.claim_alone().await, []);
    let sweep = SweepRequest {
        max_attempts: 0,
        ..bench.sweep_request()
    };
    assert_eq!(bench.sweep_as(sweep).await.dead, NO_ROWS);
    assert_eq!(bench.try_settle(&held, Verdict::Delivered).await, [held.id]);
    assert_eq!(
        bench
            .operate()
            .retry(&OPERATOR, &[id, held.id])
            .await
            .expect("a retry"),
        NO_ROWS
    );
    assert_eq!(bench.rows().await, before);

    let stats = bench
        .operate()
        .stats(&OPERATOR, &pillarbox_store::Scope::All)
        .await
        .expect("stats");
    assert_eq!((stats.unknown, stats.pending, stats.processing), (2, 0, 0));
    let shown = bench
        .list(Filter {
            status: Some(Status::Unknown(String::new())),
            ..Filter::default()
        })
        .await;
    assert_eq!(
        shown.iter().map(|row| row.status.as_str()).collect::<Vec<_>>(),
        ["NEW", "NEW"]
    );
    assert_eq!(
        bench.operate().delete(&OPERATOR, &[id]).await.expect("a delete"),
        [id],
        "an operator may delete it"
    );
    Ok(())
}

/// Neither a crash nor an endless row.
pub async fn negative_attempts_count_as_none(bench: Bench) -> Ran {
    bench
        .harness
        .can(Capability::Corrupt(Corruption::NegativeAttempts))?;
    let id = bench.put(event()).await;
    bench.harness.corrupt(id, Corruption::NegativeAttempts).await;
    assert_eq!(bench.sweep().await.dead, NO_ROWS);
    for attempt in 1..=LIMIT {
        let delivery = bench.claim_one().await;
        assert_eq!((delivery.id, delivery.attempts), (id, attempt));
        bench.settle(&delivery, super::bench::retry(0)).await;
    }
    assert_eq!(bench.claim(10).await, []);

    let held = bench.put_and_claim().await;
    bench.harness.corrupt(held.id, Corruption::NegativeAttempts).await;
    bench.settle(&held, super::bench::release(0)).await;
    assert_eq!(bench.claim_one().await.attempts, 1);
    Ok(())
}

/// A row in processing without a worker and a lease is not lost.
pub async fn a_lease_without_an_end_has_expired(bench: Bench) -> Ran {
    bench.harness.can(Capability::OpenLimit)?;
    bench
        .harness
        .can(Capability::Corrupt(Corruption::LeaseWithoutEnd))?;
    let held = bench.put_and_claim().await;
    bench.harness.corrupt(held.id, Corruption::LeaseWithoutEnd).await;
    assert!(bench.sweep().await.suspects);
    assert_eq!(bench.try_settle(&held, Verdict::Delivered).await, [held.id]);
    let again = bench.claim_one().await;
    assert_eq!((again.id, again.attempts, again.suspect), (held.id, 2, true));

    bench.harness.corrupt(held.id, Corruption::LeaseWithoutEnd).await;
    assert_eq!(ids(&bench.claim_alone().await), [held.id]);
    bench.harness.corrupt(held.id, Corruption::LeaseWithoutEnd).await;
    let sweep = SweepRequest {
        max_attempts: 3,
        ..bench.sweep_request()
    };
    assert_eq!(bench.sweep_as(sweep).await.dead, [held.id]);
    Ok(())
}

/// A header is text to a sink; nothing is thrown away but the null.
pub async fn headers_that_are_not_text_become_text(bench: Bench) -> Ran {
    bench
        .harness
        .can(Capability::Corrupt(Corruption::ForeignHeaders))?;
    let id = bench.put(event()).await;
    bench.harness.corrupt(id, Corruption::ForeignHeaders).await;
    let event = bench.claim_one().await.event;
    let pairs: Vec<(&str, &str)> = event
        .headers
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(
        pairs,
        [("flag", "true"), ("list", "[1]"), ("number", "1"), ("text", "a")]
    );
    Ok(())
}

/// It is sent, or it is dead with the reason. The others are claimed either way, and operators can work on it.
pub async fn a_row_with_an_impossible_time_harms_no_other(bench: Bench) -> Ran {
    let corruption = Corruption::ImpossibleTime;
    bench.harness.can(Capability::Corrupt(corruption))?;
    let put = bench.put_many(3).await;
    bench.harness.corrupt(put[1], corruption).await;
    let claimed = ids(&bench.claim(10).await);
    let others: Vec<_> = claimed.iter().filter(|id| **id != put[1]).collect();
    assert_eq!(others, [&put[0], &put[2]]);

    let shown = bench.show(put[1]).await;
    assert_eq!(bench.rows().await.len(), 3);
    let stats = bench
        .operate()
        .stats(&OPERATOR, &pillarbox_store::Scope::All)
        .await
        .expect("stats");
    if claimed.contains(&put[1]) {
        assert_eq!((stats.processing, stats.dead), (3, 0));
        return Ok(());
    }
    assert_eq!((stats.processing, stats.dead), (2, 1));
    assert_eq!((shown.status.as_str(), shown.attempts), ("dead", 0));
    assert_eq!(shown.last_error.as_deref(), Some("unreadable: 22008"));
    let retried = bench
        .operate()
        .retry(&OPERATOR, &[put[1]])
        .await
        .expect("a retry");
    assert_eq!(retried, [put[1]]);
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.show(put[1]).await.status, "dead");
    assert_eq!(
        bench
            .operate()
            .delete(&OPERATOR, &[put[1]])
            .await
            .expect("a delete"),
        [put[1]]
    );
    Ok(())
}
