//! Tables that reject a write-back or a prune. All other rows continue.

use std::time::Duration;

use pillarbox::{Delivery, StoreError};
use pillarbox_store::adopt::ImportRequest;
use pillarbox_store::store::Settlement;
use pillarbox_store::stores::postgres::adopt::Table;
use pillarbox_store::{Operate, Store, Verdict};
use uuid::Uuid;

use super::harness::{Adopted, importer, settlement};
use super::seeds::{ARAP, ORDER_SERVICE, REDIVER};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::wait::TIMEOUT;

/// Rejects an update of this row, or its end.
async fn refuse(adopted: &Adopted, when: &str, id: Uuid) {
    let function = "create function {schema}.refuse() returns trigger language plpgsql as
         $$ begin raise 'this row is mine'; end $$";
    adopted.run(function).await;
    adopted
        .run(&format!(
            "create trigger refuse before {when} on {} for each row when (old.id = '{id}')
               execute function {{schema}}.refuse()",
            adopted.place()
        ))
        .await;
}

async fn settle_all(adopted: &Adopted, claimed: &[Delivery]) -> Result<Vec<Uuid>, StoreError> {
    let delivered = |delivery| settlement(delivery, Verdict::Delivered);
    let settlements: Vec<Settlement> = claimed.iter().map(delivered).collect();
    adopted.outbox.store.settle(adopted.worker(), &settlements).await
}

#[tokio::test]
async fn a_rejected_write_back_does_not_stop_the_others() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(adopted.produce().await);
    }
    let poison = ids[3];
    refuse(&adopted, "update", poison).await;
    adopted.import().await;
    let claimed = adopted.claim().await;
    let refused = settle_all(&adopted, &claimed).await.expect_err("one is refused");
    assert!(refused.to_string().contains("this row is mine"), "{refused}");
    let lost = settle_all(&adopted, &claimed)
        .await
        .expect("settled without the table");
    assert_eq!(lost, [] as [Uuid; 0]);

    for _ in 0..2 {
        assert_eq!(adopted.import().await.rows, 0, "nothing is taken twice");
        for id in &ids {
            let expected = if *id == poison { "NEW" } else { "SENT" };
            assert_eq!(adopted.row(*id).await["status"], expected);
        }
        let tables = adopted
            .outbox
            .store
            .adopted_tables(&OPERATOR)
            .await
            .expect("counts");
        let counted = (tables[0].pending_write_backs, tables[0].rejected_write_backs);
        assert_eq!(counted, (0, 1), "{tables:?}");
    }
    let next = adopted.produce().await;
    assert_eq!(adopted.import().await.rows, 1, "the table goes on");

    adopted.run("drop trigger refuse on {schema}.outbox").await;
    adopted.import().await;
    assert_eq!(adopted.row(poison).await["status"], "NEW", "it waits a minute");
    pass_a_minute(&adopted).await;
    adopted.import().await;
    assert_eq!(adopted.row(poison).await["status"], "SENT");
    assert_eq!(adopted.row(next).await["status"], "NEW");
    adopted.clean_up().await;
}

/// Makes rejected write-backs due.
async fn pass_a_minute(adopted: &Adopted) {
    let earlier = "update pillarbox.adopted set tried_at = tried_at - interval '61 seconds'";
    adopted.outbox.execute(earlier).await;
}

/// Inserts rows, and lets each of them end so.
async fn end_all(adopted: &Adopted, rows: usize, verdict: &Verdict) {
    let place = adopted.place();
    adopted
        .run(&format!(
            "insert into {place} (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
             select gen_random_uuid(), 'Order', gen_random_uuid(), 'OrderCreated', '{{}}', 'NEW', now()
             from generate_series(1, {rows})"
        ))
        .await;
    let mut ended = 0;
    for _ in 0..rows / 30 {
        adopted.import().await;
        let claimed = adopted.claim().await;
        ended += claimed.len();
        let settled = |delivery| settlement(delivery, verdict.clone());
        let settlements: Vec<Settlement> = claimed.iter().map(settled).collect();
        // The table rejects the first of them. Write-backs are deferred after that.
        let store = &adopted.outbox.store;
        if store.settle(adopted.worker(), &settlements).await.is_err() {
            let lost = store.settle(adopted.worker(), &settlements).await;
            assert_eq!(lost.expect("settled without the table"), [] as [Uuid; 0]);
        }
        if ended == rows {
            return;
        }
    }
    panic!("{ended} of {rows} rows were imported");
}

