//! What operators see of sagas, and what they request.

use std::sync::Arc;

use pillarbox::saga::message::ASK_TYPE;
use pillarbox::saga::{Action, Answer, Ask, AskResult, Handled, Status, Why};
use pillarbox_store::audit::AuditFilter;
use pillarbox_store::sagas::SagaFilter;
use pillarbox_testkit::{OPERATOR, operator_of};
use uuid::Uuid;

use super::backends::{Backend, on_every_backend};
use super::{Shop, assert_about, attempt, order};

on_every_backend!(
    a_request_is_a_message_to_the_saga_and_a_line_in_its_log,
    resuming_sends_the_command_again_once,
    compensating_also_undoes_ambiguous_steps,
    an_impossible_request_is_rejected,
    sagas_are_listed_by_status_name_and_id_the_latest_first,
    an_actor_of_a_tenant_sees_no_saga,
    a_request_has_its_line_in_the_audit,
);

impl<P: Backend> Shop<'_, P> {
    async fn ask(&self, ask: Ask) -> AskResult {
        self.backend
            .operate()
            .ask_saga(&OPERATOR, "order", "42", ask)
            .await
            .expect("asks")
    }
}

async fn a_request_is_a_message_to_the_saga_and_a_line_in_its_log<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let before = shop.record().await;
    let asked = shop.ask(Ask::Resume).await;
    let message = shop.latest(ASK_TYPE).await;
    assert_eq!(asked, AskResult::Enqueued(message.id));
    assert_eq!(
        (message.namespace.as_str(), message.topic.as_str()),
        ("shop", "order-saga")
    );
    assert_about(&message, &attempt("payment", Action::Command, 1));
    assert_eq!(
        shop.record().await,
        before,
        "nothing happens until the application gets it"
    );
    let last = shop.log().await.pop().expect("a line");
    assert_eq!(
        (last.what.as_str(), last.detail.as_deref()),
        ("asked", Some("resume"))
    );
}

async fn resuming_sends_the_command_again_once<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    shop.ask(Ask::Resume).await;
    let message = shop.latest(ASK_TYPE).await;
    assert_eq!(shop.handle(&message).await, Handled::Moved(Status::Running));
    assert_eq!(shop.latest("Charge").await.deliver_at, None, "now");
    assert_eq!(
        shop.handle(&message).await,
        Handled::Ignored(Why::NotCurrent),
        "it comes twice"
    );
    assert_eq!(shop.commands().await, ["Charge 1", "Charge 2"]);
    assert_eq!(
        shop.answer("Charge", Answer::Done).await,
        Handled::Moved(Status::Running)
    );
}

async fn compensating_also_undoes_ambiguous_steps<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    shop.answer("Charge", Answer::Done).await;
    shop.ask(Ask::Compensate).await;
    let message = shop.latest(ASK_TYPE).await;
    assert_eq!(shop.handle(&message).await, Handled::Moved(Status::Compensating));
    assert_eq!(shop.handle(&message).await, Handled::Ignored(Why::Compensating));
    shop.answer("Release", Answer::Refused).await;
    assert_eq!(
        shop.latest("Release").await.headers["saga-attempt"],
        "2",
        "it is tried for ever"
    );
    shop.ask(Ask::Resume).await;
    shop.handle(&shop.latest(ASK_TYPE).await).await;
    assert_eq!(
        shop.answer("Release", Answer::Done).await,
        Handled::Moved(Status::Compensating)
    );
    assert_eq!(
        shop.answer("Refund", Answer::Done).await,
        Handled::Moved(Status::Compensated)
    );
    assert_eq!(shop.handle(&message).await, Handled::Ignored(Why::Ended));
}

