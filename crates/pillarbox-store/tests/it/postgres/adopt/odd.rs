//! Tables that differ from those of the documents: other ids, types, names, zones and contents.

use std::time::Duration;

use pillarbox::{Delivery, Payload as Content};
use pillarbox_store::Verdict;
use pillarbox_store::stores::postgres::adopt::{Layout, Payload, Status, Table, Zone};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::{Adopted, retry};
use super::seeds::{ORDER_SERVICE, Seed};
use pillarbox_testkit::environment::variable;

/// A described table. `{schema}` stands for the schema of the test.
pub(super) async fn adopt(url: &str, place: &'static str, table: &'static str, layout: Layout) -> Adopted {
    let seed = Seed {
        place,
        table,
        id: "id",
        ..ORDER_SERVICE
    };
    Adopted::at(url, seed, |built_in| {
        let (schema, _) = built_in.layout.names();
        let table = layout.table.replace("{schema}", schema.expect("a schema"));
        Table {
            layout: Layout { table, ..layout },
            ..built_in
        }
    })
    .await
}

pub(super) fn url() -> String {
    variable("PILLARBOX_TEST_POSTGRES_URL")
}

pub(super) fn column(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// `new`, `sent`, `failed`.
fn codes(name: &str) -> Status {
    Status::Code {
        column: name.to_owned(),
        pending: "new".to_owned(),
        processing: None,
        failed: None,
        delivered: "sent".to_owned(),
        dead: column("failed"),
    }
}

pub(super) fn plain(table: &str) -> Layout {
    Layout {
        status: codes("status"),
        error: column("error"),
        ..Layout::new(table, "id", Payload::Column("payload".to_owned()))
    }
}

/// One value of a query on the tables of the test.
async fn ask(adopted: &Adopted, sql: &str) -> Value {
    let sql = sql.replace("{schema}", adopted.schema());
    sqlx::query_scalar(AssertSqlSafe(format!("select to_jsonb(({sql}))")))
        .fetch_one(&adopted.outbox.pool)
        .await
        .expect("answers")
}

async fn take_all(adopted: &Adopted) -> Vec<Delivery> {
    adopted.import().await;
    adopted.claim().await
}

#[tokio::test]
async fn times_without_a_zone_have_the_zone_of_the_layout() {
    let table = "create table {schema}.outbox (id uuid primary key default gen_random_uuid(), payload jsonb not null,
        status text not null default 'new', due timestamp, created timestamp, done timestamp, tries int default 0,
        error text)";
    let layout = Layout {
        due_at: column("due"),
        created_at: column("created"),
        processed_at: column("done"),
        attempts: column("tries"),
        order: vec!["created".to_owned()],
        // One without summer time: an hour that comes twice cannot be read back.
        time_zone: Zone("Asia/Tokyo".to_owned()),
        ..plain("{schema}.outbox")
    };
    let url = format!("{}?options=-c%20TimeZone%3DAsia%2FKathmandu", url());
    let seed = Seed {
        table,
        ..ORDER_SERVICE
    };
    let adopted = Adopted::at(&url, seed, |table| Table {
        layout: Layout {
            table: table.layout.table.clone(),
            ..layout
        },
        prune: Some(Duration::from_secs(3600)),
        ..table
    })
    .await;
    adopted
        .run(
            "insert into {schema}.outbox (payload, due, created)
             select to_jsonb(n), (now() + make_interval(mins => n)) at time zone 'Asia/Tokyo',
               (now() - interval '10 minutes') at time zone 'Asia/Tokyo'
             from unnest(array[-5, 20]) as n",
        )
        .await;
    let claimed = take_all(&adopted).await;
    assert_eq!(claimed.len(), 1, "the other is due in twenty minutes");
    assert_eq!(claimed[0].event.payload.as_bytes().as_ref(), b"-5");
    let written = claimed[0].created_at.unix_timestamp();
    let age = ask(&adopted, &format!("extract(epoch from now()) - {written}")).await;
    let age = age.as_f64().expect("seconds");
    assert!((590.0..900.0).contains(&age), "{age}");

    adopted.settle(&claimed[0], retry(600)).await;
    let since = |time: &str, what: &str| {
        format!(
            "select extract(epoch from (({time}) at time zone 'Asia/Tokyo') - now()) from {{schema}}.outbox where {what}"
        )
    };
    let wait = ask(&adopted, &since("due", "tries = 1")).await.as_f64();
    assert!(
        wait.is_some_and(|wait| (300.0..=600.0).contains(&wait)),
        "{wait:?}"
    );

    adopted
        .run("update {schema}.outbox set tries = 0, due = null where tries = 1")
        .await;
    let again = take_all(&adopted).await;
    adopted.settle(&again[0], Verdict::Delivered).await;
    let done = ask(&adopted, &since("done", "status = 'sent'")).await.as_f64();
    assert!(
        done.is_some_and(|done| (-300.0..=1.0).contains(&done)),
        "{done:?}"
    );
    assert_eq!(adopted.import().await.pruned, 0, "it is young");
    adopted
        .run("update {schema}.outbox set done = done - interval '61 minutes' where status = 'sent'")
        .await;
    assert_eq!(adopted.import().await.pruned, 1);
    adopted.clean_up().await;
}

