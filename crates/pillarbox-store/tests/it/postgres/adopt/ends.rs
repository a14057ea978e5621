//! What is written back when no route matches, or when an operator deletes an event.

use pillarbox_store::adopt::{ImportRequest, Imported};
use pillarbox_store::stores::postgres::adopt::Table;
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_store::{Operate, Verdict};
use pillarbox_testkit::OPERATOR;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use uuid::Uuid;

use super::agreement::assert_agree;
use super::harness::{Adopted, dead, importer, retry};
use super::seeds::{ARAP, DEBEZIUM, FAMILY_HUB, ORDER_SERVICE};
use pillarbox_testkit::environment::variable;

impl Adopted {
    async fn delete_here(&self, id: Uuid) {
        let deleted = self.outbox.store.delete(&OPERATOR, &[id]).await;
        assert_eq!(deleted.expect("deletes"), [id]);
    }

    /// The same outbox without a layout, as a command has it.
    fn without_layout(&self) -> Postgres {
        let options = Options {
            schema: self.outbox.store.schema().to_owned(),
            ..Options::default()
        };
        Postgres::new(&variable("PILLARBOX_TEST_POSTGRES_URL"), options).expect("a URL")
    }

    async fn notes(&self) -> i64 {
        let sql = self.outbox.sql("select count(*) from pillarbox.adopted");
        let count = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.outbox.pool);
        count.await.expect("counts")
    }

    /// Asserts that no row is in progress and no write-back is pending.
    async fn assert_quiet(&self) {
        let name = self.seed.name;
        let imported = self.import().await;
        assert_eq!((imported.rows, imported.reset), (0, 0), "{name}");
        assert_eq!(self.claim().await.len(), 0, "{name}");
        let tables = self.outbox.store.adopted_tables(&OPERATOR).await.expect("counts");
        assert_eq!(
            (tables[0].in_progress, tables[0].pending_write_backs),
            (0, 0),
            "{name}"
        );
    }

    /// Asserts that the table shows a dead row.
    async fn assert_given_up(&self, id: Uuid) {
        let row = self.row(id).await;
        match self.seed.name {
            "arap" => assert_eq!(
                (&row["ProcessedOnUtc"], &row["RetryCount"]),
                (&Value::Null, &json!(3)),
                "{row}"
            ),
            "order-service" => assert_eq!(
                (&row["status"], &row["sent_at"]),
                (&json!("FAILED"), &Value::Null),
                "{row}"
            ),
            _ => assert_ne!(row, Value::Null, "it stays"),
        }
    }

    /// Asserts that the table shows a delivered row.
    async fn assert_done(&self, id: Uuid) {
        let row = self.row(id).await;
        match self.seed.name {
            "arap" => assert!(row["ProcessedOnUtc"].is_string(), "{row}"),
            "order-service" => assert!(row["status"] == "SENT" && row["sent_at"].is_string(), "{row}"),
            _ => assert_eq!(row, Value::Null, "it is gone"),
        }
    }
}

#[tokio::test]
async fn an_unrouted_event_is_written_back_as_delivered() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        adopted.settle(&delivery, Verdict::Delete).await;
        adopted.assert_done(id).await;
        adopted.assert_quiet().await;
        assert_eq!(adopted.notes().await, 0, "{}", seed.name);
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn an_unrouted_event_keeps_its_counter() {
    for (seed, counter) in [(ARAP, "RetryCount"), (FAMILY_HUB, "retry_count")] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        adopted.settle(&delivery, retry(0)).await;
        let delivery = adopted.claim().await.remove(0);
        adopted.settle(&delivery, Verdict::Delete).await;
        assert_eq!(adopted.row(id).await[counter], json!(1), "{}", seed.name);
        adopted.assert_quiet().await;
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn an_unrouted_event_is_written_back_later_if_its_row_is_locked() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        let session = adopted.hold(id).await;
        adopted.settle(&delivery, Verdict::Delete).await;
        assert_eq!(adopted.import().await.rows, 0, "{}", seed.name);
        session.rollback().await.expect("rolls back");
        adopted.import().await;
        adopted.assert_done(id).await;
        adopted.assert_quiet().await;
        adopted.clean_up().await;
    }
}

/// The mapping row of a dead event says `ended`, until another state is written back.
#[tokio::test]
async fn a_dead_event_that_is_retried_and_unrouted_is_delivered() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, dead()).await;
    let session = adopted.hold(id).await;
    adopted
        .outbox
        .store
        .retry(&OPERATOR, &[id])
        .await
        .expect("retries");
    let delivery = adopted.claim().await.remove(0);
    adopted.settle(&delivery, Verdict::Delete).await;
    session.rollback().await.expect("rolls back");
    adopted.import().await;
    adopted.assert_done(id).await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_deleted_dead_event_stays_dead_in_its_table() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        adopted.settle(&delivery, dead()).await;
        let before = adopted.row(id).await;
        adopted.delete_here(id).await;
        assert_eq!(adopted.row(id).await, before, "{}", seed.name);
        adopted.assert_given_up(id).await;
        adopted.assert_quiet().await;
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn a_deleted_pending_event_is_dead_in_its_table() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        adopted.import().await;
        adopted.delete_here(id).await;
        adopted.assert_given_up(id).await;
        adopted.assert_quiet().await;
        let row = adopted.row(id).await.to_string();
        assert_eq!(
            row.contains("deleted by an operator"),
            seed.name != "debezium",
            "{row}"
        );
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn a_deleted_event_is_imported_again_after_a_reset() {
    for (seed, reset) in [(ORDER_SERVICE, "status = 'NEW'"), (ARAP, "\"RetryCount\" = 0")] {
        for verdict in [retry(600), dead()] {
            let adopted = Adopted::new(seed).await;
            let id = adopted.produce().await;
            let delivery = adopted.take().await;
            adopted.settle(&delivery, verdict).await;
            adopted.delete_here(id).await;
            adopted.assert_quiet().await;
            adopted.change(id, reset).await;
            let delivery = adopted.take().await;
            assert_eq!((delivery.event.id, delivery.attempts), (id, 1), "{}", seed.name);
            adopted.settle(&delivery, Verdict::Delivered).await;
            adopted.assert_done(id).await;
            adopted.clean_up().await;
        }
    }
}

