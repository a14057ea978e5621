//! How a saga continues, and what its transactions contain.

use std::sync::Arc;

use pillarbox::saga::message::{OUTCOME, TIMEOUT_TYPE};
use pillarbox::saga::{Action, Answer, Handled, Started, Status, Why};
use pillarbox::{Event, Payload};
use pillarbox_testkit::OPERATOR;

use super::backends::{Backend, on_every_backend};
use super::{Shop, assert_about, attempt, order};

on_every_backend!(
    a_saga_begins_with_its_row_its_log_its_command_and_its_timeout,
    starting_twice_does_nothing_the_second_time,
    a_rolled_back_event_does_not_exist,
    replies_lead_it_to_its_end_and_what_they_say_is_known_to_the_next_command,
    a_refused_step_undoes_what_was_done_in_reverse,
    a_message_that_comes_twice_changes_nothing,
    a_timeout_sends_the_command_again_later_and_then_gives_up,
    a_timeout_of_a_step_that_is_over_changes_nothing,
    two_replies_at_once_are_taken_one_after_the_other,
    a_reply_without_headers_is_taken_too,
);

async fn a_saga_begins_with_its_row_its_log_its_command_and_its_timeout<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let events = shop.events().await;
    assert_eq!(events.len(), 2, "{events:?}");
    let (command, timeout) = (&events[0], &events[1]);
    let first = attempt("payment", Action::Command, 1);
    assert_about(command, &first);
    assert_eq!((command.topic.as_str(), command.deliver_at), ("payments", None));
    assert_eq!(command.ordering_key.as_deref(), Some("order-42"));
    assert_eq!(
        command.dedupe_key, None,
        "a second try must not be taken for the first"
    );
    assert_about(timeout, &first);
    assert_eq!(
        (timeout.namespace.as_str(), timeout.topic.as_str()),
        ("shop", "order-saga")
    );
    assert_eq!(timeout.event_type.as_deref(), Some(TIMEOUT_TYPE));
    assert_eq!(timeout.headers[OUTCOME], "timeout");

    let record = shop.record().await;
    assert_eq!(
        (record.status.as_str(), record.step.as_deref()),
        ("running", Some("payment"))
    );
    assert_eq!(record.data, Some(serde_json::json!(order())));
    let (due, waits) = (
        timeout.deliver_at.expect("later"),
        record.timeout_at.expect("waits"),
    );
    assert!(
        (due - waits).abs() < time::Duration::milliseconds(2),
        "{due} {waits}"
    );
    assert_eq!(shop.story().await, ["started", "sent payment"]);
}

async fn starting_twice_does_nothing_the_second_time<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    assert_eq!(shop.start().await, Started::Duplicate);
    shop.answer("Charge", Answer::Done).await;
    assert_eq!(shop.start().await, Started::Duplicate);
    assert_eq!(shop.commands().await, ["Charge 1", "Reserve 1"]);
    assert_eq!(shop.record().await.step.as_deref(), Some("stock"));
}

async fn a_rolled_back_event_does_not_exist<P: Backend>(backend: Arc<P>) {
    let shop = Shop::new(&*backend);
    let mut tx = backend.begin().await;
    shop.saga.start(&mut tx, 42, &order()).await.expect("starts");
    backend.rollback(tx).await;
    assert_eq!(
        backend
            .operate()
            .saga(&OPERATOR, "order", "42")
            .await
            .expect("it reads"),
        None
    );
    assert_eq!(shop.events().await, Vec::<Event>::new());

    assert_eq!(shop.start().await, Started::New);
    let reply = shop.reply("Charge", Answer::Done).await;
    let mut tx = backend.begin().await;
    let handled = shop.saga.handle(&mut tx, &(&reply).into()).await.expect("taken");
    assert_eq!(handled, Handled::Moved(Status::Running));
    backend.rollback(tx).await;
    assert_eq!(shop.record().await.step.as_deref(), Some("payment"));
    assert_eq!(shop.commands().await, ["Charge 1"]);
    assert_eq!(
        shop.handle(&reply).await,
        Handled::Moved(Status::Running),
        "it comes again"
    );
}