#[tokio::test]
async fn rows_without_a_uuid_have_an_event_id_that_never_changes() {
    for (table, ids) in [
        (
            "create table {schema}.outbox (id bigserial primary key, payload jsonb not null,
               status text not null default 'new', error text)",
            "id",
        ),
        (
            "create table {schema}.outbox (id varchar(20) primary key default 'a''b-' || floor(random() * 1e9),
               payload jsonb not null, status text not null default 'new', error text)",
            "id",
        ),
        (
            "create table {schema}.outbox (id integer generated always as identity primary key,
               payload jsonb not null, status text not null default 'new', error text)",
            "id",
        ),
    ] {
        let adopted = adopt(&url(), "{schema}.outbox", table, plain("{schema}.outbox")).await;
        adopted
            .run("insert into {schema}.outbox (payload) values ('1'), ('2')")
            .await;
        let first = take_all(&adopted).await;
        assert_eq!(first.len(), 2, "{table}");
        assert_ne!(first[0].event.id, first[1].event.id, "{table}");
        adopted.settle(&first[0], Verdict::Delivered).await;
        adopted.settle(&first[1], Verdict::Delivered).await;
        adopted.run("update {schema}.outbox set status = 'new'").await;
        let again = take_all(&adopted).await;
        let ids_of = |claimed: &[Delivery]| -> Vec<Uuid> {
            let mut all: Vec<Uuid> = claimed.iter().map(|one| one.event.id).collect();
            all.sort();
            all
        };
        assert_eq!(ids_of(&again), ids_of(&first), "{table}");
        adopted.settle(&again[0], Verdict::Delivered).await;
        let sent = ask(
            &adopted,
            &format!("select count({ids}) from {{schema}}.outbox where status = 'sent'"),
        )
        .await;
        assert_eq!(sent, json!(1), "{table}: the one, and only the one");
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn a_status_may_be_an_enum() {
    let table = "create type {schema}.state as enum ('new', 'sent', 'failed', 'parked');
      create table {schema}.outbox (id bigserial primary key, payload jsonb not null,
        status {schema}.state not null default 'new', error text);
      create index on {schema}.outbox (status)";
    let adopted = adopt(&url(), "{schema}.outbox", table, plain("{schema}.outbox")).await;
    adopted
        .run("insert into {schema}.outbox (payload, status) values ('1', 'new'), ('2', 'new'), ('3', 'parked')")
        .await;
    assert_eq!(adopted.import().await.unknown_status, Some(1));
    let claimed = adopted.claim().await;
    adopted.settle(&claimed[0], Verdict::Delivered).await;
    adopted.settle(&claimed[1], super::harness::dead()).await;
    let states = ask(
        &adopted,
        "select jsonb_agg(status order by id) from {schema}.outbox",
    )
    .await;
    assert_eq!(states, json!(["sent", "failed", "parked"]));
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_long_or_invalid_error_is_shortened() {
    let table = "create table {schema}.outbox (id bigserial primary key, payload jsonb not null,
        status varchar(10) not null default 'new', error varchar(50))";
    let adopted = adopt(&url(), "{schema}.outbox", table, plain("{schema}.outbox")).await;
    for (reason, said) in [
        ("é".repeat(4000), "é".repeat(50)),
        (
            "a\0b <script>alert('x')</script>".to_owned(),
            "<script>".to_owned(),
        ),
    ] {
        adopted
            .run("insert into {schema}.outbox (payload) values ('1')")
            .await;
        let claimed = take_all(&adopted).await;
        adopted.settle(&claimed[0], Verdict::Dead { reason }).await;
        let error = ask(
            &adopted,
            "select error from {schema}.outbox where status = 'failed' order by id desc limit 1",
        )
        .await;
        let error = error.as_str().expect("an error");
        assert!(error.contains(&said) && !error.contains('\0'), "{error}");
    }
    adopted.clean_up().await;
}

#[tokio::test]
async fn names_may_have_quotes_capitals_and_spaces() {
    let table = r#"create table {schema}."Out ""box"" ; x" ("The Id" uuid primary key default gen_random_uuid(),
        "PayLoad" jsonb not null, "st'atus" text not null default 'new', "Err""or" text, "select" timestamptz)"#;
    let layout = Layout {
        status: codes("st'atus"),
        error: column("Err\"or"),
        processed_at: column("select"),
        ..Layout::new(
            "{schema}.Out \"box\" ; x",
            "The Id",
            Payload::Column("PayLoad".to_owned()),
        )
    };
    let place = r#"{schema}."Out ""box"" ; x""#;
    let adopted = adopt(&url(), place, table, layout).await;
    adopted
        .run(&format!(r#"insert into {place} ("PayLoad") values ('1'), ('2')"#))
        .await;
    let claimed = take_all(&adopted).await;
    assert_eq!(claimed[0].event.topic, "Out \"box\" ; x");
    adopted.settle(&claimed[0], Verdict::Delivered).await;
    adopted.settle(&claimed[1], retry(0)).await;
    let said = ask(
        &adopted,
        &format!(r#"select jsonb_agg(array["st'atus", "Err""or"] order by "st'atus") from {place}"#),
    )
    .await;
    assert_eq!(said, json!([["new", "it failed"], ["sent", null]]));
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_payload_may_be_any_text_empty_or_large() {
    let table = "create table {schema}.outbox (id bigserial primary key, payload text,
        status text not null default 'new', error text)";
    let adopted = adopt(&url(), "{schema}.outbox", table, plain("{schema}.outbox")).await;
    adopted
        .run("insert into {schema}.outbox (payload) values ('no { JSON <b>ü'), (null), ('')")
        .await;
    let claimed = take_all(&adopted).await;
    let bodies: Vec<&[u8]> = claimed
        .iter()
        .map(|one| match &one.event.payload {
            Content::Json(body) | Content::Bytes(body) => body.as_ref(),
        })
        .collect();
    assert_eq!(bodies, ["no { JSON <b>ü".as_bytes(), b"", b""]);
    adopted.clean_up().await;

    let table = "create table {schema}.outbox (id bigserial primary key, payload jsonb,
        status text not null default 'new', error text)";
    let adopted = adopt(&url(), "{schema}.outbox", table, plain("{schema}.outbox")).await;
    adopted
        .run("insert into {schema}.outbox (payload) values (null), (jsonb_build_object('text', repeat('xyz', 700000)))")
        .await;
    let claimed = take_all(&adopted).await;
    assert_eq!(claimed[0].event.payload, Content::Json("null".into()));
    assert!(claimed[1].event.payload.len() > 2_000_000);
    for delivery in &claimed {
        adopted.settle(delivery, Verdict::Delivered).await;
    }
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_in_progress_under_an_earlier_name_waits() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    assert_eq!(adopted.import().await.rows, 1);
    let outbox = &adopted.outbox;
    outbox
        .execute(
            "update pillarbox.adopted set adopted_table = 'another';
             update pillarbox.outbox_events set adopted_table = 'another';
             insert into pillarbox.importers (adopted_table, owner, leased_until, relation)
               select 'another', owner, now() + interval '1 hour', relation from pillarbox.importers",
        )
        .await;
    assert_eq!(adopted.import().await.rows, 0, "an event is live once");

    outbox
        .execute(
            "update pillarbox.importers set leased_until = now() - interval '1 second' where adopted_table = 'another'",
        )
        .await;
    assert_eq!(
        adopted.import().await.rows,
        1,
        "no worker imports under that name: it was an earlier name of this table"
    );
    let delivery = adopted.take().await;
    assert_eq!(delivery.event.id, id);
    adopted.settle(&delivery, Verdict::Delivered).await;
    assert_eq!(adopted.row(id).await["status"], "SENT");
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_payload_has_the_content_type_of_the_layout() {
    let text = Some("text/plain; charset=utf-8");
    for (kind, value, said, called) in [
        ("text", "'it''s late'", text, "text/plain; charset=utf-8"),
        ("text", "'{\"a\": 1}'", None, "application/json"),
        (
            "bytea",
            "'\\x0a01'",
            Some("application/x-protobuf"),
            "application/x-protobuf",
        ),
        ("bytea", "'\\x0a01'", None, "application/octet-stream"),
        (
            "jsonb",
            "'{}'",
            Some("application/vnd.shop+json"),
            "application/vnd.shop+json",
        ),
        ("jsonb", "'{}'", None, "application/json"),
    ] {
        let table =
            "create table {schema}.outbox (id uuid primary key default gen_random_uuid(), payload KIND,
            status text not null default 'new', error text)";
        let layout = Layout {
            content_type: said.map(str::to_owned),
            ..plain("{schema}.outbox")
        };
        let table = String::leak(table.replace("KIND", kind));
        let adopted = adopt(&url(), "{schema}.outbox", table, layout).await;
        let insert = format!("insert into {{schema}}.outbox (payload) values ({value})");
        adopted.run(&insert).await;
        let delivery = adopted.take().await;
        assert_eq!(delivery.event.media_type(), called, "{kind} {value}");
        adopted.clean_up().await;
    }
}
