//! The system's own worker runs beside the importer. No row is taken by both, and the table shows who has it.

use std::collections::BTreeSet;

use pillarbox_store::Verdict;
use pillarbox_store::adopt::ImportRequest;
use pillarbox_testkit::store_suite::Harness;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use super::harness::{Adopted, importer, retry};
use super::seeds::{MODKIT, REDIVER, Seed};

const ROWS: usize = 400;

/// As their specification claims.
pub(super) const MODKIT_CLAIM: &str = "update {schema}.modkit_outbox_events e
  set status = 'processing', attempts = attempts + 1, locked_by = gen_random_uuid(),
    locked_until = now() + interval '30 seconds', updated_at = now()
  where id in (
    select id from {schema}.modkit_outbox_events
    where ((status = 'pending' and next_attempt_at <= now()) or (status = 'processing' and locked_until < now()))
      and attempts < 25
    order by created_at, id limit 7 for update skip locked)
  returning id";
/// As their `FetchPendingBatch` claims.
pub(super) const REDIVER_CLAIM: &str = "update {schema}.notification_outbox
  set status = 'processing', locked_at = now(), locked_by = 'worker-123'
  where id in (
    select id from {schema}.notification_outbox where status = 'pending' and scheduled_at <= now()
    order by scheduled_at limit 7 for update skip locked)
  returning id";
/// As their `UnlockStale` releases, with the ten minutes of their document.
const REDIVER_UNLOCK: &str =
    "update {schema}.notification_outbox set status = 'pending', locked_at = null, locked_by = null
  where status = 'processing' and locked_at < now() - interval '10 minutes'";

pub(super) async fn adopted(seed: Seed) -> Adopted {
    Adopted::with(seed, |mut table| {
        table.layout.write_processing = None;
        table
    })
    .await
}

pub(super) async fn claim(pool: &PgPool, schema: &str, claim: &str) -> Vec<Uuid> {
    let sql = claim.replace("{schema}", schema);
    let claimed = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(pool).await;
    claimed.expect("their worker claims")
}