#[tokio::test]
async fn a_thousand_rejected_write_backs_starve_no_other_and_do_not_stop_the_import() {
    const REJECTED: usize = 1100;
    let adopted = Adopted::new(ORDER_SERVICE).await;
    adopted
        .run("alter table {schema}.outbox add check (status in ('NEW', 'SENT'))")
        .await;
    // More than may be in progress.
    assert!(REJECTED > adopted.request().max_in_progress);
    end_all(&adopted, REJECTED, &super::harness::dead()).await;
    end_all(&adopted, 2000, &Verdict::Delivered).await;
    let record = async || {
        let tables = adopted.outbox.store.adopted_tables(&OPERATOR).await;
        tables.expect("counts").remove(0)
    };
    for _ in 0..20 {
        adopted.import().await;
        if record().await.rejected_write_backs == 1100 {
            break;
        }
    }
    let counted = record().await;
    assert_eq!(
        (
            counted.in_progress,
            counted.pending_write_backs,
            counted.rejected_write_backs
        ),
        (0, 0, 1100)
    );
    let sent = format!("select count(*) from {} where status = 'SENT'", adopted.place());
    let sent: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sent))
        .fetch_one(&adopted.outbox.pool)
        .await
        .expect("counts");
    assert_eq!(sent, 2000);

    // Once the table accepts them, all of them are written at once.
    adopted
        .run("alter table {schema}.outbox drop constraint outbox_status_check")
        .await;
    pass_a_minute(&adopted).await;
    adopted.import().await;
    adopted.import().await;
    assert_eq!(record().await.rejected_write_backs, 0);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_rejected_prune_does_not_stop_the_import() {
    let adopted = Adopted::with(ORDER_SERVICE, |table| Table {
        prune: Some(Duration::from_secs(60)),
        ..table
    })
    .await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    adopted.change(id, "sent_at = sent_at - interval '1 day'").await;
    refuse(&adopted, "delete", id).await;
    adopted.produce().await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.pruned), (1, 0));
    adopted.clean_up().await;
}

#[tokio::test]
async fn asking_for_the_lease_does_not_wait_for_a_running_round() {
    let adopted = Adopted::new(ARAP).await;
    adopted.import().await;
    let mut round = adopted.outbox.pool.begin().await.expect("begins");
    let lock = adopted.outbox.sql("select from pillarbox.importers for update");
    let locked = sqlx::query(sqlx::AssertSqlSafe(lock)).execute(&mut *round).await;
    locked.expect("locks");
    let rival = ImportRequest {
        worker: Uuid::new_v4(),
        ..adopted.request()
    };
    let importer = importer(&adopted.outbox.store);
    let asked = tokio::time::timeout(TIMEOUT / 2, importer.import(&rival)).await;
    assert_eq!(asked.expect("it does not wait").expect("asks").rows, 0);
    round.rollback().await.expect("rolls back");
    adopted.clean_up().await;
}

#[tokio::test]
async fn infinite_dates_and_the_largest_limit_are_imported() {
    let arap = Adopted::new(ARAP).await;
    let id = arap.produce().await;
    arap.change(id, "\"OccurredOnUtc\" = '-infinity'").await;
    let delivery = arap.take().await;
    arap.settle(&delivery, Verdict::Delivered).await;
    assert!(arap.row(id).await["ProcessedOnUtc"].is_string());
    arap.clean_up().await;

    let rediver = Adopted::new(REDIVER).await;
    let id = rediver.produce().await;
    rediver.change(id, "max_retries = 2147483647").await;
    let delivery = rediver.take().await;
    assert_eq!(delivery.max_attempts, Some(2_147_483_647));
    rediver.clean_up().await;
}
