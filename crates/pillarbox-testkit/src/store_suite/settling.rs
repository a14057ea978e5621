//! What is written down, and by whom.

use std::collections::BTreeMap;

use pillarbox::text::error_text;
use pillarbox_store::Verdict;
use pillarbox_store::store::Settlement;
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, LEASE, NO_ROWS, dead, release, retry, settlement, suspect};
use crate::OPERATOR;

/// The second time reports a loss and changes nothing.
pub async fn settle_is_idempotent(bench: Bench) -> Ran {
    for verdict in [Verdict::Delivered, retry(500), release(500), dead(), suspect(500)] {
        let delivery = bench.put_and_claim().await;
        bench.settle(&delivery, verdict.clone()).await;
        let before = bench.show(delivery.id).await;
        assert_eq!(
            bench.try_settle(&delivery, verdict.clone()).await,
            [delivery.id],
            "{verdict:?}"
        );
        assert_eq!(bench.show(delivery.id).await, before, "{verdict:?}");
    }
    Ok(())
}

/// A claim's id alone is not enough.
pub async fn a_settle_by_another_worker_changes_nothing(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let before = bench.show(delivery.id).await;
    assert_eq!(
        bench.rival().try_settle(&delivery, Verdict::Delivered).await,
        [delivery.id]
    );
    assert_eq!(bench.show(delivery.id).await, before);
    bench.settle(&delivery, Verdict::Delivered).await;
    Ok(())
}

/// The worker's id alone is not enough.
pub async fn a_settle_under_another_claim_changes_nothing(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let before = bench.show(delivery.id).await;
    let stale = pillarbox::Delivery {
        claim: Uuid::new_v4(),
        ..delivery.clone()
    };
    assert_eq!(bench.try_settle(&stale, dead()).await, [delivery.id]);
    assert_eq!(bench.show(delivery.id).await, before);
    Ok(())
}

/// After an outage of the database nothing is thrown away.
pub async fn a_settle_after_the_lease_is_good_if_no_other_worker_has_the_row(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    bench.age(100_000).await;
    bench.settle(&delivery, Verdict::Delivered).await;
    assert_eq!(bench.show(delivery.id).await.status, "delivered");
    Ok(())
}

/// An event that was not sent costs no attempt. The last error stays, unless the release has a reason.
pub async fn a_release_gives_the_attempt_back(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    bench.settle(&delivery, retry(0)).await;
    let delivery = bench.claim_one().await;
    assert_eq!(delivery.attempts, 2);
    bench.settle(&delivery, release(0)).await;
    let row = bench.show(delivery.id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 1));
    assert_eq!(row.last_error.as_deref(), Some("connection reset"));
    assert_eq!((row.locked_by, row.locked_until), (None, None));

    let delivery = bench.claim_one().await;
    assert_eq!(delivery.attempts, 2);
    let throttled = Verdict::Release {
        after: LEASE,
        reason: Some("429".into()),
    };
    bench.settle(&delivery, throttled).await;
    assert_eq!(bench.show(delivery.id).await.last_error.as_deref(), Some("429"));
    assert_eq!(bench.claim(10).await, []);
    bench.age(100).await;
    assert_eq!(bench.claim_one().await.attempts, 2);
    Ok(())
}

/// And is free for any worker then.
pub async fn a_retry_is_due_later_and_records_the_error(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    bench.settle(&delivery, retry(500)).await;
    let row = bench.show(delivery.id).await;
    assert_eq!((row.status.as_str(), row.attempts), ("pending", 1));
    assert_eq!(row.last_error.as_deref(), Some("connection reset"));
    assert_eq!(
        (row.locked_by, row.locked_until, row.delivered_at),
        (None, None, None)
    );
    assert_eq!((row.next_attempt_at - row.updated_at).whole_seconds(), 500);
    bench.age(550).await;
    let again = bench.rival().claim_one().await;
    assert_eq!((again.attempts, again.suspect), (2, false));
    Ok(())
}

/// Five verdicts in one call.
pub async fn a_batch_settles_each_row_as_it_should(bench: Bench) -> Ran {
    bench.put_many(5).await;
    let claimed = bench.claim(5).await;
    let verdicts = [Verdict::Delivered, retry(30), release(30), dead(), suspect(30)];
    let batch: Vec<Settlement> = claimed
        .iter()
        .zip(verdicts)
        .map(|(delivery, verdict)| settlement(delivery, verdict))
        .collect();
    assert_eq!(bench.settle_all(&batch).await, NO_ROWS);
    let mut seen = Vec::new();
    for delivery in &claimed {
        let row = bench.show(delivery.id).await;
        seen.push((row.status, row.attempts));
    }
    let expected = [
        ("delivered", 1),
        ("pending", 1),
        ("pending", 0),
        ("dead", 1),
        ("processing", 1),
    ];
    assert_eq!(
        seen,
        expected.map(|(status, attempts)| (status.to_owned(), attempts))
    );
    Ok(())
}

