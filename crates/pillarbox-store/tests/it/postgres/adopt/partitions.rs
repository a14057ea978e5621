//! Tables of several parts: partitions, and tables that inherit. Each part numbers its rows (`ctid`) on its own.

use std::time::Duration;

use pillarbox_store::Verdict;
use pillarbox_store::stores::postgres::adopt::Table;
use serde_json::json;
use sqlx::AssertSqlSafe;

use super::failures::text;
use super::harness::{Adopted, settlement};
use super::seeds::{ORDER_SERVICE, Seed};
use pillarbox_store::Store;

const COLUMNS: &str =
    "id uuid not null default gen_random_uuid(), aggregate_type varchar(50) not null default 'Order',
    aggregate_id varchar(50) not null default '1', event_type varchar(50) not null default 'OrderCreated',
    payload jsonb not null default '{}', status varchar(20) not null default 'NEW', created_at timestamptz not null default now(),
    sent_at timestamptz, error_message text";

/// Every table here gets its delivered rows in one part, and its waiting rows at the same places in another.
const TABLES: [&str; 2] = [
    "create table {schema}.outbox ({columns}, primary key (id, created_at)) partition by range (created_at);
     create table {schema}.outbox_old partition of {schema}.outbox for values from ('2020-01-01') to ('2026-01-01');
     create table {schema}.outbox_new partition of {schema}.outbox default",
    "create table {schema}.outbox ({columns});
     create table {schema}.outbox_old () inherits ({schema}.outbox);
     create table {schema}.outbox_new () inherits ({schema}.outbox)",
];

async fn adopted(table: &str) -> Adopted {
    let seed = Seed {
        table: String::leak(table.replace("{columns}", COLUMNS)),
        ..ORDER_SERVICE
    };
    let adopted = Adopted::with(seed, |table| Table {
        prune: Some(Duration::from_secs(86_400)),
        ..table
    })
    .await;
    adopted
        .run(
            "insert into {schema}.outbox_old (status, sent_at, created_at)
               select 'SENT', '2025-06-01', '2025-06-01' from generate_series(1, 50);
             insert into {schema}.outbox_new (created_at) select now() from generate_series(1, 50)",
        )
        .await;
    adopted
}

async fn statuses(adopted: &Adopted) -> serde_json::Value {
    let sql = format!(
        "select jsonb_object_agg(status, rows) from (select status, count(*) as rows from {} group by 1) as counted",
        adopted.place()
    );
    let counted: Option<serde_json::Value> = sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_one(&adopted.outbox.pool)
        .await
        .expect("counts");
    counted.unwrap_or_default()
}

#[tokio::test]
async fn prune_leaves_the_waiting_rows_of_other_parts() {
    for table in TABLES {
        let adopted = adopted(table).await;
        let imported = adopted.import().await;
        assert_eq!((imported.rows, imported.pruned), (50, 50), "{table}");
        assert_eq!(statuses(&adopted).await, json!({ "NEW": 50 }), "{table}");
        let again = adopted.import().await;
        assert_eq!((again.dropped, again.pruned), (0, 0), "{table}");
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn a_write_back_reaches_only_its_row_in_its_part() {
    for table in TABLES {
        let adopted = adopted(table).await;
        adopted
            .run("update {schema}.outbox_old set sent_at = now()")
            .await;
        adopted
            .run("update {schema}.outbox_old set error_message = 'theirs'")
            .await;
        assert_eq!(adopted.import().await.rows, 50, "{table}");
        let claimed = adopted.claim().await;
        let settlements: Vec<_> = claimed
            .iter()
            .take(20)
            .map(|delivery| settlement(delivery, Verdict::Delivered))
            .collect();
        let settled = adopted.outbox.store.settle(adopted.worker(), &settlements).await;
        assert_eq!(settled.expect("settles"), [] as [uuid::Uuid; 0]);
        assert_eq!(
            statuses(&adopted).await,
            json!({ "NEW": 30, "SENT": 70 }),
            "{table}"
        );
        adopted.clean_up().await;
    }
}

/// Two rows cannot be one event. Neither is sent, and the operator sees why.
#[tokio::test]
async fn an_id_that_two_parts_have_is_shown_and_holds_no_other_back() {
    for table in TABLES {
        let adopted = adopted(table).await;
        adopted
            .run(
                "insert into {schema}.outbox_old (id, created_at)
                   values ('00000000-0000-7000-8000-000000000001', '2025-06-01');
                 insert into {schema}.outbox_new (id, created_at)
                   values ('00000000-0000-7000-8000-000000000001', now())",
            )
            .await;
        let imported = adopted.import().await;
        assert_eq!((imported.rows, imported.failed), (50, 1), "{table}");
        let error = text(&adopted, "select error from pillarbox.import_failures").await;
        assert_eq!(
            error.as_deref(),
            Some("2 rows of the table have this id (23505)"),
            "{table}"
        );
        let again = adopted.import().await;
        assert_eq!((again.rows, again.failed, again.more), (0, 0, false), "{table}");

        adopted
            .run("delete from {schema}.outbox_old where status = 'NEW'")
            .await;
        adopted.import().await;
        assert_eq!(adopted.import().await.rows, 1, "{table}: the other one is gone");
        let left = text(&adopted, "select row_id from pillarbox.import_failures").await;
        assert_eq!(left, None, "{table}");
        adopted.clean_up().await;
    }
}

/// A native event has the id too.
#[tokio::test]
async fn an_id_that_two_parts_and_a_native_event_have_is_shown() {
    let adopted = adopted(TABLES[0]).await;
    adopted
        .run(
            "insert into {schema}.outbox_old (id, created_at)
               values ('00000000-0000-7000-8000-000000000001', '2025-06-01');
             insert into {schema}.outbox_new (id, created_at)
               values ('00000000-0000-7000-8000-000000000001', now())",
        )
        .await;
    adopted
        .outbox
        .execute(
            "insert into pillarbox.outbox_events (id, namespace, topic, payload)
               values ('00000000-0000-7000-8000-000000000001', 'native', 'orders', '1')",
        )
        .await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (50, 1));
    let again = adopted.import().await;
    assert_eq!((again.rows, again.failed), (0, 0));
    adopted.clean_up().await;
}
