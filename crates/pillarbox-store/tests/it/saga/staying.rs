//! Messages that a saga does not handle: it changes nothing and loses nothing.

use std::sync::Arc;

use pillarbox::saga::message::{ASK_TYPE, TIMEOUT_TYPE, TOKEN};
use pillarbox::saga::{Answer, Ask, Handled, SagaError, Status, Why};
use pillarbox::{Event, Outbox};
use pillarbox_testkit::OPERATOR;

use super::backends::{Backend, on_every_backend};
use super::{Shop, defined, order, payment, shipping, stock, whole};

on_every_backend!(
    a_saga_that_is_not_there_is_unknown,
    a_message_for_another_saga_is_reported_as_such,
    a_message_that_cannot_be_read_is_refused_for_good,
    a_message_without_its_token_changes_nothing,
    a_reply_to_an_old_attempt_without_its_token_leaves_no_trace,
    a_service_can_neither_forge_a_request_nor_a_timeout,
    every_attempt_and_every_saga_has_tokens_of_its_own,
    a_reply_that_cannot_be_taken_changes_nothing,
    data_of_another_version_is_an_error_that_loses_nothing,
    a_definition_that_lost_a_step_is_refused_and_loses_nothing,
    an_id_that_cannot_be_a_header_is_refused,
);

async fn a_saga_that_is_not_there_is_unknown<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let reply = shop.reply("Charge", Answer::Done).await.header("saga-id", "43");
    assert_eq!(shop.handle(&reply).await, Handled::Unknown);
    let mut tx = backend.begin().await;
    assert_eq!(
        shop.saga.compensate(&mut tx, 43).await.expect("asks"),
        Handled::Unknown
    );
    backend.rollback(tx).await;
    assert_eq!(shop.commands().await, ["Charge 1"]);
}

async fn a_message_for_another_saga_is_reported_as_such<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let command = shop.latest("Charge").await;
    assert_eq!(shop.handle(&command).await, Handled::NotOurs);
    assert_eq!(shop.handle(&Event::new("shop", "orders")).await, Handled::NotOurs);
    let reply = shop
        .reply("Charge", Answer::Done)
        .await
        .header("saga-name", "refund");
    assert_eq!(shop.handle(&reply).await, Handled::NotOurs);
}

async fn a_message_that_cannot_be_read_is_refused_for_good<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let reply = shop
        .reply("Charge", Answer::Done)
        .await
        .header("saga-outcome", "ok");
    let error = shop.try_handle(&reply).await.expect_err("unsound");
    assert!(error.is_final(), "{error}");
    assert!(error.to_string().contains("saga-outcome"), "{error}");
}

async fn a_message_without_its_token_changes_nothing<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    shop.answer("Charge", Answer::Done).await;
    let reply = shop.reply("Reserve", Answer::Done).await;
    let timeout = shop.latest(TIMEOUT_TYPE).await;
    shop.backend
        .operate()
        .ask_saga(&OPERATOR, "order", "42", Ask::Compensate)
        .await
        .expect("asks");
    let request = shop.latest(ASK_TYPE).await;
    let (record, log, events) = (shop.record().await, shop.log().await, shop.events().await.len());
    for message in [&reply, &timeout, &request] {
        let mut without = message.clone();
        without.headers.remove(TOKEN);
        let error = shop.try_handle(&without).await.expect_err("no token");
        assert!(
            error.is_final() && error.to_string().contains("saga-token"),
            "{error}"
        );
        let token = &message.headers[TOKEN];
        let guesses = [
            String::new(),
            token[1..].to_owned(),
            format!("{token}0"),
            "0".repeat(32),
        ];
        for guess in guesses {
            let forged = message.clone().header(TOKEN, guess);
            let error = shop.try_handle(&forged).await.expect_err("a guess");
            assert!(
                matches!(error, SagaError::WrongToken { .. }) && error.is_final(),
                "{error}"
            );
            assert!(!error.to_string().contains(token), "{error}");
        }
        let twice = message.clone().header("Saga-Token", token);
        let error = shop.try_handle(&twice).await.expect_err("two spellings");
        assert!(
            error.is_final() && error.to_string().contains("more than once"),
            "{error}"
        );
    }
    let after = (shop.record().await, shop.log().await, shop.events().await.len());
    assert_eq!(after, (record, log, events));
    assert_eq!(shop.handle(&reply).await, Handled::Moved(Status::Running));
    assert_eq!(shop.handle(&request).await, Handled::Moved(Status::Compensating));
}

/// Otherwise anybody who can publish to the saga's address fills its log.
async fn a_reply_to_an_old_attempt_without_its_token_leaves_no_trace<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let first = shop
        .reply("Charge", Answer::Done)
        .await
        .header("saga-reason", "spam");
    shop.answer("Charge", Answer::Failed).await;
    let second = shop.reply("Charge", Answer::Done).await;
    let forge = async |ended: bool| {
        let (record, log) = (shop.record().await, shop.log().await);
        for token in ["0".repeat(32), second.headers[TOKEN].clone()] {
            let forged = first.clone().header(TOKEN, token);
            let error = shop.try_handle(&forged).await.expect_err("a guess");
            assert!(matches!(error, SagaError::WrongToken { .. }), "{error}");
        }
        assert_eq!(
            (shop.record().await, shop.log().await),
            (record, log),
            "ended: {ended}"
        );
    };
    forge(false).await;
    // A true one is late, and operators see it.
    assert_eq!(shop.handle(&first).await, Handled::Ignored(Why::NotCurrent));
    let line = shop.log().await.pop().expect("is logged");
    assert_eq!(
        (line.what.as_str(), line.detail.as_deref()),
        ("ignored", Some("done: spam"))
    );
    shop.handle(&second).await;
    shop.answer("Reserve", Answer::Refused).await;
    shop.answer("Refund", Answer::Done).await;
    assert_eq!(shop.record().await.status, "compensated");
    forge(true).await;
    assert_eq!(shop.handle(&first).await, Handled::Ignored(Why::Ended));
}

