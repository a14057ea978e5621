//! What the functions reject: the same as the library, with the same message.

use pillarbox::inbox::Key;
use pillarbox::internal::validate;
use pillarbox::{Clock, EnqueueError, Event, Limits, Payload, SystemClock};
use pillarbox_testkit::store_suite::Harness;
use serde_json::json;
use sqlx::AssertSqlSafe;
use time::macros::time;
use time::{Duration, OffsetDateTime, Time};
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::{enqueue, enqueue_json, enqueue_many, refused};

const TENANT: Uuid = Uuid::from_u128(0x0190_c2a4_8f4e_7c3a_9d51_0f2b_6d1c_7e5a);

fn event() -> Event {
    Event::new("shop", "orders")
}

/// An event for each text that it has, with this text there.
fn each_text(text: &str) -> Vec<Event> {
    let with = |change: fn(&mut Event, String)| {
        let mut event = event();
        change(&mut event, text.to_owned());
        event
    };
    vec![
        with(|event, text| event.namespace = text),
        with(|event, text| event.topic = text),
        with(|event, text| event.event_type = Some(text)),
        with(|event, text| event.aggregate_type = Some(text)),
        with(|event, text| event.aggregate_id = Some(text)),
        with(|event, text| event.dedupe_key = Some(text)),
        with(|event, text| event.ordering_key = Some(text)),
        with(|event, text| event.severity = Some(text)),
        with(|event, text| event.content_type = Some(text)),
        with(|event, text| {
            event.payload = Payload::Bytes("{}".into());
            event.content_encoding = Some(text);
        }),
        with(|event, text| event.destination = Some(text)),
        with(|event, text| drop(event.headers.insert(text, "value".into()))),
    ]
}

/// So many days from now.
fn days(days: i64) -> OffsetDateTime {
    SystemClock.wall() + Duration::days(days)
}

/// Too far ahead, at this time of the day.
fn too_late(time: Time) -> Event {
    event().deliver_at(days(402).replace_time(time))
}

fn refused_by_the_library() -> Vec<Event> {
    let with_tenant = |key: String| event().tenant(TENANT).dedupe_key(key);
    let mut encoded = event();
    encoded.content_encoding = Some("zstd".into());
    let mut events = each_text("");
    events.extend(each_text(&"é".repeat(513)));
    events.extend([
        event().id(Key::dedupe("shop", "orders", "1").id()),
        event().version(0),
        event().version(-7),
        event().destination("unrouted"),
        event().deliver_at(days(1)).ordering_key("k"),
        too_late(time!(00:03:29.12)),
        too_late(time!(09:00:00)),
        too_late(time!(23:59:59.123456)),
        too_late(time!(12:30:00.000001)),
        event()
            .header("a", "x".repeat(60_000))
            .header("b", "x".repeat(5_536)),
        with_tenant("order-42".into()),
        with_tenant(TENANT.to_string()),
        with_tenant(format!("{}/1", Uuid::nil())),
        with_tenant(format!(" {TENANT}/1")),
        event().json_text(format!("\"{}\"", "x".repeat(16 << 20))),
        event().bytes(vec![7; (16 << 20) + 1], "application/octet-stream"),
        encoded.clone(),
        // Several mistakes at once: the error names the first.
        encoded.tenant(TENANT).dedupe_key("x"),
        event().version(0).destination("unrouted"),
        event().destination("unrouted").header("", "x"),
        with_tenant("x".into()).header("", "x"),
        Event::new("", "").version(0),
    ]);
    events
}

#[tokio::test]
async fn the_functions_reject_what_the_library_rejects_with_the_same_message() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    for event in refused_by_the_library() {
        let words = validate(&event, &Limits::default())
            .expect_err("is wrong")
            .to_string();
        let one = enqueue(&harness, &mut connection, &event).await;
        assert_eq!(refused(one), words);
        let many = enqueue_many(&harness, &mut connection, &[super::checks::event(), event]).await;
        let error = many.expect_err("is refused");
        let error = error.as_database_error().expect("by the database");
        assert_eq!(error.message(), words);
        let hint = error.downcast_ref::<sqlx::postgres::PgDatabaseError>().hint();
        assert!(
            hint.is_some_and(|hint| hint.contains("event 2 of the array")),
            "{hint:?}"
        );
    }
    drop(connection);
    assert_eq!(count(&harness).await, 0, "all or none");
    harness.clean_up().await;
}