/// Their worker and ours take all rows, each some of them.
async fn take_side_by_side(seed: Seed, their_claim: &'static str) {
    let adopted = adopted(seed).await;
    let mut produced = BTreeSet::new();
    for _ in 0..ROWS {
        produced.insert(adopted.produce().await);
    }
    let import = async || {
        let request = ImportRequest {
            batch: 7,
            ..adopted.request()
        };
        let imported = importer(&adopted.outbox.store).import(&request).await;
        imported.expect("imports").rows
    };
    // Each takes some, however fast the other is.
    assert_eq!(import().await, 7);
    let mut theirs = claim(&adopted.outbox.pool, adopted.schema(), their_claim).await;
    let claim_all = async {
        loop {
            let claimed = claim(&adopted.outbox.pool, adopted.schema(), their_claim).await;
            if claimed.is_empty() {
                return;
            }
            theirs.extend(claimed);
        }
    };
    let import_all = async { while import().await > 0 {} };
    tokio::join!(claim_all, import_all);
    // Once more: what one of them held locked.
    let mut theirs: BTreeSet<Uuid> = theirs.into_iter().collect();
    theirs.extend(claim(&adopted.outbox.pool, adopted.schema(), their_claim).await);
    let ours: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(format!(
        "select event_id from {}.adopted",
        adopted.outbox.store.schema()
    )))
    .fetch_all(&adopted.outbox.pool)
    .await
    .expect("reads");
    let ours: BTreeSet<Uuid> = ours.into_iter().collect();
    assert!(!ours.is_empty() && !theirs.is_empty(), "both took some");
    let both: Vec<&Uuid> = ours.intersection(&theirs).collect();
    assert!(both.is_empty(), "{both:?}");
    assert_eq!(ours.union(&theirs).count(), produced.len());
    for id in &ours {
        let row = adopted.row(*id).await;
        assert_eq!(row["status"], "processing", "{row}");
        assert_eq!(row["locked_by"], adopted.worker().to_string(), "{row}");
    }
    adopted.clean_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_of_modkit_is_taken_by_its_own_worker_and_by_ours() {
    take_side_by_side(MODKIT, MODKIT_CLAIM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_of_rediver_is_taken_by_its_own_worker_and_by_ours() {
    take_side_by_side(REDIVER, REDIVER_CLAIM).await;
}

/// A row in progress, each time that their worker may look.
#[tokio::test]
async fn a_row_that_waits_for_a_retry_shows_it_and_is_locked_before_it_is_due() {
    for (seed, claims, due, waits) in [
        (MODKIT, MODKIT_CLAIM, "next_attempt_at", "pending"),
        (REDIVER, REDIVER_CLAIM, "scheduled_at", "failed"),
    ] {
        let adopted = adopted(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        let is_theirs = async || {
            let schema = adopted.schema();
            claim(&adopted.outbox.pool, schema, claims).await.contains(&id)
        };
        assert!(!is_theirs().await, "{}: it is being sent", seed.name);
        adopted.settle(&delivery, retry(3600)).await;
        let row = adopted.row(id).await;
        assert_eq!(
            (row["status"].as_str(), &row["locked_by"]),
            (Some(waits), &Value::Null),
            "{row}"
        );
        assert!(!is_theirs().await, "{}: it is not due", seed.name);
        // An hour later, but for ten seconds.
        adopted
            .change(id, &format!("{due} = now() + interval '10 seconds'"))
            .await;
        adopted.import().await;
        let row = adopted.row(id).await;
        assert_eq!(row["status"], "processing", "{row}");
        adopted
            .change(id, &format!("{due} = now() - interval '1 second'"))
            .await;
        assert!(!is_theirs().await, "{}: it is due, and ours", seed.name);
        adopted.outbox.age(time::Duration::hours(2)).await;
        let delivery = adopted.claim().await.remove(0);
        adopted.settle(&delivery, Verdict::Delivered).await;
        let row = adopted.row(id).await;
        assert!(
            row["status"] == "delivered" || row["status"] == "completed",
            "{row}"
        );
        assert_eq!(row["locked_by"], Value::Null, "{row}");
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn a_lock_is_renewed_while_the_row_is_ours_and_expires_if_no_worker_renews_it() {
    for (seed, claims, unlock, older) in [
        (
            MODKIT,
            MODKIT_CLAIM,
            None,
            "locked_until = locked_until - interval '6 minutes'",
        ),
        (
            REDIVER,
            REDIVER_CLAIM,
            Some(REDIVER_UNLOCK),
            "locked_at = locked_at - interval '6 minutes'",
        ),
    ] {
        let adopted = adopted(seed).await;
        let id = adopted.produce().await;
        adopted.import().await;
        let is_theirs = async || {
            if let Some(unlock) = unlock {
                adopted.run(unlock).await;
            }
            let schema = adopted.schema();
            claim(&adopted.outbox.pool, schema, claims).await.contains(&id)
        };
        for _ in 0..3 {
            adopted.change(id, older).await;
            assert!(!is_theirs().await, "{}: six of ten minutes", seed.name);
            adopted.import().await;
        }
        for _ in 0..2 {
            adopted.change(id, older).await;
        }
        assert!(is_theirs().await, "{}: no worker renewed it", seed.name);
        let dropped = adopted.import().await.dropped;
        assert_eq!(dropped, 1, "{}: their worker has it now", seed.name);
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn with_the_switch_off_a_row_in_progress_keeps_its_code() {
    for seed in [MODKIT, REDIVER] {
        let adopted = Adopted::with(seed, |mut table| {
            table.layout.write_processing = Some(false);
            table
        })
        .await;
        let id = adopted.produce().await;
        adopted.import().await;
        let row = adopted.row(id).await;
        assert_eq!(
            (&row["status"], &row["locked_by"]),
            (&Value::from("pending"), &Value::Null)
        );
        adopted.clean_up().await;
    }
}
