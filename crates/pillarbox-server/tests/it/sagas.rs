//! Sagas as a person sees them: started by an application, looked at and asked by the command line.

use pillarbox::saga::{Answer, Command, Handled, Message, Saga, Status, Step};
use pillarbox::{Event, Outbox};
use serde_json::Value;
use sqlx::Connection as _;

use crate::place::{Place, on_both_stores, url};

on_both_stores!(
    sagas_are_listed_by_status_and_name_page_by_page,
    a_saga_is_shown_with_what_it_knows_and_its_log,
    a_saga_is_asked_by_a_message_to_itself_and_does_it,
    an_id_that_two_kinds_have_needs_a_name,
    what_cannot_be_asked_says_why,
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

/// The application: runs this in a transaction of its own, on whichever database the place has.
macro_rules! application {
    ($place:expr, |$outbox:ident, $tx:ident| $work:expr) => {{
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            if $place.is_postgres() {
                let $outbox = Outbox::in_schema($place.schema()).unwrap();
                let mut connection = sqlx::PgConnection::connect(&url()).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                let $tx = &mut *transaction;
                let done = $work;
                transaction.commit().await.unwrap();
                done
            } else {
                let $outbox = Outbox::default();
                let path = $place.path().join("outbox.db");
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

fn start(place: &Place, name: &str, id: &str) {
    application!(place, |outbox, tx| {
        saga(name, &outbox).start(tx, id, &7).await.unwrap();
    });
}

fn give_up(place: &Place, id: &str) {
    application!(place, |outbox, tx| {
        saga("order", &outbox).compensate(tx, id).await.unwrap();
    });
}

/// Gives the saga its latest message, and what a service answers to the latest command.
fn consume(place: &Place, event_type: &str, answer: Option<Answer>) -> Handled {
    application!(place, |outbox, tx| {
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

fn new_place(new: fn(&str) -> Place) -> Place {
    let place = new("[[destination]]\nname = \"log\"\ntype = \"log\"\n");
    place.run(&["migrate"]).good();
    place
}

fn ids(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|saga| saga["id"].as_str().unwrap()).collect()
}

fn sagas_are_listed_by_status_and_name_page_by_page(new: fn(&str) -> Place) {
    let place = new_place(new);
    assert_eq!(place.run(&["sagas", "ls"]).good(), "no sagas\n");
    for (name, id) in [("order", "1"), ("order", "2"), ("refund", "3")] {
        start(&place, name, id);
    }
    give_up(&place, "1");
    assert_eq!(ids(&place.json(&["sagas", "ls"])), ["3", "2", "1"]);
    assert_eq!(
        ids(&place.json(&["sagas", "ls", "--status", "compensating"])),
        ["1"]
    );
    assert_eq!(ids(&place.json(&["sagas", "ls", "--name", "order"])), ["2", "1"]);
    let page = place.json(&["sagas", "ls", "--limit", "2"]);
    let last = page[1]["seq"].to_string();
    let table = place.run(&["sagas", "ls", "--limit", "2"]).good();
    assert!(
        table.contains("WAITS UNTIL") && table.contains("payment"),
        "{table}"
    );
    assert!(
        table.contains(&format!("(there may be more: use --before {last})")),
        "{table}"
    );
    assert_eq!(ids(&place.json(&["sagas", "ls", "--before", &last])), ["1"]);
    place.run(&["sagas", "ls", "--status", "paused"]).failed(2);
}

fn a_saga_is_shown_with_what_it_knows_and_its_log(new: fn(&str) -> Place) {
    let place = new_place(new);
    start(&place, "order", "1");
    let shown = place.run(&["sagas", "show", "1"]).good();
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
    let shown = &place.json(&["sagas", "show", "1"])[0];
    assert_eq!(
        (&shown["data"], &shown["log"][1]["what"]),
        (&7.into(), &"sent".into())
    );
    let error = place.run(&["sagas", "show", "2"]).failed(1);
    assert!(error.contains("no saga has the id `2`"), "{error}");
}

fn a_saga_is_asked_by_a_message_to_itself_and_does_it(new: fn(&str) -> Place) {
    let place = new_place(new);
    start(&place, "order", "1");
    let said = place.run(&["sagas", "resume", "1"]).good();
    assert!(
        said.starts_with("order 1: requested to resume by event "),
        "{said}"
    );
    assert_eq!(
        place.json(&["sagas", "show", "1"])[0]["attempt"],
        1,
        "not before the application gets it"
    );
    assert_eq!(consume(&place, "SagaAsk", None), Handled::Moved(Status::Running));
    assert_eq!(place.json(&["sagas", "show", "1"])[0]["attempt"], 2);

    let asked = &place.json(&["sagas", "compensate", "1", "--name", "order"])[0];
    let event = place.json(&["events", "show", asked["event"].as_str().unwrap()]);
    assert_eq!(
        (&event[0]["namespace"], &event[0]["topic"]),
        (&"shop".into(), &"sagas".into())
    );
    assert_eq!(
        consume(&place, "SagaAsk", None),
        Handled::Moved(Status::Compensating)
    );
    let shown = place.run(&["sagas", "show", "1"]).good();
    assert!(shown.contains("to undo         payment"), "{shown}");
    assert_eq!(
        consume(&place, "Refund", Some(Answer::Done)),
        Handled::Moved(Status::Compensated)
    );
}

fn an_id_that_two_kinds_have_needs_a_name(new: fn(&str) -> Place) {
    let place = new_place(new);
    start(&place, "order", "1");
    start(&place, "refund", "1");
    let error = place.run(&["sagas", "compensate", "1"]).failed(2);
    assert!(error.contains("choose one with --name: refund, order"), "{error}");
    place
        .run(&["sagas", "compensate", "1", "--name", "refund"])
        .good();
    let error = place.run(&["sagas", "show", "1", "--name", "return"]).failed(1);
    assert!(error.contains("no saga `return` has the id `1`"), "{error}");
}

fn what_cannot_be_asked_says_why(new: fn(&str) -> Place) {
    let place = new_place(new);
    start(&place, "order", "1");
    give_up(&place, "1");
    let error = place.run(&["sagas", "compensate", "1"]).failed(1);
    assert!(error.contains("is being compensated already"), "{error}");
    assert_eq!(
        consume(&place, "Refund", Some(Answer::Done)),
        Handled::Moved(Status::Compensated)
    );
    let error = place.run(&["sagas", "resume", "1"]).failed(1);
    assert!(error.contains("saga order 1 is compensated"), "{error}");
}
