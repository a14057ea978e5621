//! A row with several destinations. The table shows the state of the family, not of one member.

use pillarbox::Delivery;
use pillarbox_store::store::{Member, Routing, Settlement};
use pillarbox_store::{Operate, Store, Verdict};
use pillarbox_testkit::OPERATOR;
use serde_json::json;
use uuid::Uuid;

use super::agreement::assert_agree;
use super::harness::{Adopted, dead, retry};
use super::seeds::{FAMILY_HUB, ORDER_SERVICE, REDIVER};

/// Routes the row to two destinations, and returns the settlements of both.
async fn route(adopted: &Adopted, delivery: &Delivery, verdicts: [Verdict; 2]) -> [Settlement; 2] {
    let ids = [delivery.id, Uuid::now_v7()];
    let member = |place: usize, name: &str| Member {
        id: ids[place],
        destination: name.to_owned(),
        max_attempts: Some(4),
    };
    let routing = Routing {
        id: delivery.id,
        claim: delivery.claim,
        members: vec![member(0, "mail"), member(1, "chat")],
    };
    let routed = adopted.outbox.store.route(adopted.worker(), &[routing]).await;
    assert!(routed.expect("routes").lost.is_empty());
    let [first, second] = verdicts;
    let settlement = |id: Uuid, verdict: Verdict| Settlement {
        id,
        claim: delivery.claim,
        verdict,
        destination: None,
        max_attempts: None,
        unordered: false,
        keep: true,
    };
    [settlement(ids[0], first), settlement(ids[1], second)]
}

async fn settle(adopted: &Adopted, settlements: &[Settlement]) {
    let lost = adopted.outbox.store.settle(adopted.worker(), settlements).await;
    assert!(lost.expect("settles").is_empty());
}

#[tokio::test]
async fn a_row_is_delivered_when_all_members_are() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let [first, second] = route(&adopted, &delivery, [Verdict::Delivered, Verdict::Delivered]).await;
    settle(&adopted, &[first]).await;
    assert_eq!(adopted.row(id).await["status"], "NEW", "one is still on its way");
    assert_eq!(adopted.import().await.rows, 0);
    settle(&adopted, &[second]).await;
    assert_eq!(adopted.row(id).await["status"], "SENT");
    adopted.clean_up().await;
}

#[tokio::test]
async fn one_dead_member_makes_the_row_dead() {
    let adopted = Adopted::new(REDIVER).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let both = route(&adopted, &delivery, [Verdict::Delivered, dead()]).await;
    settle(&adopted, &both).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["last_error"]),
        (&json!("dead"), &json!("given up"))
    );
    assert_agree(&adopted, Some(4)).await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn one_failed_member_makes_the_row_failed() {
    let adopted = Adopted::new(REDIVER).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let both = route(&adopted, &delivery, [Verdict::Delivered, retry(600)]).await;
    settle(&adopted, &both).await;
    let row = adopted.row(id).await;
    assert_eq!(
        (&row["status"], &row["retry_count"]),
        (&json!("failed"), &json!(1))
    );
    assert_agree(&adopted, Some(4)).await;
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_retried_member_makes_the_row_pending_again() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let both = route(&adopted, &delivery, [Verdict::Delivered, dead()]).await;
    settle(&adopted, &both).await;
    assert_eq!(adopted.row(id).await["status"], "FAILED");
    let retried = adopted
        .outbox
        .store
        .retry(&OPERATOR, &[both[1].id])
        .await
        .expect("retries");
    assert_eq!(retried, [both[1].id]);
    assert_eq!(adopted.row(id).await["status"], "NEW");
    assert_eq!(adopted.import().await.rows, 0, "it is on its way");
    let again = adopted.claim().await;
    assert_eq!(again.len(), 1, "the delivered member is not sent again");
    adopted.settle(&again[0], Verdict::Delivered).await;
    assert_eq!(adopted.row(id).await["status"], "SENT");
    adopted.clean_up().await;
}

/// Ten rounds, each with twenty families whose members end in opposite order in two transactions at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_end_at_once_end_the_row() {
    let adopted = Adopted::new(FAMILY_HUB).await;
    for round in 0..10 {
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(adopted.produce().await);
        }
        adopted.import().await;
        let (mut there, mut back) = (Vec::new(), Vec::new());
        for delivery in adopted.claim().await {
            let [first, second] = route(&adopted, &delivery, [Verdict::Delivered, Verdict::Delivered]).await;
            there.push(first);
            back.push(second);
        }
        assert_eq!(there.len(), 20);
        back.reverse();
        let barrier = tokio::sync::Barrier::new(2);
        let end = async |settlements: &[Settlement]| {
            barrier.wait().await;
            settle(&adopted, settlements).await;
        };
        tokio::join!(end(&there), end(&back));
        for id in ids {
            let row = adopted.row(id).await;
            assert_eq!(
                row["status"],
                json!(1),
                "round {round}, before any importer: {row}"
            );
        }
    }
    assert_agree(&adopted, None).await;
    adopted.clean_up().await;
}

/// A late settlement of a row that got an unknown status meanwhile.
#[tokio::test]
async fn a_member_with_an_unknown_status_is_not_written_back_as_delivered() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    let both = route(&adopted, &delivery, [Verdict::Delivered, Verdict::Delivered]).await;
    adopted
        .outbox
        .execute(&format!(
            "update pillarbox.outbox_events set status = 'PARKED' where id = '{}'",
            both[1].id
        ))
        .await;
    settle(&adopted, &both[..1]).await;
    assert_eq!(adopted.row(id).await["status"], "NEW");
    adopted.clean_up().await;
}