#[tokio::test]
async fn the_change_of_a_command_without_a_layout_is_written_back_later() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    adopted.import().await;
    let command = adopted.without_layout();
    assert_eq!(command.delete(&OPERATOR, &[id]).await.expect("deletes"), [id]);
    command.close().await;
    assert_eq!(
        adopted.row(id).await["status"],
        "NEW",
        "it is not written back yet"
    );
    adopted.import().await;
    adopted.assert_given_up(id).await;
    adopted.assert_quiet().await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_delivered_event_deleted_before_its_write_back_stays_delivered() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let session = adopted.hold(id).await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    adopted.delete_here(id).await;
    session.rollback().await.expect("rolls back");
    adopted.import().await;
    adopted.assert_done(id).await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_settle_after_a_delete_changes_nothing() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted
        .outbox
        .execute(
            "update pillarbox.outbox_events set locked_until = now() - interval '1 second';
             update pillarbox.leases set until = now() - interval '1 second'",
        )
        .await;
    adopted.delete_here(id).await;
    for verdict in [Verdict::Delete, Verdict::Delivered, retry(0)] {
        assert_eq!(adopted.settle_late(&delivery, verdict).await, [id]);
        adopted.assert_given_up(id).await;
    }
    assert_agree(&adopted, None).await;
    adopted.assert_quiet().await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn the_mapping_row_of_a_dead_event_is_pruned_with_its_row() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let (kept, gone) = (adopted.produce().await, adopted.produce().await);
        adopted.import().await;
        for delivery in adopted.claim().await {
            adopted.settle(&delivery, dead()).await;
        }
        let delete = format!("delete from {} where {} = '{gone}'", seed.place, seed.id);
        adopted.run(&delete).await;
        assert_eq!(adopted.notes().await, 2, "{}", seed.name);
        adopted.import().await;
        assert_eq!(adopted.notes().await, 1, "{}", seed.name);
        adopted.assert_quiet().await;
        for id in [kept, gone] {
            let shown = adopted.outbox.store.show(&OPERATOR, id).await.expect("looks");
            assert!(shown.is_some(), "{}: `find` still shows it", seed.name);
        }
        adopted.clean_up().await;
    }
}

/// Mapping rows of other tables are skipped, also those whose ids are invalid here.
#[tokio::test]
async fn mapping_rows_are_pruned_in_parts_and_per_table() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    adopted
        .outbox
        .execute(
            "insert into pillarbox.adopted (adopted_table, row_id, event_id, fingerprint, ended)
             select 'other', n::text, gen_random_uuid(), '-', true from generate_series(1, 1500) as n
             union all
             select 'order-service', gen_random_uuid()::text, gen_random_uuid(), 'FAILED|-', true
             from generate_series(1, 1500)",
        )
        .await;
    adopted.import().await;
    let left = adopted.notes().await;
    assert!((2001..3000).contains(&left), "a thousand were looked at: {left}");
    for _ in 0..2 {
        adopted.import().await;
    }
    assert_eq!(adopted.notes().await, 1500, "another table's are its own");
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_table_is_pruned_only_on_request_and_reports_more() {
    let adopted = Adopted::with(ORDER_SERVICE, |table| Table {
        prune: Some(Duration::from_secs(60)),
        ..table
    })
    .await;
    adopted
        .run(
            "insert into {schema}.outbox
             select gen_random_uuid(), 'Order', gen_random_uuid(), 'OrderCreated', '{}', 'SENT',
               timestamp '2020-01-01', timestamp '2020-01-01'
             from generate_series(1, 5001)",
        )
        .await;
    let import = async |prune| -> Imported {
        let request = ImportRequest {
            prune,
            ..adopted.request()
        };
        importer(&adopted.outbox.store)
            .import(&request)
            .await
            .expect("imports")
    };
    let mut seen = Vec::new();
    for prune in [false, true, true] {
        let imported = import(prune).await;
        seen.push((imported.pruned, imported.more_to_prune));
    }
    assert_eq!(seen, [(0, false), (5000, true), (1, false)]);
    adopted.clean_up().await;
}

/// For example a worker with an old configuration.
#[tokio::test]
async fn events_settled_by_a_worker_without_the_table_are_written_back_later() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let other = adopted.without_layout();
        let mut ids = Vec::new();
        for verdict in [Verdict::Delivered, Verdict::Delete, dead(), retry(600)] {
            ids.push(adopted.produce().await);
            let delivery = adopted.take().await;
            let lost = adopted.settle_by(&other, &delivery, verdict).await;
            assert!(lost.is_empty(), "{}: {lost:?}", seed.name);
        }
        adopted.import().await;
        adopted.assert_done(ids[0]).await;
        adopted.assert_done(ids[1]).await;
        adopted.assert_given_up(ids[2]).await;
        let tables = adopted
            .outbox
            .store
            .adopted_tables(&OPERATOR)
            .await
            .expect("counts");
        let (in_progress, pending) = (tables[0].in_progress, tables[0].pending_write_backs);
        assert_eq!((in_progress, pending), (1, 0), "{}: it comes again", seed.name);
        other.close().await;
        adopted.clean_up().await;
    }
}
