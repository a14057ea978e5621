//! Consumers see their own marks, and orchestrators their own sagas.

use pillarbox::inbox::Inbox;
use pillarbox::saga::{Saga, SagaError, Step};
use pillarbox::{Event, Outbox};
use pillarbox_store::Operate;
use pillarbox_store::sagas::SagaFilter;
use pillarbox_store::stores::postgres::{Bounds, Duty};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::privileges::bound;
use super::{code, leave};

#[tokio::test]
async fn a_consumer_sees_and_writes_its_own_marks_only() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = bound(&harness, Duty::Consumer, &Bounds::names(["letters"])).await;
    let (any, any_store) = bound(
        &harness,
        Duty::Consumer,
        &Bounds {
            names: None,
            ..Bounds::default()
        },
    )
    .await;
    let inbox = Inbox::in_schema(store.schema()).expect("a sound name");
    let (mut own, mut others) = (
        store.pool().acquire().await.expect("connects"),
        any_store.pool().acquire().await.expect("connects"),
    );
    let id = Uuid::now_v7();
    assert!(inbox.mark(&mut *others, "ledger", id).await.expect("may mark"));
    assert!(inbox.mark(&mut *own, "letters", id).await.expect("may mark"));
    assert!(!inbox.mark(&mut *own, "letters", id).await.expect("is marked"));
    let forged = inbox.mark(&mut *own, "ledger", Uuid::now_v7()).await;
    assert!(forged.expect_err("is denied").to_string().contains("42501"));
    let unmarked = inbox.unmark(&mut *own, "ledger", &[id.into()]).await;
    let denied = unmarked.expect_err("is denied").to_string();
    assert!(
        denied.contains("may not remove marks of the consumer \"ledger\""),
        "{denied}"
    );
    let pruned = inbox.prune(&mut *own, "ledger").await;
    assert!(pruned.expect_err("is denied").to_string().contains("42501"));
    assert!(
        !inbox
            .mark(&mut *others, "ledger", id)
            .await
            .expect("is still marked")
    );
    let seen = "select 1 / (count(*) = 1)::int from pillarbox.inbox";
    assert_eq!(code(&harness, &store, seen).await, None, "it sees one mark");
    let all = "select 1 / (count(*) = 2)::int from pillarbox.inbox";
    assert_eq!(code(&harness, &any_store, all).await, None);
    for beyond in [
        "update pillarbox.inbox set consumer = 'letters'",
        "delete from pillarbox.inbox",
    ] {
        assert_eq!(
            code(&harness, &store, beyond).await.as_deref(),
            Some("42501"),
            "{beyond}"
        );
    }
    drop((own, others));
    leave(&harness, &role, store).await;
    leave(&harness, &any, any_store).await;
    harness.clean_up().await;
}

fn saga(outbox: &Outbox, name: &str) -> Saga<u32> {
    let step = Step::new("payment", |_: &u32| Event::new("shop", "payments"));
    Saga::define(name).step(step).build(outbox).expect("sound")
}

#[tokio::test]
async fn an_orchestrator_sees_and_writes_its_own_sagas_only() {
    let harness = PostgresHarness::direct().await;
    let mut transaction = harness.pool.begin().await.expect("begins");
    let foreign = saga(&harness.outbox(), "refund");
    foreign.start(&mut transaction, 1, &1).await.expect("may start");
    transaction.commit().await.expect("commits");

    let (role, store) = bound(&harness, Duty::Orchestrator, &Bounds::names(["order"])).await;
    let bounds = Bounds::namespaces(["shop", "sagas"]);
    let granted = harness
        .store
        .grant(&OPERATOR, Duty::Producer, &bounds, &role, false)
        .await;
    granted.expect("grants");
    let outbox = harness.outbox().by_function();
    let mut transaction = store.pool().begin().await.expect("begins");
    let own = saga(&outbox, "order");
    own.start(&mut transaction, 1, &1)
        .await
        .expect("may start, and log");
    own.compensate(&mut transaction, 1)
        .await
        .expect("may go on, and log");
    transaction.commit().await.expect("commits");

    let mut transaction = store.pool().begin().await.expect("begins");
    let foreign = saga(&outbox, "refund");
    let denied = foreign
        .start(&mut transaction, 2, &1)
        .await
        .expect_err("is denied");
    assert!(
        matches!(&denied, SagaError::Store(_)) && denied.to_string().contains("42501"),
        "{denied}"
    );
    transaction.rollback().await.expect("rolls back");

    for (statement, expected) in [
        ("select 1 / (count(*) = 1)::int from pillarbox.sagas", None),
        ("select 1 / (count(*) > 0)::int from pillarbox.saga_log", None),
        (
            "select 1 / (count(*) = 0)::int from pillarbox.saga_log l where not exists (select from pillarbox.sagas where seq = l.saga)",
            None,
        ),
        (
            "update pillarbox.sagas set name = 'refund' where name = 'order'",
            Some("42501"),
        ),
        ("delete from pillarbox.sagas", Some("42501")),
        ("update pillarbox.sagas set namespace = 'billing'", Some("42501")),
        ("update pillarbox.sagas set own_token = 'mine'", Some("42501")),
        (
            "insert into pillarbox.sagas (name, id, namespace, topic, status, path, attempt, tries, data, attempt_secret, own_token)
             values ('order', '9', 'billing', 't', 'running', '[]', 1, 0, '{}', 's', 's')",
            Some("42501"),
        ),
        // A number that is drawn later would belong to another saga's log already.
        (
            "insert into pillarbox.sagas (seq, name, id, namespace, topic, status, path, attempt, tries, data, attempt_secret, own_token)
             overriding system value values (99, 'order', '9', 'n', 't', 'running', '[]', 1, 0, '{}', 's', 's')",
            Some("42501"),
        ),
        ("lock table pillarbox.sagas in access exclusive mode", Some("42501")),
        ("lock table pillarbox.saga_log in access exclusive mode", Some("42501")),
        (
            "insert into pillarbox.saga_log (saga, what) select seq, 'forged' from generate_series(1, 2) as seq",
            Some("42501"),
        ),
    ] {
        assert_eq!(
            code(&harness, &store, statement).await.as_deref(),
            expected,
            "{statement}"
        );
    }
    // An operator's request would be sent there, with the operator's rights.
    let step = Step::new("payment", |_: &u32| Event::new("shop", "payments"));
    let aimed = Saga::define("order").address("billing", "invoices").step(step);
    let aimed = aimed.build(&outbox).expect("sound");
    let mut transaction = store.pool().begin().await.expect("begins");
    let denied = aimed.start(&mut transaction, 3, &1).await.expect_err("is denied");
    assert!(
        denied.to_string().contains("own_address") && denied.to_string().contains("may enqueue"),
        "{denied}"
    );
    transaction.rollback().await.expect("rolls back");
    let before = harness.store.sagas(&OPERATOR, &SagaFilter::default()).await;
    assert_eq!(before.expect("lists").len(), 2, "the owner sees both");
    leave(&harness, &role, store).await;
    harness.clean_up().await;
}