async fn an_impossible_request_is_rejected<P: Backend>(backend: Arc<P>) {
    let shop = Shop::new(&*backend);
    assert_eq!(shop.ask(Ask::Resume).await, AskResult::NotFound);
    shop.start().await;
    shop.answer("Charge", Answer::Refused).await;
    let (log, events) = (shop.log().await, shop.events().await.len());
    for ask in [Ask::Resume, Ask::Compensate] {
        assert_eq!(shop.ask(ask).await, AskResult::NoEffect(Status::Compensated));
    }
    assert_eq!((shop.log().await, shop.events().await.len()), (log, events));
}

async fn sagas_are_listed_by_status_name_and_id_the_latest_first<P: Backend>(backend: Arc<P>) {
    let shop = Shop::new(&*backend);
    let refund = pillarbox::saga::Saga::define("refund").step(super::payment());
    let refund = refund.build(&backend.outbox()).expect("sound");
    let mut tx = backend.begin().await;
    for id in [41, 42, 43] {
        shop.saga.start(&mut tx, id, &order()).await.expect("starts");
    }
    refund.start(&mut tx, 42, &order()).await.expect("starts");
    shop.saga.compensate(&mut tx, 41).await.expect("gives up");
    backend.commit(tx).await;
    let operate = backend.operate();
    let list = async |filter: SagaFilter| -> Vec<String> {
        let sagas = operate.sagas(&OPERATOR, &filter).await.expect("lists");
        sagas
            .iter()
            .map(|saga| format!("{} {}", saga.name, saga.id))
            .collect()
    };
    let all = SagaFilter::default();
    assert_eq!(
        list(all.clone()).await,
        ["refund 42", "order 43", "order 42", "order 41"]
    );
    let by_status = |status| SagaFilter {
        status: Some(status),
        ..SagaFilter::default()
    };
    assert_eq!(list(by_status(Status::Compensating)).await, ["order 41"]);
    assert_eq!(list(by_status(Status::Completed)).await, Vec::<String>::new());
    let by_id = SagaFilter {
        id: Some("42".to_owned()),
        ..SagaFilter::default()
    };
    assert_eq!(list(by_id).await, ["refund 42", "order 42"]);
    let page = SagaFilter {
        name: Some("order".to_owned()),
        limit: 2,
        ..SagaFilter::default()
    };
    assert_eq!(list(page.clone()).await, ["order 43", "order 42"]);
    let last = operate
        .sagas(&OPERATOR, &page)
        .await
        .expect("lists")
        .pop()
        .expect("the last");
    let next = SagaFilter {
        before: Some(last.seq),
        ..page
    };
    assert_eq!(list(next).await, ["order 41"]);
    assert_eq!(last.data, None, "a list does not say what they know");
}

/// A saga has no tenant.
async fn an_actor_of_a_tenant_sees_no_saga<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let (operate, actor) = (backend.operate(), operator_of(Uuid::new_v4()));
    let (log, events) = (shop.log().await, shop.events().await.len());
    assert!(
        !operate
            .sagas(&OPERATOR, &SagaFilter::default())
            .await
            .expect("lists")
            .is_empty()
    );
    assert_eq!(
        operate
            .sagas(&actor, &SagaFilter::default())
            .await
            .expect("lists"),
        []
    );
    assert_eq!(operate.saga(&actor, "order", "42").await.expect("reads"), None);
    assert_eq!(operate.saga_log(&actor, "order", "42").await.expect("reads"), []);
    for ask in [Ask::Resume, Ask::Compensate] {
        let asked = operate.ask_saga(&actor, "order", "42", ask).await;
        assert_eq!(asked.expect("asks"), AskResult::NotFound);
    }
    assert_eq!((shop.log().await, shop.events().await.len()), (log, events));
}

async fn a_request_has_its_line_in_the_audit<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let AskResult::Enqueued(event) = shop.ask(Ask::Compensate).await else {
        panic!("a request");
    };
    let filter = AuditFilter {
        object: Some("order 42".to_owned()),
        ..AuditFilter::default()
    };
    let lines = backend.operate().audit(&OPERATOR, &filter).await.expect("lines");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].action, "sagas.compensate");
    assert_eq!(lines[0].after, Some(serde_json::json!({ "event": event })));
}