/// All but the lost are settled, and only the lost are reported.
pub async fn a_loss_in_a_batch_does_not_harm_the_others(bench: Bench) -> Ran {
    bench.put_many(4).await;
    let claimed = bench.claim(4).await;
    let mut batch: Vec<Settlement> = claimed
        .iter()
        .map(|delivery| settlement(delivery, Verdict::Delivered))
        .collect();
    batch[1].claim = Uuid::new_v4();
    batch[2].id = Uuid::new_v4();
    let mut lost = bench.settle_all(&batch).await;
    let mut expected = [batch[1].id, batch[2].id];
    lost.sort();
    expected.sort();
    assert_eq!(lost, expected);
    let status: BTreeMap<Uuid, String> = bench
        .rows()
        .await
        .into_iter()
        .map(|row| (row.id, row.status))
        .collect();
    assert_eq!(status[&claimed[0].id], "delivered");
    assert_eq!(status[&claimed[1].id], "processing");
    assert_eq!(status[&claimed[2].id], "processing");
    assert_eq!(status[&claimed[3].id], "delivered");
    Ok(())
}

/// The result of routing stays on the row. A settle without one leaves it unchanged.
pub async fn settling_writes_the_destination_and_its_limit(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let routed = Settlement {
        destination: Some("broker".into()),
        max_attempts: Some(9),
        ..settlement(&delivery, retry(0))
    };
    assert_eq!(bench.settle_all(&[routed]).await, NO_ROWS);
    let delivery = bench.claim_one().await;
    assert_eq!(delivery.event.destination.as_deref(), Some("broker"));
    assert_eq!(delivery.max_attempts, Some(9));
    bench.settle(&delivery, Verdict::Delivered).await;
    let row = bench.show(delivery.id).await;
    assert_eq!(
        (row.destination.as_deref(), row.max_attempts),
        (Some("broker"), Some(9))
    );
    Ok(())
}

/// A row whose error cannot be written could never be failed.
pub async fn every_error_text_is_cleaned_and_cut_to_fit(bench: Bench) -> Ran {
    let texts = [
        "a\0b".to_owned(),
        "é".repeat(50_000),
        "<html><script>alert('x')</script>\"; drop table outbox_events; --".to_owned(),
        "\\ {\"json\": \"\\u0000\"} \u{1F4A5}\r\n\t".to_owned(),
        String::new(),
    ];
    for text in texts {
        let delivery = bench.put_and_claim().await;
        let verdict = Verdict::Dead { reason: text.clone() };
        bench.settle(&delivery, verdict).await;
        let row = bench.show(delivery.id).await;
        assert_eq!(row.last_error, Some(error_text(&text)));
    }
    Ok(())
}

/// A row that was deleted meanwhile is lost like any other.
pub async fn an_unknown_id_is_reported_as_lost(bench: Bench) -> Ran {
    let unknown = Settlement {
        id: Uuid::new_v4(),
        claim: Uuid::new_v4(),
        verdict: Verdict::Delivered,
        destination: None,
        max_attempts: None,
        unordered: false,
        keep: true,
    };
    let lost = bench
        .store()
        .settle(bench.worker, std::slice::from_ref(&unknown))
        .await
        .expect("a settle");
    assert_eq!(lost, [unknown.id]);
    assert_eq!(
        bench.store().settle(bench.worker, &[]).await.expect("a settle"),
        NO_ROWS
    );
    Ok(())
}

/// Claim, renew, settle, sweep, retry: each is seen in the row.
pub async fn updated_at_moves_with_each_transition(bench: Bench) -> Ran {
    let id = bench.put(super::bench::event()).await;
    let mut delivery = None;
    for step in ["claim", "renew", "retry", "manual retry", "claim", "dead"] {
        bench.age(30).await;
        let before = bench.show(id).await.updated_at;
        let held = || delivery.clone().expect("claimed");
        match step {
            "claim" => delivery = Some(bench.claim_one().await),
            "renew" => {
                let held = (id, held().claim);
                assert_eq!(bench.renew(&[held], LEASE).await, NO_ROWS);
            }
            "retry" => bench.settle(&held(), retry(0)).await,
            "manual retry" => assert_eq!(
                bench.operate().retry(&OPERATOR, &[id]).await.expect("a retry"),
                [id]
            ),
            _ => bench.settle(&held(), dead()).await,
        }
        let after = bench.show(id).await;
        assert!(after.updated_at > before, "{step}");
        assert!(after.created_at < after.updated_at);
    }
    Ok(())
}