async fn replies_lead_it_to_its_end_and_what_they_say_is_known_to_the_next_command<P: Backend>(
    backend: Arc<P>,
) {
    let shop = Shop::open(&*backend).await;
    for (command, ends_in) in [
        ("Charge", Status::Running),
        ("Reserve", Status::Running),
        ("Ship", Status::Completed),
    ] {
        assert_eq!(shop.answer(command, Answer::Done).await, Handled::Moved(ends_in));
    }
    let reserve = shop.latest("Reserve").await;
    let Payload::Json(text) = &reserve.payload else {
        panic!("JSON");
    };
    let said: serde_json::Value = serde_json::from_slice(text).expect("JSON");
    assert_eq!(said, serde_json::json!({"order": 42, "payment": 7}));
    let record = shop.record().await;
    assert_eq!(
        (record.status.as_str(), record.step, record.timeout_at),
        ("completed", None, None)
    );
    assert_eq!(record.data.expect("it knows")["payment"], 7);
    assert_eq!(
        shop.story().await,
        [
            "started",
            "sent payment",
            "done payment",
            "sent stock",
            "done stock",
            "sent shipping",
            "done shipping",
            "completed"
        ]
    );
}

async fn a_refused_step_undoes_what_was_done_in_reverse<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    shop.answer("Charge", Answer::Done).await;
    shop.answer("Reserve", Answer::Done).await;
    let refused = shop
        .reply("Ship", Answer::Refused)
        .await
        .header("saga-reason", "no such street");
    assert_eq!(shop.handle(&refused).await, Handled::Moved(Status::Compensating));
    let record = shop.record().await;
    let error = record.last_error.expect("it says why");
    assert_eq!(error, "command shipping, attempt 1: refused: no such street");
    assert_eq!(
        shop.answer("Release", Answer::Done).await,
        Handled::Moved(Status::Compensating)
    );
    assert_eq!(
        shop.answer("Refund", Answer::Done).await,
        Handled::Moved(Status::Compensated)
    );
    assert_eq!(
        shop.commands().await,
        ["Charge 1", "Reserve 1", "Ship 1", "Release 1", "Refund 1"]
    );
    let story = shop.story().await;
    let end = [
        "refused shipping",
        "compensating shipping",
        "sent undo stock",
        "done undo stock",
        "sent undo payment",
        "done undo payment",
        "compensated",
    ];
    assert_eq!(story[story.len() - end.len()..], end);
}

async fn a_message_that_comes_twice_changes_nothing<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let mut said = Vec::new();
    for (command, answer) in [
        ("Charge", Answer::Done),
        ("Reserve", Answer::Failed),
        ("Reserve", Answer::Refused),
        ("Refund", Answer::Done),
    ] {
        said.push(shop.reply(command, answer).await);
        shop.handle(said.last().expect("just said")).await;
        let (record, events) = (shop.record().await, shop.events().await.len());
        for again in &said {
            let handled = shop.handle(again).await;
            assert!(
                matches!(handled, Handled::Ignored(Why::NotCurrent | Why::Ended)),
                "{handled:?}"
            );
        }
        assert_eq!(shop.record().await, record);
        assert_eq!(shop.events().await.len(), events);
    }
    assert_eq!(shop.record().await.status, "compensated");
    let log = shop.log().await;
    let ignored = log.iter().filter(|line| line.what == "ignored");
    assert_eq!(ignored.count(), 1 + 2 + 3 + 4, "each is in the log");
}