#[tokio::test]
async fn an_event_at_its_limits_is_accepted() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let with_tenant = |prefix: String| event().tenant(TENANT).dedupe_key(format!("{prefix}/1"));
    let mut events = each_text(&"é".repeat(512));
    events.extend([
        event().deliver_at(days(399)),
        event().deliver_at(days(-10_000)),
        event()
            .header("a", "x".repeat(60_000))
            .header("b", "x".repeat(5_534)),
        with_tenant(TENANT.hyphenated().to_string()),
        with_tenant(TENANT.hyphenated().to_string().to_uppercase()),
        with_tenant(TENANT.simple().to_string()),
        with_tenant(TENANT.simple().to_string().to_uppercase()),
        event().tenant(TENANT),
        event().dedupe_key("no-tenant"),
        event().json_text(format!("\"{}\"", "x".repeat((16 << 20) - 2))),
        event().bytes(vec![7; 16 << 20], "application/octet-stream"),
    ]);
    for event in &events {
        assert_eq!(validate(event, &Limits::default()), Ok(()));
        let one = enqueue(&harness, &mut connection, event).await;
        assert!(one.expect("is accepted").is_new());
        let again = event.clone().id(Uuid::now_v7());
        let many = enqueue_many(&harness, &mut connection, &[again]).await;
        assert_eq!(many.expect("is accepted")[0].is_new(), event.dedupe_key.is_none());
    }
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn headers_that_no_library_could_give_are_refused() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    for (headers, words) in [
        (json!({"a": 1}), "`headers` holds a value that is no text"),
        (
            json!({"a": "x", "b": null}),
            "`headers` holds a value that is no text",
        ),
        (json!({"a": ["x"]}), "`headers` holds a value that is no text"),
        (
            json!({"a": {"b": "x"}}),
            "`headers` holds a value that is no text",
        ),
        (json!(["a"]), "`headers` is no JSON object"),
        (json!("a"), "`headers` is no JSON object"),
    ] {
        let call = "select id from pillarbox.enqueue('shop', 'orders', headers => $1)";
        let one = sqlx::query(AssertSqlSafe(harness.sql(call))).bind(&headers);
        let one = refused(one.fetch_one(&mut *connection).await);
        assert!(one.starts_with(words), "{headers}: {one}");
        let event = json!([{"namespace": "shop", "topic": "orders", "headers": headers}]);
        let many = refused(enqueue_json(&harness, &mut connection, &event).await);
        assert!(many.starts_with(words), "{headers}: {many}");
    }
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn an_event_is_json_or_bytes_and_not_both() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let event = json!([{"namespace": "a", "topic": "b", "payload": {"c": 1}, "body": "AAEC"}]);
    let many = refused(enqueue_json(&harness, &mut connection, &event).await);
    assert!(
        many.starts_with("`payload` and `body` exclude each other"),
        "{many}"
    );
    drop(connection);
    harness.clean_up().await;
}

#[tokio::test]
async fn only_the_owner_of_the_outbox_sets_the_limit_of_a_payload() {
    let harness = PostgresHarness::direct().await;
    let mut transaction = harness.pool.begin().await.expect("begins");
    let large = event().bytes(vec![7; (16 << 20) + 1], "application/octet-stream");
    sqlx::raw_sql("set local pillarbox.max_payload = '17 MB'; savepoint before")
        .execute(&mut *transaction)
        .await
        .expect("sets");
    let words = refused(enqueue(&harness, &mut transaction, &large).await);
    assert!(
        words.starts_with("the payload is 16777217 bytes; the limit is 16777216"),
        "{words}"
    );
    drop(transaction);

    let limit = |bytes: u64| {
        format!(
            "create or replace function pillarbox.max_payload() returns bigint language sql immutable parallel safe return {bytes}"
        )
    };
    harness.execute(&limit(17 << 20)).await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let enqueued = enqueue(&harness, &mut connection, &large).await;
    enqueued.expect("is accepted");
    harness.execute(&limit(1024)).await;
    let small = event().bytes(vec![7; 1025], "application/octet-stream");
    let words = refused(enqueue(&harness, &mut connection, &small).await);
    assert!(
        words.starts_with("the payload is 1025 bytes; the limit is 1024"),
        "{words}"
    );
    let limits = Limits::default();
    let by_the_library = harness
        .store
        .outbox()
        .limits(limits)
        .enqueue(&mut *connection, &small)
        .await;
    assert!(
        matches!(&by_the_library, Err(EnqueueError::Rejected(words)) if words.contains("payload_is_within_max_payload")),
        "{by_the_library:?}"
    );
    drop(connection);
    harness.clean_up().await;
}

