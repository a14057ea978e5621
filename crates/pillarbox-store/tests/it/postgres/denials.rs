//! A missing permission: what the error says, and what mends it.

use pillarbox::{Event, StoreError};
use pillarbox_store::store::Settlement;
use pillarbox_store::stores::postgres::{Bounds, Duty};
use pillarbox_store::{Store, Verdict};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;

use super::harness::PostgresHarness;
use super::privileges::{drop_role, on_duty};
use super::producer::request;

fn text(refused: Result<(), StoreError>) -> String {
    match refused {
        Err(StoreError::Denied(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// The statement or command after `run: `.
fn remedy(text: &str) -> &str {
    let (_, rest) = text.split_once("run: ").expect("a remedy");
    rest.trim_end_matches(')')
}

#[tokio::test]
async fn a_dispatcher_lacks_what_an_earlier_grant_did_not_have() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    let command = format!("pillarbox grant dispatcher {role} --schema {}", store.schema());
    for (revoked, lacks) in [
        (
            "revoke insert (reason) on pillarbox.audit from ROLE",
            "insert (reason) on audit",
        ),
        (
            "revoke delete on pillarbox.workers from ROLE",
            "delete on workers",
        ),
        (
            "revoke delete on pillarbox.outbox_events from ROLE",
            "delete on outbox_events",
        ),
        (
            "revoke execute on function pillarbox.prune_sagas from ROLE",
            "execute on prune_sagas",
        ),
        (
            "revoke select on sequence pillarbox.outbox_seq from ROLE",
            "select on outbox_seq",
        ),
        (
            "revoke execute on procedure pillarbox.wait from ROLE",
            "execute on wait",
        ),
        (
            "revoke usage on schema pillarbox from ROLE",
            "usage on the schema",
        ),
    ] {
        let revoked = revoked
            .replace("schema pillarbox", &format!("schema {}", store.schema()))
            .replace("ROLE", &role);
        harness.execute(&revoked).await;
        let text = text(store.check_dispatcher().await);
        assert!(text.contains(&format!(": {lacks} (")), "{lacks}: {text}");
        assert_eq!(remedy(&text), command);
        let owner = &harness.store;
        owner
            .grant(&OPERATOR, Duty::Dispatcher, &Bounds::default(), &role, false)
            .await
            .expect("grants");
        store.check_dispatcher().await.expect("has its duty");
    }
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_refused_statement_names_the_role_and_what_it_lacks() {
    let harness = PostgresHarness::direct().await;
    harness
        .enqueue(&[Event::new("shop", "orders")])
        .await
        .expect("enqueues");
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    let request = request(10);
    let claimed = store.claim(&request).await.expect("may claim");
    let delete = Settlement {
        id: claimed[0].id,
        claim: request.claim,
        verdict: Verdict::Delete,
        destination: None,
        max_attempts: None,
        unordered: false,
        keep: true,
    };
    harness
        .execute(&format!("revoke delete on pillarbox.outbox_events from {role}"))
        .await;
    let refused = store.settle(request.worker, &[delete]).await.map(drop);
    let expected =
        format!("permission denied for table outbox_events (42501): role \"{role}\" lacks delete there");
    assert_eq!(text(refused), expected);
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}
