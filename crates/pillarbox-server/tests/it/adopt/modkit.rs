//! modkit: attempts are counted when they begin, and a row has a namespace of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use uuid::Uuid;

use super::hook::Hook;
use super::seeds::MODKIT;
use super::system::System;
use pillarbox_testkit::wait::Load;

/// Its specification leaves the numbers to the operator.
fn config(hook: &Hook, base: &str) -> String {
    format!(
        "{}[[adopt]]\nlayout = \"modkit\"\nnamespaces = [\"*\"]\nto = \"hook\"\npoll = \"100ms\"\n\
         retry = {{ base = \"{base}\", max_attempts = 4 }}\n",
        hook.destination("hook")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modkit_rows_are_delivered_retried_and_given_up_on_as_its_specification_says() {
    let hook = Hook::start(|call| match call.body["tokens"].as_i64() {
        Some(500) => 500,
        Some(400) => 400,
        Some(3) if call.turn < 3 => 503,
        _ => 200,
    });
    let system = System::new(Load::Light, &[MODKIT]).await;
    let good = system.produce(MODKIT, 40).await;
    let of = |tokens: &'static str| [("\"tokens\": 7", tokens)];
    let retried = system.produce_like(MODKIT, 1, &of("\"tokens\": 3")).await[0];
    let rejected = system.produce_like(MODKIT, 1, &of("\"tokens\": 400")).await[0];
    let exhausted = system.produce_like(MODKIT, 1, &of("\"tokens\": 500")).await[0];
    let daemon = system.start(&config(&hook, "100ms"));
    let is_over = |row: &Value| row["status"] == "delivered" || row["status"] == "dead";
    let rows = system.until_all(MODKIT, "are over", is_over).await;
    daemon.stop().await;

    for id in good {
        let row = &rows[&id];
        assert_eq!(
            (&row["status"], &row["attempts"], &row["last_error"]),
            (&json!("delivered"), &json!(1), &Value::Null),
            "{row}"
        );
    }
    let state = |id: &Uuid| {
        let row: &Value = &rows[id];
        assert!(
            row["locked_by"].is_null() && row["locked_until"].is_null(),
            "{row}"
        );
        let error = row["last_error"].as_str().unwrap_or_default().to_owned();
        (row["status"].clone(), row["attempts"].clone(), error)
    };
    let (status, attempts, error) = state(&retried);
    assert_eq!((status, attempts), (json!("delivered"), json!(3)));
    assert!(error.contains("503"), "the last error stays: {error}");
    let (status, attempts, error) = state(&rejected);
    assert_eq!((status, attempts), (json!("dead"), json!(1)));
    assert!(error.contains("400"), "{error}");
    let (status, attempts, error) = state(&exhausted);
    assert_eq!((status, attempts), (json!("dead"), json!(4)));
    assert!(error.contains("500"), "{error}");
    assert_eq!(hook.answers(exhausted), [500; 4]);
    assert!(system.is_of_now(MODKIT, "updated_at").await);
    let call = &hook.visits()[0].call;
    assert_eq!(call.header("pillarbox-namespace"), Some("mini-chat"));
    assert_eq!(call.header("pillarbox-topic"), Some("usage"));
    assert_eq!(
        call.header("pillarbox-dedupe-key"),
        Some(call.id.to_string().as_str())
    );
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modkit_row_waits_in_pending_with_its_next_attempt_written_down() {
    let hook = Hook::start(|_| 500);
    let system = System::new(Load::Light, &[MODKIT]).await;
    let id = system.produce(MODKIT, 1).await[0];
    // The row of another worker: its lease has not ended, and it is left alone until it has.
    let theirs = system
        .produce_like(MODKIT, 1, &[("'pending'", "'processing'")])
        .await[0];
    system
        .change(
            MODKIT,
            theirs,
            "locked_by = gen_random_uuid(), locked_until = now() + interval '1 hour'",
        )
        .await;
    let daemon = system.start(&config(&hook, "60s"));
    let row = system
        .until(MODKIT, id, "has failed", |row| row["attempts"] == 1)
        .await;
    assert_eq!(row["status"], "pending");
    let sql = format!(
        "select next_attempt_at - updated_at between interval '29 seconds' and interval '61 seconds'
         from modkit_outbox_events where id = '{id}'"
    );
    assert!(system.is_true(&sql).await, "equal jitter over 60 seconds: {row}");
    assert_eq!(system.rows(MODKIT).await[&theirs]["attempts"], 0);
    assert!(hook.answers(theirs).is_empty(), "it belongs to another worker");
    system
        .change(MODKIT, theirs, "locked_until = now() - interval '1 second'")
        .await;
    system
        .until(MODKIT, theirs, "is taken over", |row| row["attempts"] == 1)
        .await;
    daemon.stop().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_says_not_now_costs_a_modkit_row_no_attempt() {
    let seen = Arc::new(AtomicBool::new(false));
    let is_ready = Arc::clone(&seen);
    let hook = Hook::start(move |_| {
        if is_ready.load(Ordering::Relaxed) {
            200
        } else {
            429
        }
    });
    let system = System::new(Load::Light, &[MODKIT]).await;
    let id = system.produce(MODKIT, 1).await[0];
    let daemon = system.start(&config(&hook, "100ms"));
    let row = system
        .until(MODKIT, id, "says why", |row| !row["last_error"].is_null())
        .await;
    assert_eq!(row["attempts"], 0, "{row}");
    seen.store(true, Ordering::Relaxed);
    let row = system
        .until(MODKIT, id, "is delivered", |row| row["status"] == "delivered")
        .await;
    assert_eq!(row["attempts"], 1);
    daemon.stop().await;
    system.remove().await;
}