async fn a_service_can_neither_forge_a_request_nor_a_timeout<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let before = shop.record().await;
    let mut echoed = shop.latest("Charge").await;
    echoed.event_type = None;
    for (header, value) in [
        ("saga-ask", "compensate"),
        ("saga-ask", "resume"),
        ("saga-outcome", "timeout"),
    ] {
        let forged = echoed.clone().header(header, value);
        let error = shop.try_handle(&forged).await.expect_err("the attempt's token");
        assert!(matches!(error, SagaError::WrongToken { .. }), "{error}");
    }
    let own = shop.latest(TIMEOUT_TYPE).await.headers[TOKEN].clone();
    let forged = shop.reply("Charge", Answer::Done).await.header(TOKEN, own);
    let error = shop.try_handle(&forged).await.expect_err("the saga's token");
    assert!(matches!(error, SagaError::WrongToken { .. }), "{error}");
    assert_eq!(shop.record().await, before);
}

async fn every_attempt_and_every_saga_has_tokens_of_its_own<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let first = shop.latest("Charge").await;
    let own = shop.latest(TIMEOUT_TYPE).await.headers[TOKEN].clone();
    shop.answer("Charge", Answer::Failed).await;
    let stale = shop
        .reply("Charge", Answer::Done)
        .await
        .header(TOKEN, &first.headers[TOKEN]);
    let error = shop
        .try_handle(&stale)
        .await
        .expect_err("the first attempt's token");
    assert!(matches!(error, SagaError::WrongToken { .. }), "{error}");
    assert_eq!(
        shop.latest(TIMEOUT_TYPE).await.headers[TOKEN],
        own,
        "for the saga's life"
    );

    let mut tx = backend.begin().await;
    shop.saga.start(&mut tx, 43, &order()).await.expect("starts");
    backend.commit(tx).await;
    let timeout = shop.latest(TIMEOUT_TYPE).await;
    assert_ne!(timeout.headers[TOKEN], own);
    let elsewhere = timeout.header("saga-id", "42").header("saga-attempt", "2");
    let error = shop
        .try_handle(&elsewhere)
        .await
        .expect_err("another saga's token");
    assert!(matches!(error, SagaError::WrongToken { .. }), "{error}");
}

async fn a_reply_that_cannot_be_taken_changes_nothing<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let before = shop.record().await;
    let reply = shop.reply("Charge", Answer::Done).await;
    let unsound = reply.clone().json_text("{\"payment\": \"seven\"}");
    let error = shop.try_handle(&unsound).await.expect_err("no number");
    assert!(
        error.is_final() && matches!(error, SagaError::Reply { .. }),
        "{error}"
    );
    assert_eq!(shop.record().await, before);
    assert_eq!(shop.handle(&reply).await, Handled::Moved(Status::Running));
}

async fn data_of_another_version_is_an_error_that_loses_nothing<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let reply = shop.reply("Charge", Answer::Done).await;
    backend
        .run("update pillarbox.sagas set data = '{\"order_no\": 42}'")
        .await;
    let before = shop.record().await;
    let error = shop.try_handle(&reply).await.expect_err("another version");
    assert!(
        !error.is_final() && matches!(error, SagaError::Data { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("the data of the saga order 42"),
        "{error}"
    );
    assert_eq!(shop.record().await, before);
    assert_eq!(shop.commands().await, ["Charge 1"]);

    backend
        .run("update pillarbox.sagas set data = '{\"number\": 42, \"payment\": null}'")
        .await;
    assert_eq!(shop.handle(&reply).await, Handled::Moved(Status::Running));
}

async fn a_definition_that_lost_a_step_is_refused_and_loses_nothing<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    shop.answer("Charge", Answer::Done).await;
    let reply = shop.reply("Reserve", Answer::Done).await;
    let before = shop.record().await;
    for changed in [
        defined().step(payment()).step(shipping()),
        defined().step(stock()).step(payment()),
        defined().step(payment()),
    ] {
        let newer = Shop::with(&*backend, changed);
        let error = newer.try_handle(&reply).await.expect_err("another definition");
        let SagaError::Changed { path, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(path, &["payment", "stock"]);
        assert!(!error.is_final(), "an older version can take it");
        assert_eq!(shop.record().await, before);
    }
    let longer = Shop::with(
        &*backend,
        whole().step(super::Step::new("mail", |_| Event::new("shop", "mails"))),
    );
    assert_eq!(longer.handle(&reply).await, Handled::Moved(Status::Running));
    assert_eq!(
        longer.answer("Ship", Answer::Done).await,
        Handled::Moved(Status::Running),
        "one more to do"
    );
}

async fn an_id_that_cannot_be_a_header_is_refused<P: Backend>(backend: Arc<P>) {
    let shop = Shop::new(&*backend);
    let mut tx = backend.begin().await;
    for id in ["", "a\nb", &"x".repeat(1025)] {
        let error = shop.saga.start(&mut tx, id, &order()).await.expect_err("no id");
        assert!(matches!(error, SagaError::Id(_)), "{error}");
    }
    backend.rollback(tx).await;
}

#[tokio::test]
async fn the_memory_store_says_that_it_keeps_none() {
    let store = pillarbox_store::stores::memory::Memory::default();
    let saga = whole().build(&Outbox::default()).expect("sound");
    let error = saga
        .start(&mut store.begin(), 42, &order())
        .await
        .expect_err("none");
    assert!(
        error.to_string().contains("the memory store keeps no sagas"),
        "{error}"
    );
}