/// Everything whose size is bounded, as the columns and values of a plain INSERT.
fn too_large() -> Vec<(&'static str, &'static str, &'static str)> {
    let names = "names_have_at_most_1024_bytes";
    let headers = "headers_have_at_most_64_kib";
    let payload = "payload_is_within_max_payload";
    let mut all = vec![
        ("headers", "jsonb_build_object('a', repeat('x', 65536))", headers),
        ("headers", "jsonb_build_object(repeat('x', 1025), 'a')", headers),
        ("payload", "to_jsonb(repeat('x', 16777216))", payload),
        // 9 kB and 1.5 kB that are 75 MB and 16 MiB when they are written out.
        (
            "payload",
            "('[' || repeat('1e131071,', 600) || '1]')::jsonb",
            payload,
        ),
        (
            "payload",
            "('[' || repeat('1e131071,', 130) || '1]')::jsonb",
            payload,
        ),
        ("body", "convert_to(repeat('x', 16777217), 'utf8')", payload),
    ];
    let columns = [
        "namespace",
        "topic",
        "event_type",
        "aggregate_type",
        "aggregate_id",
        "dedupe_key",
        "ordering_key",
        "severity",
        "destination",
        "content_type",
        "content_encoding",
    ];
    all.extend(columns.map(|column| (column, "repeat('é', 513)", names)));
    all
}

#[tokio::test]
async fn a_plain_insert_is_bounded_as_the_functions_are() {
    let harness = PostgresHarness::direct().await;
    for (column, value, constraint) in too_large() {
        let rest: String = ["namespace", "topic", "payload"]
            .into_iter()
            .filter(|name| *name != column)
            .map(|name| format!(", {name}"))
            .collect();
        let values = rest
            .replace("namespace", "'a'")
            .replace("topic", "'b'")
            .replace("payload", "'{}'");
        let insert = format!("insert into pillarbox.outbox_events ({column}{rest}) values ({value}{values})");
        let rejected = sqlx::raw_sql(AssertSqlSafe(harness.sql(&insert)))
            .execute(&harness.pool)
            .await;
        let rejected = rejected.expect_err(&insert);
        let error = rejected.as_database_error().expect("by the database");
        assert_eq!(error.constraint(), Some(constraint), "{insert}: {error}");
    }
    assert_eq!(count(&harness).await, 0);
    // At the limit, and compressed in another table before.
    harness
        .execute(
            "create table pillarbox.drafts as select ('[' || repeat('1e131071,', 127) || '1]')::jsonb as payload;
             insert into pillarbox.outbox_events (namespace, topic, event_type, headers, payload)
             select repeat('é', 512), 'b', null, jsonb_build_object('a', repeat('x', 65535)), payload from pillarbox.drafts",
        )
        .await;
    assert_eq!(count(&harness).await, 1);
    harness.clean_up().await;
}

#[tokio::test]
async fn numbers_that_are_written_out_beyond_the_limit_are_rejected_by_the_functions_and_the_library() {
    let harness = PostgresHarness::direct().await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let bomb = event().json_text(format!("[{}1]", "1e131071,".repeat(200)));
    assert!(validate(&bomb, &Limits::default()).is_err());
    let one = enqueue(&harness, &mut connection, &bomb).await.map(|_| ());
    let many = harness.sql(
        r#"select pillarbox.enqueue_many(('[{"namespace": "shop", "topic": "orders", "payload": [' || repeat('1e131071,', 200) || '1]}]')::jsonb)"#,
    );
    let many = sqlx::raw_sql(AssertSqlSafe(many))
        .execute(&mut *connection)
        .await
        .map(|_| ());
    for rejected in [one, many] {
        let error = rejected.expect_err("is rejected");
        let constraint = error.as_database_error().and_then(|error| error.constraint());
        assert_eq!(constraint, Some("payload_is_within_max_payload"), "{error}");
    }
    drop(connection);
    assert_eq!(count(&harness).await, 0);
    harness.clean_up().await;
}

/// A call for every check of every event would cost more than the row that it guards.
#[tokio::test]
async fn the_checks_are_written_into_the_statement_that_names_them() {
    let harness = PostgresHarness::direct().await;
    let explain = "explain (verbose) select pillarbox.refusal(
        id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key, ordering_key,
        severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at)
        from pillarbox.outbox_events";
    let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(harness.sql(explain)))
        .fetch_all(&harness.pool)
        .await
        .expect("explains");
    let plan = plan.concat();
    assert!(plan.contains("versions count from 1"), "{plan}");
    for call in [".refusal(", "name_refusal(", "payload_length(", "max_payload()"] {
        assert!(!plan.contains(call), "{call}: {plan}");
    }
    harness.clean_up().await;
}

async fn count(harness: &PostgresHarness) -> i64 {
    let count = harness.sql("select count(*) from pillarbox.outbox_events");
    sqlx::query_scalar(AssertSqlSafe(count))
        .fetch_one(&harness.pool)
        .await
        .expect("counts")
}
