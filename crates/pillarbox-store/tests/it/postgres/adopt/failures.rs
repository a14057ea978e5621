//! Rows that cannot be imported: values that do not fit, and ids that other events have. All other rows are imported.

use pillarbox_store::operate::AdoptedTableRecord;
use pillarbox_store::stores::postgres::adopt::Layout;
use pillarbox_store::{Operate, Verdict};
use pillarbox_testkit::OPERATOR;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::Adopted;
use super::odd::{adopt, column, plain, url};
use super::seeds::ORDER_SERVICE;

pub(super) async fn record(adopted: &Adopted) -> AdoptedTableRecord {
    let tables = adopted
        .outbox
        .store
        .adopted_tables(&OPERATOR)
        .await
        .expect("counts");
    let ours = tables.into_iter().find(|table| table.name == adopted.seed.name);
    ours.expect("it is imported")
}

/// The native rows of an event, as they are.
async fn native(adopted: &Adopted, id: Uuid) -> Value {
    let sql = adopted.outbox.sql(
        "select jsonb_agg(to_jsonb(e) order by id) from pillarbox.outbox_events e where $1 in (e.id, e.parent_id)",
    );
    let rows: Option<Value> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(id)
        .fetch_one(&adopted.outbox.pool)
        .await
        .expect("reads");
    rows.unwrap_or_default()
}

/// One value of a query on Pillarbox's own tables.
pub(super) async fn text(adopted: &Adopted, sql: &str) -> Option<String> {
    sqlx::query_scalar(AssertSqlSafe(adopted.outbox.sql(sql)))
        .fetch_optional(&adopted.outbox.pool)
        .await
        .expect("reads")
}

