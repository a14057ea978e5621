//! What is written back to each table, as in the system's documents.

use pillarbox::Payload;
use pillarbox_store::{Operate, Verdict};
use pillarbox_testkit::OPERATOR;
use serde_json::{Value, json};

use super::agreement::assert_agree;
use super::harness::{Adopted, dead, retry};
use super::seeds::{ALL, ARAP, DEBEZIUM, FAMILY_HUB, MODKIT, ORDER_SERVICE, REDIVER};

#[tokio::test]
async fn the_event_id_is_the_id_of_the_row() {
    for seed in ALL {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        assert_eq!(delivery.event.id, id, "{}", seed.name);
        assert_eq!(adopted.import().await.rows, 0, "{}: once", seed.name);
        adopted.settle(&delivery, Verdict::Delivered).await;
        assert_eq!(adopted.import().await.rows, 0, "{}: it is done", seed.name);
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn arap_has_a_processed_time_and_counts_failures() {
    let adopted = Adopted::new(ARAP).await;
    let (good, bad) = (adopted.produce().await, adopted.produce().await);
    adopted.import().await;
    let claimed = adopted.claim().await;
    assert_eq!(claimed[0].event.event_type.as_deref(), Some("ProposalCreated"));
    adopted.settle(&claimed[0], Verdict::Delivered).await;
    adopted.settle(&claimed[1], retry(0)).await;
    let row = adopted.row(good).await;
    assert!(row["ProcessedOnUtc"].is_string(), "{row}");
    assert_eq!((&row["RetryCount"], &row["Error"]), (&json!(0), &Value::Null));
    let row = adopted.row(bad).await;
    assert_eq!(
        (&row["ProcessedOnUtc"], &row["RetryCount"], &row["Error"]),
        (&Value::Null, &json!(1), &json!("it failed"))
    );
    for n in 2..=3 {
        let claimed = adopted.claim().await;
        assert_eq!(claimed[0].max_attempts, Some(3));
        adopted
            .settle(&claimed[0], if n == 3 { dead() } else { retry(0) })
            .await;
    }
    let row = adopted.row(bad).await;
    assert_eq!(
        (&row["ProcessedOnUtc"], &row["RetryCount"]),
        (&Value::Null, &json!(3))
    );
    assert_eq!(adopted.import().await.rows, 0);
    adopted.clean_up().await;
}

#[tokio::test]
async fn modkit_counts_claims_and_clears_its_lease() {
    let adopted = Adopted::new(MODKIT).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    assert_eq!(
        (delivery.event.namespace.as_str(), delivery.event.topic.as_str()),
        ("mini-chat", "usage")
    );
    adopted.settle(&delivery, retry(0)).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["attempts"], &row["last_error"]),
        (&json!("pending"), &json!(1), &json!("it failed"))
    );
    let delivery = adopted.claim().await.remove(0);
    adopted.settle(&delivery, Verdict::Delivered).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["attempts"], &row["locked_by"]),
        (&json!("delivered"), &json!(2), &Value::Null)
    );
    adopted.clean_up().await;
}

#[tokio::test]
async fn rediver_has_four_attempts_and_three_retries() {
    let adopted = Adopted::new(REDIVER).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let Payload::Json(text) = &delivery.event.payload else {
        panic!("JSON")
    };
    let payload: Value = serde_json::from_slice(text).expect("JSON");
    assert_eq!(payload["title"], "SQL injection");
    assert_eq!(
        (delivery.max_attempts, delivery.event.tenant_id),
        (Some(4), Some(id))
    );
    adopted.settle(&delivery, retry(0)).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["retry_count"]),
        (&json!("failed"), &json!(1))
    );
    for n in 2..=4 {
        let delivery = adopted.claim().await.remove(0);
        adopted
            .settle(&delivery, if n == 4 { dead() } else { retry(0) })
            .await;
    }
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["retry_count"], &row["last_error"]),
        (&json!("dead"), &json!(3), &json!("given up"))
    );
    adopted.clean_up().await;
}

#[tokio::test]
async fn family_hub_stays_pending_until_delivered_and_clears_the_error() {
    let adopted = Adopted::new(FAMILY_HUB).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    assert_eq!(delivery.event.event_version, 1);
    adopted.settle(&delivery, retry(0)).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["retry_count"], &row["error_message"]),
        (&json!(0), &json!(1), &json!("it failed"))
    );
    let delivery = adopted.claim().await.remove(0);
    adopted.settle(&delivery, Verdict::Delivered).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["retry_count"], &row["error_message"]),
        (&json!(1), &json!(1), &Value::Null)
    );
    assert!(row["processed_at"].is_string());
    adopted.clean_up().await;
}

#[tokio::test]
async fn order_service_sends_its_text_byte_for_byte() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let (sent, failed) = (adopted.produce().await, adopted.produce().await);
    adopted.import().await;
    let claimed = adopted.claim().await;
    assert_eq!(
        claimed[0].event.payload.as_bytes().as_ref(),
        b"{\"b\": 1,  \"a\": 2}"
    );
    assert_eq!(claimed[0].event.media_type(), "application/json");
    adopted.settle(&claimed[0], Verdict::Delivered).await;
    adopted.settle(&claimed[1], dead()).await;
    let row = adopted.row(sent).await;
    assert_eq!(row["status"], "SENT");
    assert!(row["sent_at"].is_string());
    let row = adopted.row(failed).await;
    assert_eq!(
        (&row["status"], &row["sent_at"], &row["error_message"]),
        (&json!("FAILED"), &Value::Null, &json!("given up"))
    );
    adopted.clean_up().await;
}

#[tokio::test]
async fn debezium_rows_are_deleted_when_delivered() {
    let adopted = Adopted::new(DEBEZIUM).await;
    let (sent, failed) = (adopted.produce().await, adopted.produce().await);
    adopted.import().await;
    let claimed = adopted.claim().await;
    adopted.settle(&claimed[0], Verdict::Delivered).await;
    adopted.settle(&claimed[1], dead()).await;
    assert_eq!(adopted.row(sent).await, Value::Null);
    assert_ne!(adopted.row(failed).await, Value::Null);
    assert_eq!(adopted.import().await.rows, 0, "it is not taken again");
    adopted.clean_up().await;
}

/// Only the mapping row shows it, because the row has no state but its presence.
#[tokio::test]
async fn debezium_rows_that_are_retried_are_in_progress_again() {
    let adopted = Adopted::new(DEBEZIUM).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, dead()).await;
    assert_agree(&adopted, None).await;
    let retried = adopted.outbox.store.retry(&OPERATOR, &[id]).await;
    retried.expect("it is there");
    assert_agree(&adopted, None).await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    assert_eq!(adopted.row(id).await, Value::Null);
    adopted.clean_up().await;
}

#[tokio::test]
async fn an_outage_writes_the_error_and_not_the_counter() {
    for seed in [ARAP, REDIVER, FAMILY_HUB, ORDER_SERVICE] {
        let adopted = Adopted::new(seed).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        let released = Verdict::Release {
            after: std::time::Duration::ZERO,
            reason: Some("the broker is away".to_owned()),
        };
        adopted.settle(&delivery, released).await;
        let row = adopted.row(id).await.to_string();
        assert!(row.contains("the broker is away"), "{}: {row}", seed.name);
        for count in ["\"RetryCount\":1", "\"retry_count\":1", "\"failed\""] {
            assert!(!row.contains(count), "{}: {row}", seed.name);
        }
        assert_eq!(adopted.claim().await[0].attempts, 1, "{}", seed.name);
        adopted.clean_up().await;
    }
}
