//! Rediver: failed is not pending, every row has its own limit, and a tenant takes its rows along.

use serde_json::{Value, json};
use uuid::Uuid;

use super::hook::Hook;
use super::seeds::REDIVER;
use super::system::System;
use pillarbox_testkit::wait::{Load, until_some};

pub(super) fn config(hook: &Hook, waits: &str) -> String {
    format!(
        "{}[[adopt]]\nlayout = \"rediver\"\nto = \"hook\"\npoll = \"100ms\"\nretry = {{ steps = [{waits}] }}\n",
        hook.destination("hook")
    )
}

pub(super) fn is_completed(row: &Value) -> bool {
    row["status"] == "completed"
}

fn is_dead(row: &Value) -> bool {
    row["status"] == "dead"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rediver_notifications_are_completed_retried_and_dead_as_its_document_says() {
    let hook = Hook::start(|call| match call.body["title"].as_str() {
        Some("Down") => 500,
        Some("Bad") => 422,
        Some("Shaky") if call.turn < 3 => 500,
        _ => 200,
    });
    let system = System::new(Load::Light, &[REDIVER]).await;
    let good = system.produce(REDIVER, 40).await;
    let titled = |title: &'static str| [("SQL injection", title)];
    let shaky = system.produce_like(REDIVER, 1, &titled("Shaky")).await[0];
    let bad = system.produce_like(REDIVER, 1, &titled("Bad")).await[0];
    let down = system.produce_like(REDIVER, 2, &titled("Down")).await;
    system.change(REDIVER, down[1], "max_retries = 1").await;
    let daemon = system.start(&config(&hook, "\"100ms\", \"200ms\", \"300ms\""));
    let is_over = |row: &Value| is_completed(row) || is_dead(row);
    let rows = system.until_all(REDIVER, "are over", is_over).await;
    daemon.stop().await;

    for id in &good {
        let row = &rows[id];
        assert_eq!(
            (&row["status"], &row["retry_count"], &row["last_error"]),
            (&json!("completed"), &json!(0), &Value::Null),
            "{row}"
        );
    }
    let state = |id: &Uuid| {
        let row: &Value = &rows[id];
        assert!(row["locked_by"].is_null() && row["locked_at"].is_null(), "{row}");
        assert_eq!(row["processed_at"].is_null(), is_dead(row), "{row}");
        (row["status"].clone(), row["retry_count"].clone())
    };
    assert_eq!(state(&shaky), (json!("completed"), json!(2)));
    assert_eq!(hook.answers(bad), [422], "it is refused once and for all");
    assert_eq!(state(&bad).0, json!("dead"));
    assert_eq!(state(&down[0]), (json!("dead"), json!(3)));
    assert_eq!(hook.answers(down[0]), [500; 4], "four attempts");
    assert_eq!(state(&down[1]), (json!("dead"), json!(1)), "its own limit");
    assert_eq!(hook.answers(down[1]), [500; 2]);
    assert!(system.is_of_now(REDIVER, "processed_at").await);
    let visits = hook.visits();
    let call = &visits
        .iter()
        .find(|visit| visit.call.id == good[0])
        .expect("it came")
        .call;
    assert_eq!(
        (&call.body["title"], &call.body["severity"], &call.body["url"]),
        (&json!("SQL injection"), &json!("critical"), &json!("/findings/1"))
    );
    assert_eq!(
        call.header("pillarbox-tenant"),
        Some(good[0].to_string().as_str())
    );
    assert_eq!(call.header("pillarbox-type"), Some("new_finding"));
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rediver_entry_that_fails_is_scheduled_two_minutes_later_and_can_be_reset() {
    let hook = Hook::start(|call| if call.turn == 1 { 500 } else { 200 });
    let system = System::new(Load::Light, &[REDIVER]).await;
    let ids = system.produce(REDIVER, 2).await;
    // The document's own waits: nothing is said of them here.
    let own = format!(
        "{}[[adopt]]\nlayout = \"rediver\"\npoll = \"100ms\"\n",
        hook.destination("hook")
    );
    let daemon = system.start(&own);
    for id in &ids {
        let row = system
            .until(REDIVER, *id, "has failed", |row| row["status"] == "failed")
            .await;
        assert_eq!(row["retry_count"], 1);
    }
    let sql =
        "select bool_and(scheduled_at - updated_at between interval '119 seconds' and interval '121 seconds')
               from notification_outbox";
    assert!(
        system.is_true(sql).await,
        "two minutes: {:?}",
        system.rows(REDIVER).await
    );
    // As its own ResetForRetry writes it.
    system
        .change(
            REDIVER,
            ids[0],
            "status = 'pending', retry_count = 0, scheduled_at = now(), locked_at = null, locked_by = '', processed_at = null",
        )
        .await;
    let row = system.until(REDIVER, ids[0], "is completed", is_completed).await;
    assert_eq!(row["retry_count"], 0);
    assert_eq!(hook.answers(ids[1]), [500], "no retry of the other was requested");
    daemon.stop().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_rediver_entry_that_is_reset_is_sent_again() {
    let hook = Hook::start(|call| if call.turn <= 4 { 500 } else { 200 });
    let system = System::new(Load::Light, &[REDIVER]).await;
    let id = system.produce(REDIVER, 1).await[0];
    let daemon = system.start(&config(&hook, "\"100ms\""));
    system.until(REDIVER, id, "is dead", is_dead).await;
    let reset = "status = 'pending', retry_count = 0, scheduled_at = now(), locked_at = null, locked_by = ''";
    system.change(REDIVER, id, reset).await;
    let row = system.until(REDIVER, id, "is completed", is_completed).await;
    assert_eq!(row["retry_count"], 0);
    daemon.stop().await;
    assert_eq!(hook.answers(id).len(), 5);
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_tenant_deletes_its_rows_without_an_error() {
    let hook = Hook::start(|call| if call.body["title"] == "Down" { 500 } else { 200 });
    let system = System::new(Load::Light, &[REDIVER]).await;
    let gone = system
        .produce_like(REDIVER, 1, &[("SQL injection", "Down")])
        .await[0];
    let daemon = system.start(&config(&hook, "\"1h\""));
    system
        .until(REDIVER, gone, "has failed", |row| row["status"] == "failed")
        .await;
    system
        .psql(&format!("delete from tenants where id = '{gone}'"))
        .await;
    system
        .until_true(
            "its event is deleted too",
            "select not exists (select from pillarbox.outbox_events) and not exists (select from pillarbox.adopted)",
        )
        .await;
    system.produce(REDIVER, 5).await;
    let rows = system.until_all(REDIVER, "are completed", is_completed).await;
    assert_eq!(rows.len(), 5);
    let said = daemon.stop().await;
    assert!(!said.contains("ERROR"), "{said}");
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_in_the_hands_of_rediver_itself_are_left_alone_for_ten_minutes() {
    let hook = Hook::start(|_| 200);
    let system = System::new(Load::Light, &[REDIVER]).await;
    let ids = system.produce(REDIVER, 3).await;
    let held = |since: &str| {
        format!("status = 'processing', locked_by = 'worker-123', locked_at = now() - interval '{since}'")
    };
    system.change(REDIVER, ids[0], &held("11 minutes")).await;
    system.change(REDIVER, ids[1], &held("9 minutes")).await;
    system
        .change(REDIVER, ids[2], "scheduled_at = now() + interval '1 hour'")
        .await;
    let daemon = system.start(&config(&hook, "\"100ms\""));
    system.until(REDIVER, ids[0], "is completed", is_completed).await;
    // Whatever was to be taken was taken with it.
    let rows = system.rows(REDIVER).await;
    assert_eq!(rows[&ids[1]]["locked_by"], "worker-123");
    assert_eq!(rows[&ids[2]]["status"], "pending");
    daemon.stop().await;
    assert_eq!(hook.accepted(), [ids[0]]);
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_goes_to_two_places_is_completed_when_both_have_it() {
    let mail = Hook::start(|_| 200);
    let chat = Hook::start(|call| {
        if call.body["title"] == "Down" || call.turn < 3 {
            500
        } else {
            200
        }
    });
    let system = System::new(Load::Light, &[REDIVER]).await;
    let config = format!(
        "{}{}[[adopt]]\nlayout = \"rediver\"\nto = [\"mail\", \"chat\"]\npoll = \"100ms\"\n\
         retry = {{ steps = [\"1h\"] }}\n",
        mail.destination("mail"),
        chat.destination("chat")
    );
    let id = system.produce(REDIVER, 1).await[0];
    let down = system
        .produce_like(REDIVER, 1, &[("SQL injection", "Down")])
        .await[0];
    let daemon = system.start(&config);
    let row = system
        .until(REDIVER, id, "has failed", |row| row["status"] == "failed")
        .await;
    assert_eq!(row["processed_at"], Value::Null, "one of two is not all");
    let rows = until_some("both rows have ended", async || {
        system.hurry().await;
        let rows = system.rows(REDIVER).await;
        (is_completed(&rows[&id]) && is_dead(&rows[&down])).then_some(rows)
    })
    .await;
    assert_eq!(rows[&id]["retry_count"], 2, "{rows:?}");
    assert_eq!(rows[&down]["retry_count"], 3, "{rows:?}");
    daemon.stop().await;
    for id in [id, down] {
        assert_eq!(
            mail.answers(id),
            [200],
            "a rejection by one destination repeats nothing at the other"
        );
    }
    assert_eq!(chat.answers(id), [500, 500, 200]);
    assert_eq!(chat.answers(down), [500; 4]);
    system.remove().await;
}