#[tokio::test]
async fn an_import_never_overwrites_a_native_event_or_its_siblings() {
    for status in ["pending", "delivered", "dead"] {
        let adopted = Adopted::new(ORDER_SERVICE).await;
        let (taken, free) = (adopted.produce().await, adopted.produce().await);
        let insert = |id: Uuid, parent: &str| {
            format!(
                "insert into pillarbox.outbox_events (id, parent_id, namespace, topic, payload, destination, status)
                   values ('{id}', {parent}, 'native', 'orders', '1', 'there', '{status}')"
            )
        };
        adopted.outbox.execute(&insert(taken, "null")).await;
        let sibling = Uuid::now_v7();
        adopted
            .outbox
            .execute(&insert(sibling, &format!("'{taken}'")))
            .await;
        let before = native(&adopted, taken).await;

        let imported = adopted.import().await;
        assert_eq!((imported.rows, imported.failed), (1, 1), "{status}");
        assert_eq!(native(&adopted, taken).await, before, "{status}");
        assert_eq!(native(&adopted, free).await[0]["namespace"], "order-service");
        assert_eq!(record(&adopted).await.not_imported, 1, "{status}");
        assert_eq!(adopted.row(taken).await["status"], "NEW", "{status}");
        let error = text(&adopted, "select error from pillarbox.import_failures").await;
        assert_eq!(error.as_deref(), Some("another event in the outbox has this id"));
        let again = adopted.import().await;
        assert_eq!((again.rows, again.failed), (0, 0), "{status}: it is left alone");

        // A sibling that remains is not deleted either.
        adopted
            .outbox
            .execute(&format!(
                "delete from pillarbox.outbox_events where id = '{taken}'"
            ))
            .await;
        adopted.import().await;
        assert_eq!(native(&adopted, taken).await.as_array().map(Vec::len), Some(1));

        // Once the other event is gone, the row is imported.
        adopted
            .outbox
            .execute(&format!(
                "delete from pillarbox.outbox_events where id = '{sibling}'"
            ))
            .await;
        adopted.import().await;
        assert_eq!(adopted.import().await.rows, 1, "{status}");
        assert_eq!(record(&adopted).await.not_imported, 0, "{status}");
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn an_import_never_overwrites_an_event_of_another_table() {
    for is_delivered in [true, false] {
        let adopted = Adopted::new(ORDER_SERVICE).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        if is_delivered {
            adopted.settle(&delivery, Verdict::Delivered).await;
            adopted.change(id, "status = 'NEW', sent_at = null").await;
        } else {
            adopted.settle(&delivery, super::harness::retry(600)).await;
        }
        // As if another table had the same id. Its importer may be away for a while.
        adopted
            .outbox
            .execute(
                "update pillarbox.outbox_events set adopted_table = 'another';
                 update pillarbox.adopted set adopted_table = 'another';
                 insert into pillarbox.importers (adopted_table, owner, leased_until, relation)
                   values ('another', gen_random_uuid(), now() - interval '1 hour', 'pg_class'::regclass)",
            )
            .await;
        let before = native(&adopted, id).await;
        let imported = adopted.import().await;
        assert_eq!((imported.rows, imported.failed), (0, 1), "{is_delivered}");
        assert_eq!(native(&adopted, id).await, before, "{is_delivered}");
        assert_eq!(record(&adopted).await.not_imported, 1);
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn a_delivered_row_that_is_reset_is_imported_again_also_under_a_new_name() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    adopted
        .outbox
        .execute(
            "update pillarbox.outbox_events set adopted_table = 'earlier';
             insert into pillarbox.importers (adopted_table, owner, leased_until, relation)
               select 'earlier', owner, now() - interval '1 hour', relation from pillarbox.importers",
        )
        .await;
    adopted.change(id, "status = 'NEW', sent_at = null").await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (1, 0));
    assert_eq!(
        native(&adopted, id).await[0]["adopted_table"],
        json!("order-service")
    );
    adopted.clean_up().await;
}

pub(super) const WIDE: &str =
    "create table {schema}.outbox (id bigint generated always as identity primary key,
    payload jsonb not null default '{}', headers json, version bigint, key text, ordering text, texts text,
    status text not null default 'new', error text)";

pub(super) fn wide() -> Layout {
    Layout {
        headers: column("headers"),
        event_version: column("version"),
        dedupe_key: column("key"),
        ordering_key: column("ordering"),
        ..plain("{schema}.outbox")
    }
}

/// A text that is too long for a name.
const LONG: &str = "(select string_agg(md5(random()::text || n), '') from generate_series(1, 100) as n)";

#[tokio::test]
async fn a_row_that_cannot_be_converted_does_not_stop_the_others() {
    for (name, value, wrong) in [
        (
            "headers",
            r#"'{"a": "\u0000"}'"#.to_owned(),
            "unsupported Unicode",
        ),
        ("version", "1731888000000".to_owned(), "integer out of range"),
        ("key", LONG.to_owned(), "names_have_at_most_1024_bytes"),
        ("ordering", LONG.to_owned(), "names_have_at_most_1024_bytes"),
        (
            "texts",
            "'no JSON'".to_owned(),
            "invalid input syntax for type json",
        ),
    ] {
        let mut layout = wide();
        if name == "texts" {
            layout.headers = column("texts");
        }
        let adopted = adopt(&url(), "{schema}.outbox", WIDE, layout).await;
        let good = "insert into {schema}.outbox (payload) select to_jsonb(n) from generate_series(1, 5) as n";
        adopted.run(good).await;
        adopted
            .run(&format!(
                "insert into {{schema}}.outbox ({name}) values ({value})"
            ))
            .await;
        adopted.run(good).await;

        let imported = adopted.import().await;
        assert_eq!((imported.rows, imported.failed), (10, 1), "{name}");
        let again = adopted.import().await;
        assert_eq!((again.rows, again.failed, again.more), (0, 0, false), "{name}");
        assert_eq!(record(&adopted).await.not_imported, 1, "{name}");
        let error = text(&adopted, "select error from pillarbox.import_failures").await;
        assert!(
            error.as_deref().is_some_and(|error| error.contains(wrong)),
            "{name}: {error:?}"
        );
        let order = text(
            &adopted,
            "select string_agg(payload::text, ' ' order by seq) from pillarbox.outbox_events",
        )
        .await;
        assert_eq!(order.as_deref(), Some("1 2 3 4 5 1 2 3 4 5"), "{name}");

        // It is corrected.
        adopted
            .run(&format!(
                "update {{schema}}.outbox set {name} = null where {name} is not null"
            ))
            .await;
        let corrected = adopted.import().await;
        assert_eq!((corrected.rows, corrected.failed), (1, 0), "{name}");
        adopted.import().await;
        assert_eq!(record(&adopted).await.not_imported, 0, "{name}");
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn many_rows_that_cannot_be_converted_cost_a_bounded_part_of_each_round() {
    let adopted = adopt(&url(), "{schema}.outbox", WIDE, wide()).await;
    adopted
        .run(
            "insert into {schema}.outbox (version) select 1731888000000 from generate_series(1, 300);
             insert into {schema}.outbox (version) values (2)",
        )
        .await;
    let (mut rows, mut failed, mut rounds) = (0, 0, 0);
    loop {
        let imported = adopted.import().await;
        rows += imported.rows;
        failed += imported.failed;
        rounds += 1;
        if !imported.more {
            break;
        }
        assert!(imported.failed <= 100, "{imported:?}");
        assert!(rounds < 10, "{rows} {failed}");
    }
    assert_eq!((rows, failed), (1, 300));
    assert_eq!(adopted.import().await.failed, 0, "they are left alone");
    assert_eq!(record(&adopted).await.not_imported, 300);
    adopted.clean_up().await;
}
