//! How a row ends in its own table when nobody wants its event, or when a person deletes it here.

use pillarbox_store::adopt::{ImportRequest, Imported};
use pillarbox_store::stores::postgres::adopt::Table;
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_store::{Operate, Verdict};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use uuid::Uuid;

use super::super::harness::service;
use super::agreeing::assert_agree;
use super::harness::{Adopted, dead, importer, retry};
use super::seeds::{ARAP, DEBEZIUM, FAMILY_HUB, ORDER_SERVICE};

impl Adopted {
    async fn delete_here(&self, id: Uuid) {
        let deleted = self.outbox.store.delete(&[id]).await;
        assert_eq!(deleted.expect("deletes"), [id]);
    }

    /// The outbox as somebody has it who knows of no layout.
    fn stranger(&self) -> Postgres {
        let options = Options {
            schema: self.outbox.store.schema().to_owned(),
            ..Options::default()
        };
        Postgres::new(&service("PILLARBOX_TEST_POSTGRES_URL"), options).expect("a URL")
    }

    async fn notes(&self) -> i64 {
        let sql = self.outbox.sql("select count(*) from pillarbox.adopted");
        let count = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.outbox.pool);
        count.await.expect("counts")
    }

    /// Nothing of the table is on its way, and nothing is left to be told.
    async fn assert_quiet(&self) {
        let name = self.seed.name;
        let imported = self.import().await;
        assert_eq!((imported.rows, imported.reset), (0, 0), "{name}");
        assert_eq!(self.claim().await.len(), 0, "{name}");
        let tables = self.outbox.store.adopted_tables().await.expect("counts");
        assert_eq!(
            (tables[0].in_progress, tables[0].pending_write_backs),
            (0, 0),
            "{name}"
        );
    }

    /// What the table says of a row that was given up on.
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

    /// What the table says of a row that is done.
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
async fn what_nobody_wants_is_done_and_its_table_says_so() {
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
async fn what_nobody_wants_any_more_keeps_what_was_counted() {
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
async fn what_nobody_wants_is_told_later_if_somebody_holds_its_row() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        let somebody = adopted.hold(id).await;
        adopted.settle(&delivery, Verdict::Delete).await;
        assert_eq!(adopted.import().await.rows, 0, "{}", seed.name);
        somebody.rollback().await.expect("lets go");
        adopted.import().await;
        adopted.assert_done(id).await;
        adopted.assert_quiet().await;
        adopted.clean_up().await;
    }
}

/// The note says of a row that ended that it was given up on, until its table is told otherwise.
#[tokio::test]
async fn what_was_given_up_on_and_retried_and_then_nobody_wants_is_done() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, dead()).await;
    let somebody = adopted.hold(id).await;
    adopted.outbox.store.retry(&[id]).await.expect("retries");
    let delivery = adopted.claim().await.remove(0);
    adopted.settle(&delivery, Verdict::Delete).await;
    somebody.rollback().await.expect("lets go");
    adopted.import().await;
    adopted.assert_done(id).await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_dead_row_that_a_person_deletes_stays_dead_in_its_table() {
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
async fn a_waiting_row_that_a_person_deletes_is_given_up_on_in_its_table() {
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
async fn a_row_that_a_person_deleted_here_comes_back_when_one_resets_it_there() {
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
async fn a_command_that_knows_no_layout_is_heard_by_the_table_later() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    adopted.import().await;
    let command = adopted.stranger();
    assert_eq!(command.delete(&[id]).await.expect("deletes"), [id]);
    command.close().await;
    assert_eq!(adopted.row(id).await["status"], "NEW", "nobody has told it");
    adopted.import().await;
    adopted.assert_given_up(id).await;
    adopted.assert_quiet().await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn what_was_delivered_stays_so_if_a_person_deletes_it_before_its_table_is_told() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let somebody = adopted.hold(id).await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    adopted.delete_here(id).await;
    somebody.rollback().await.expect("lets go");
    adopted.import().await;
    adopted.assert_done(id).await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_settle_that_a_person_came_before_changes_nothing_any_more() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted
        .outbox
        .execute("update pillarbox.outbox_events set locked_until = now() - interval '1 second'")
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
async fn what_is_noted_of_a_dead_row_is_forgotten_when_its_row_is_gone() {
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
            let shown = adopted.outbox.store.show(id).await.expect("looks");
            assert!(shown.is_some(), "{}: people still see it", seed.name);
        }
        adopted.clean_up().await;
    }
}

/// Notes of other tables are stepped over, also those whose ids could not be ids here.
#[tokio::test]
async fn notes_are_looked_at_a_part_at_a_time_and_only_ones_own() {
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
async fn a_table_is_tidied_only_when_that_is_asked_for_and_says_when_there_is_more() {
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

/// Such as one that still runs with the configuration of yesterday.
#[tokio::test]
async fn what_a_worker_ended_that_knows_of_no_adopted_table_is_told_by_one_that_does() {
    for seed in [ORDER_SERVICE, ARAP, DEBEZIUM] {
        let adopted = Adopted::new(seed).await;
        let stranger = adopted.stranger();
        let mut ids = Vec::new();
        for verdict in [Verdict::Delivered, Verdict::Delete, dead(), retry(600)] {
            ids.push(adopted.produce().await);
            let delivery = adopted.take().await;
            let lost = adopted.settle_by(&stranger, &delivery, verdict).await;
            assert!(lost.is_empty(), "{}: {lost:?}", seed.name);
        }
        adopted.import().await;
        adopted.assert_done(ids[0]).await;
        adopted.assert_done(ids[1]).await;
        adopted.assert_given_up(ids[2]).await;
        let tables = adopted.outbox.store.adopted_tables().await.expect("counts");
        let (in_progress, pending) = (tables[0].in_progress, tables[0].pending_write_backs);
        assert_eq!((in_progress, pending), (1, 0), "{}: it comes again", seed.name);
        stranger.close().await;
        adopted.clean_up().await;
    }
}