async fn a_timeout_sends_the_command_again_later_and_then_gives_up<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    shop.answer("Charge", Answer::Done).await;
    let late = shop.reply("Reserve", Answer::Done).await;
    let timeout = shop.latest(TIMEOUT_TYPE).await;
    assert_eq!(shop.handle(&timeout).await, Handled::Moved(Status::Running));
    let again = shop.latest("Reserve").await;
    assert_about(&again, &attempt("stock", Action::Command, 2));
    assert_eq!(
        again.ordering_key, None,
        "what waits must not hold up others of its key"
    );
    let second = shop.latest(TIMEOUT_TYPE).await;
    let (due, waits) = (
        again.deliver_at.expect("later"),
        second.deliver_at.expect("later"),
    );
    assert_eq!(
        (waits - due).whole_seconds(),
        60,
        "the timeout counts from the try"
    );

    assert_eq!(shop.handle(&late).await, Handled::Ignored(Why::NotCurrent));
    assert_eq!(shop.handle(&second).await, Handled::Moved(Status::Compensating));
    assert_eq!(
        shop.record().await.step.as_deref(),
        Some("stock"),
        "its end is in doubt, so it is undone too"
    );
    let error = shop.record().await.last_error;
    assert_eq!(
        error.as_deref(),
        Some("command stock, attempt 2: no answer in time")
    );
    shop.answer("Release", Answer::Done).await;
    assert_eq!(
        shop.answer("Refund", Answer::Done).await,
        Handled::Moved(Status::Compensated)
    );
}

async fn a_timeout_of_a_step_that_is_over_changes_nothing<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let timeout = shop.latest(TIMEOUT_TYPE).await;
    shop.answer("Charge", Answer::Done).await;
    let (record, log) = (shop.record().await, shop.log().await);
    assert_eq!(shop.handle(&timeout).await, Handled::Ignored(Why::NotCurrent));
    assert_eq!(
        (shop.record().await, shop.log().await),
        (record, log),
        "and is not worth a line"
    );
}

async fn two_replies_at_once_are_taken_one_after_the_other<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let reply = shop.reply("Charge", Answer::Done).await;
    let mut first = backend.begin().await;
    let handled = shop
        .saga
        .handle(&mut first, &(&reply).into())
        .await
        .expect("taken");
    assert_eq!(handled, Handled::Moved(Status::Running));
    let (saga, same_backend, same) = (shop.saga.clone(), backend.clone(), reply.clone());
    let rival = tokio::spawn(async move {
        let mut second = same_backend.begin().await;
        let handled = saga.handle(&mut second, &(&same).into()).await.expect("taken");
        same_backend.commit(second).await;
        handled
    });
    tokio::task::yield_now().await;
    backend.commit(first).await;
    assert_eq!(rival.await.expect("no panic"), Handled::Ignored(Why::NotCurrent));
    assert_eq!(shop.commands().await, ["Charge 1", "Reserve 1"]);
}

async fn a_reply_without_headers_is_taken_too<P: Backend>(backend: Arc<P>) {
    let shop = Shop::open(&*backend).await;
    let charge = shop.latest("Charge").await;
    let token = |text: &str| pillarbox::saga::Token::new(text);
    let mut tx = backend.begin().await;
    let reply = pillarbox::saga::Reply {
        to: attempt("payment", Action::Command, 1),
        token: token(&charge.headers["saga-token"]),
        answer: Answer::Done,
        reason: None,
        payload: br#"{"payment": 9}"#,
    };
    let mut forged = reply.clone();
    forged.token = token("guessed");
    let error = shop.saga.reply(&mut tx, 42, forged).await.expect_err("forged");
    assert!(
        matches!(error, pillarbox::saga::SagaError::WrongToken { .. }),
        "{error}"
    );
    let handled = shop.saga.reply(&mut tx, 42, reply).await.expect("taken");
    assert_eq!(handled, Handled::Moved(Status::Running));
    let stock = attempt("stock", Action::Command, 1);
    let handled = shop.saga.timeout(&mut tx, 42, stock).await.expect("taken");
    assert_eq!(handled, Handled::Moved(Status::Running));
    let handled = shop.saga.compensate(&mut tx, 42).await.expect("taken");
    assert_eq!(handled, Handled::Moved(Status::Compensating));
    backend.commit(tx).await;
    assert_eq!(
        shop.commands().await,
        ["Charge 1", "Reserve 1", "Reserve 2", "Release 1"]
    );
}
