//! `pillarbox.enqueue` and `pillarbox.enqueue_many`, for producers in any language.
//!
//! Each test has its own schema, so none depends on the name `pillarbox`.

mod checks;
mod many;
mod one;
mod race;
mod suite;
mod trace;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pillarbox::{Enqueued, Event, Payload};
use serde_json::{Map, Value, json};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use super::harness::PostgresHarness;

/// Calls `pillarbox.enqueue` with everything that the event says.
async fn enqueue(
    harness: &PostgresHarness,
    connection: &mut PgConnection,
    event: &Event,
) -> Result<Enqueued, sqlx::Error> {
    let call = "select id, is_new from pillarbox.enqueue(
        id => $1, namespace => $2, topic => $3, event_type => $4, event_version => $5, aggregate_type => $6,
        aggregate_id => $7, tenant_id => $8, dedupe_key => $9, ordering_key => $10, severity => $11,
        payload => $12::jsonb, body => $13, content_type => $14, content_encoding => $15, headers => $16,
        destination => $17, deliver_at => $18)";
    let (payload, body) = match &event.payload {
        Payload::Json(text) => (Some(std::str::from_utf8(text).expect("is text")), None),
        Payload::Bytes(body) => (None, Some(&body[..])),
    };
    let row = sqlx::query(AssertSqlSafe(harness.sql(call)))
        .bind(event.id)
        .bind(&event.namespace)
        .bind(&event.topic)
        .bind(&event.event_type)
        .bind(event.event_version)
        .bind(&event.aggregate_type)
        .bind(&event.aggregate_id)
        .bind(event.tenant_id)
        .bind(&event.dedupe_key)
        .bind(&event.ordering_key)
        .bind(&event.severity)
        .bind(payload)
        .bind(body)
        .bind(&event.content_type)
        .bind(&event.content_encoding)
        .bind(sqlx::types::Json(&event.headers))
        .bind(&event.destination)
        .bind(event.deliver_at)
        .persistent(false)
        .fetch_one(connection)
        .await?;
    enqueued(&row)
}

/// Calls `pillarbox.enqueue_many` with everything that the events say.
async fn enqueue_many(
    harness: &PostgresHarness,
    connection: &mut PgConnection,
    events: &[Event],
) -> Result<Vec<Enqueued>, sqlx::Error> {
    let events: Vec<Value> = events.iter().map(object).collect();
    enqueue_json(harness, connection, &Value::from(events)).await
}

/// Calls `pillarbox.enqueue_many` with this JSON.
async fn enqueue_json(
    harness: &PostgresHarness,
    connection: &mut PgConnection,
    events: &Value,
) -> Result<Vec<Enqueued>, sqlx::Error> {
    let call = "select id, is_new, ord from pillarbox.enqueue_many($1)";
    let rows = sqlx::query(AssertSqlSafe(harness.sql(call)))
        .bind(events)
        .persistent(false)
        .fetch_all(connection)
        .await?;
    let places = rows.iter().map(|row| row.get::<i64, _>("ord"));
    assert!(
        places.eq((1..).take(rows.len())),
        "the answers are in the order of the array"
    );
    rows.iter().map(enqueued).collect()
}

fn enqueued(row: &sqlx::postgres::PgRow) -> Result<Enqueued, sqlx::Error> {
    let id: Uuid = row.try_get("id")?;
    let is_new: bool = row.try_get("is_new")?;
    Ok(if is_new {
        Enqueued::New(id)
    } else {
        Enqueued::Duplicate(id)
    })
}

/// The event as `enqueue_many` takes it: only what it says, and bytes in base64.
fn object(event: &Event) -> Value {
    let mut object = Map::new();
    let mut say = |key: &str, value: Value| {
        if !value.is_null() {
            object.insert(key.to_owned(), value);
        }
    };
    say("id", json!(event.id));
    say("namespace", json!(event.namespace));
    say("topic", json!(event.topic));
    say("event_type", json!(event.event_type));
    say("event_version", json!(event.event_version));
    say("aggregate_type", json!(event.aggregate_type));
    say("aggregate_id", json!(event.aggregate_id));
    say("tenant_id", json!(event.tenant_id));
    say("dedupe_key", json!(event.dedupe_key));
    say("ordering_key", json!(event.ordering_key));
    say("severity", json!(event.severity));
    say("content_type", json!(event.content_type));
    say("content_encoding", json!(event.content_encoding));
    say("headers", json!(event.headers));
    say("destination", json!(event.destination));
    let deliver_at = event.deliver_at.map(|at| {
        let format = &time::format_description::well_known::Rfc3339;
        at.format(format).expect("has a form")
    });
    say("deliver_at", json!(deliver_at));
    match &event.payload {
        Payload::Json(text) => {
            object.insert(
                "payload".to_owned(),
                serde_json::from_slice(text).expect("is JSON"),
            );
        }
        Payload::Bytes(body) => say("body", json!(STANDARD.encode(body))),
    }
    Value::Object(object)
}

/// What the function refused it with. Every refusal has the same code, and says what to do.
fn refused<T: std::fmt::Debug>(answer: Result<T, sqlx::Error>) -> String {
    let error = answer.expect_err("is refused");
    let error = error.as_database_error().expect("by the database");
    let error = error.downcast_ref::<sqlx::postgres::PgDatabaseError>();
    assert_eq!(error.code(), "22023", "{error}");
    assert!(
        error.hint().is_some_and(|hint| hint.contains("Roll back")),
        "{error}"
    );
    error.message().to_owned()
}
