//! Sagas on the command line: an application starts them, an operator lists them and makes requests.

use pillarbox::saga::{Answer, Command, Handled, Message, Saga, Status, Step};
use pillarbox::{Event, Outbox};
use serde_json::Value;
use sqlx::Connection as _;

use crate::fixture::{Fixture, on_both_stores, postgres_url};

on_both_stores!(
    sagas_are_listed_by_status_and_name_page_by_page,
    a_saga_is_shown_with_what_it_knows_and_its_log,
    a_saga_is_asked_by_a_message_to_itself_and_does_it,
    an_id_that_two_kinds_have_needs_a_name,
    an_impossible_request_has_an_error,
);

fn saga(name: &str, outbox: &Outbox) -> Saga<u32> {
    let payment = Step::new("payment", |order: &u32| charge("Charge", *order))
        .compensation(|order: &u32| charge("Refund", *order));
    Saga::define(name)
        .address("shop", "sagas")
        .step(payment)
        .build(outbox)
        .unwrap()
}

fn charge(event_type: &str, order: u32) -> Event {
    Event::new("shop", "payments")
        .event_type(event_type)
        .json(&order)
        .unwrap()
}

/// The application: runs this in a transaction of its own, on whichever database the fixture has.
macro_rules! application {
    ($fixture:expr, |$outbox:ident, $tx:ident| $work:expr) => {{
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            if $fixture.is_postgres() {
                let $outbox = Outbox::in_schema($fixture.schema()).unwrap();
                let mut connection = sqlx::PgConnection::connect(&postgres_url()).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                let $tx = &mut *transaction;
                let done = $work;
                transaction.commit().await.unwrap();
                done
            } else {
                let $outbox = Outbox::default();
                let path = $fixture.path().join("outbox.db");
                let options = pillarbox_store::stores::sqlite::connect_options(
                    &path.to_string_lossy(),
                    &pillarbox_store::stores::sqlite::Options::default(),
                );
                let mut connection = sqlx::SqliteConnection::connect_with(&options.unwrap())
                    .await
                    .unwrap();
                let mut transaction = pillarbox::sqlite::begin_on(&mut connection).await.unwrap();
                let $tx = &mut *transaction;
                let done = $work;
                transaction.commit().await.unwrap();
                done
            }
        })
    }};
}

fn start(fixture: &Fixture, name: &str, id: &str) {
    application!(fixture, |outbox, tx| {
        saga(name, &outbox).start(tx, id, &7).await.unwrap();
    });
}

fn give_up(fixture: &Fixture, id: &str) {
    application!(fixture, |outbox, tx| {
        saga("order", &outbox).compensate(tx, id).await.unwrap();
    });
}

/// Gives the saga its latest message, and what a service answers to the latest command.
fn consume(fixture: &Fixture, event_type: &str, answer: Option<Answer>) -> Handled {
    application!(fixture, |outbox, tx| {
        let events = outbox.enqueued(tx).await.unwrap();
        let is_it = |event: &Event| event.event_type.as_deref() == Some(event_type);
        let message = events.into_iter().rfind(is_it).expect("it was enqueued");
        let message = match answer {
            Some(answer) => {
                let command = Command::read(&Message::from(&message)).expect("a command");
                command.reply(answer, Event::new("payments", "replies"))
            }
            None => message,
        };
        saga("order", &outbox)
            .handle(tx, &Message::from(&message))
            .await
            .unwrap()
    })
}

fn new_place(new: fn(&str) -> Fixture) -> Fixture {
    let fixture = new("[[destination]]\nname = \"log\"\ntype = \"log\"\n");
    fixture.run(&["migrate"]).success();
    fixture
}

fn ids(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|saga| saga["id"].as_str().unwrap()).collect()
}

fn sagas_are_listed_by_status_and_name_page_by_page(new: fn(&str) -> Fixture) {
    let fixture = new_place(new);
    assert_eq!(fixture.run(&["sagas", "ls"]).success(), "no sagas\n");
    for (name, id) in [("order", "1"), ("order", "2"), ("refund", "3")] {
        start(&fixture, name, id);
    }
    give_up(&fixture, "1");
    assert_eq!(ids(&fixture.json(&["sagas", "ls"])), ["3", "2", "1"]);
    assert_eq!(
        ids(&fixture.json(&["sagas", "ls", "--status", "compensating"])),
        ["1"]
    );
    assert_eq!(
        ids(&fixture.json(&["sagas", "ls", "--name", "order"])),
        ["2", "1"]
    );
    let page = fixture.json(&["sagas", "ls", "--limit", "2"]);
    let last = page[1]["seq"].to_string();
    let table = fixture.run(&["sagas", "ls", "--limit", "2"]).success();
    assert!(
        table.contains("WAITS UNTIL") && table.contains("payment"),
        "{table}"
    );
    assert!(
        table.contains(&format!("(there may be more: use --before {last})")),
        "{table}"
    );
    assert_eq!(ids(&fixture.json(&["sagas", "ls", "--before", &last])), ["1"]);
    fixture.run(&["sagas", "ls", "--status", "paused"]).failure(2);
}

fn a_saga_is_shown_with_what_it_knows_and_its_log(new: fn(&str) -> Fixture) {
    let fixture = new_place(new);
    start(&fixture, "order", "1");
    let shown = fixture.run(&["sagas", "show", "1"]).success();
    for part in [
        "status          running",
        "step            payment",
        "data:\n  7",
        "started",
        "sent",
        "shop / sagas",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = &fixture.json(&["sagas", "show", "1"])[0];
    assert_eq!(
        (&shown["data"], &shown["log"][1]["what"]),
        (&7.into(), &"sent".into())
    );
    let error = fixture.run(&["sagas", "show", "2"]).failure(1);
    assert!(error.contains("no saga has the id `2`"), "{error}");
}

fn a_saga_is_asked_by_a_message_to_itself_and_does_it(new: fn(&str) -> Fixture) {
    let fixture = new_place(new);
    start(&fixture, "order", "1");
    let said = fixture.run(&["sagas", "resume", "1"]).success();
    assert!(
        said.starts_with("order 1: requested to resume by event "),
        "{said}"
    );
    assert_eq!(
        fixture.json(&["sagas", "show", "1"])[0]["attempt"],
        1,
        "not before the application gets it"
    );
    assert_eq!(
        consume(&fixture, "SagaAsk", None),
        Handled::Moved(Status::Running)
    );
    assert_eq!(fixture.json(&["sagas", "show", "1"])[0]["attempt"], 2);

    let asked = &fixture.json(&["sagas", "compensate", "1", "--name", "order"])[0];
    let event = fixture.json(&["events", "show", asked["event"].as_str().unwrap()]);
    assert_eq!(
        (&event[0]["namespace"], &event[0]["topic"]),
        (&"shop".into(), &"sagas".into())
    );
    assert_eq!(
        consume(&fixture, "SagaAsk", None),
        Handled::Moved(Status::Compensating)
    );
    let shown = fixture.run(&["sagas", "show", "1"]).success();
    assert!(shown.contains("to undo         payment"), "{shown}");
    assert_eq!(
        consume(&fixture, "Refund", Some(Answer::Done)),
        Handled::Moved(Status::Compensated)
    );
}

fn an_id_that_two_kinds_have_needs_a_name(new: fn(&str) -> Fixture) {
    let fixture = new_place(new);
    start(&fixture, "order", "1");
    start(&fixture, "refund", "1");
    let error = fixture.run(&["sagas", "compensate", "1"]).failure(2);
    assert!(error.contains("choose one with --name: refund, order"), "{error}");
    fixture
        .run(&["sagas", "compensate", "1", "--name", "refund"])
        .success();
    let error = fixture
        .run(&["sagas", "show", "1", "--name", "return"])
        .failure(1);
    assert!(error.contains("no saga `return` has the id `1`"), "{error}");
}

fn an_impossible_request_has_an_error(new: fn(&str) -> Fixture) {
    let fixture = new_place(new);
    start(&fixture, "order", "1");
    give_up(&fixture, "1");
    let error = fixture.run(&["sagas", "compensate", "1"]).failure(1);
    assert!(error.contains("is being compensated already"), "{error}");
    assert_eq!(
        consume(&fixture, "Refund", Some(Answer::Done)),
        Handled::Moved(Status::Compensated)
    );
    let error = fixture.run(&["sagas", "resume", "1"]).failure(1);
    assert!(error.contains("saga order 1 is compensated"), "{error}");
}
