//! The process dies at every step of a saga and around every commit. Messages that it had not acknowledged are delivered
//! again, and the saga ends completed or compensated.
//!
//! One process runs the orchestrator, three services and a broker. The broker is the rows of the outbox and a table of the
//! acknowledged ones. A message is acknowledged after the commit, in another transaction. A scheduled message is delivered
//! when no other one is left.

use std::collections::BTreeSet;
use std::process::Output;
use std::time::Duration;

use pillarbox::saga::{Action, Answer, Command, Handled, Message, Saga, Step};
use pillarbox::{Event, Outbox, RetryPolicy, UnitOfWork};
use pillarbox_testkit::process::{assert_aborted_at, ignored_test};
use uuid::Uuid;

use crate::application::{Application, OnPostgres, OnSqlite};
use crate::postgres::PostgresHarness;
use crate::sqlite::{SqliteHarness, pool};

const DATABASE: &str = "PILLARBOX_TEST_DATABASE";
const SAGA: &str = "PILLARBOX_TEST_SAGA";

/// As the tables of the outbox itself are called in a file.
const PREFIX: &str = "pillarbox_";

const STEPS: [&str; 3] = ["payment", "stock", "shipping"];

/// Where a process can die: in the code of sagas, and around every commit.
const FAILPOINTS: [&str; 5] = [
    "saga_locked",
    "saga_saved",
    "saga_enqueued",
    "before_commit",
    "after_commit",
];

/// What the services have done, and which messages are acknowledged.
const TABLES: &str = "create table pillarbox.effects (
      saga text not null, step text not null, effect text not null, primary key (saga, step, effect)
    );
    create table pillarbox.acknowledged (event text primary key);";

/// The fault of a saga, by its id: in `refuses:stock:17` the stock rejects.
fn fault<'a>(saga: &'a str, step: &str) -> Option<&'a str> {
    let mut parts = saga.split(':');
    let (fault, at) = (parts.next()?, parts.next()?);
    (at == step).then_some(fault)
}

/// The definition, for one saga: its messages have a namespace of their own, so that they are quickly found.
fn saga(outbox: &Outbox, id: &str) -> Saga<u32> {
    let command = |step: &'static str| {
        let id = id.to_owned();
        move |_: &u32| Event::new(&id, step)
    };
    let step = |name| {
        Step::new(name, command(name))
            .compensation(command(name))
            .retry(RetryPolicy::steps(vec![Duration::from_secs(1)]).max_attempts(2))
            .timeout(Duration::from_secs(60))
    };
    let define = Saga::define("order").address(id, "order-saga");
    let whole = STEPS.into_iter().fold(define, |saga, name| saga.step(step(name)));
    whole.build(outbox).expect("sound")
}

/// What both databases do, each with its own types.
trait SagaApplication: Application {
    /// What a service has done for a step of a saga: `did`, `undid`.
    async fn effects(&self, transaction: &mut Self::Transaction, saga: &str, step: &str) -> Vec<String>;
    async fn have_effect(&self, transaction: &mut Self::Transaction, saga: &str, step: &str, effect: &str);
    async fn acknowledge(&self, event: Uuid);
    async fn acknowledged(&self) -> BTreeSet<String>;
    async fn status(&self, saga: &str) -> String;

    /// Every message of a saga there ever was.
    async fn messages(&self, saga: &str) -> Vec<Event> {
        let mut transaction = self.begin().await;
        let events = self.outbox().enqueued_by(&mut transaction, saga).await;
        events.expect("it reads")
    }

    /// The next message to be delivered: what is due first.
    async fn next(&self, saga: &str) -> Option<Event> {
        let acknowledged = self.acknowledged().await;
        let messages = self.messages(saga).await.into_iter();
        let open = messages.filter(|event| !acknowledged.contains(&event.id.to_string()));
        open.min_by_key(|event| event.deliver_at.map_or(i128::MIN, |at| at.unix_timestamp_nanos()))
    }

    /// Starts a saga, and delivers messages until there are none.
    async fn run(&self, id: &str) {
        let outbox = self.outbox();
        let saga = saga(&outbox, id);
        let mut work = UnitOfWork::new(&outbox, self.begin().await);
        saga.start(&mut *work, id, &1).await.expect("starts");
        work.commit(&mut []).await.expect("commits");
        while let Some(message) = self.next(id).await {
            self.deliver(&saga, &message).await;
            self.acknowledge(message.id).await;
        }
    }

    /// Delivers a message to its service or to the saga.
    async fn deliver(&self, saga: &Saga<u32>, message: &Event) {
        let outbox = self.outbox();
        let mut work = UnitOfWork::new(&outbox, self.begin().await);
        match Command::read(&Message::from(message)) {
            Some(command) => self.serve(&mut work, &command).await,
            None => {
                let handled = saga.handle(&mut *work, &Message::from(message)).await;
                assert!(!matches!(
                    handled.expect("it is taken"),
                    Handled::Unknown | Handled::NotOurs
                ));
            }
        }
        work.commit(&mut []).await.expect("commits");
    }

    /// A service, as docs/sagas.md wants it: what was done is not done again, what was undone is not done any more.
    async fn serve(&self, transaction: &mut Self::Transaction, command: &Command) {
        let (id, step) = (&command.id, &command.attempt.step);
        let before = self.effects(transaction, id, step).await;
        let is = |effect: &str| before.iter().any(|before| before == effect);
        let fault = fault(id, step);
        let answer = match command.attempt.action {
            Action::Compensation => {
                if !is("undid") {
                    self.have_effect(transaction, id, step, "undid").await;
                }
                Answer::Done
            }
            Action::Command if is("undid") || fault == Some("refuses") => Answer::Refused,
            Action::Command if fault == Some("fails") && command.attempt.number == 1 => Answer::Failed,
            Action::Command => {
                if !is("did") {
                    self.have_effect(transaction, id, step, "did").await;
                }
                if fault == Some("silent") {
                    return; // does it without a reply
                }
                Answer::Done
            }
        };
        let reply = command.reply(answer, Event::new(id, "replies"));
        let enqueued = self.outbox().enqueue(transaction, &reply).await;
        enqueued.expect("accepted");
    }

    /// Is everything done, or is everything that was done undone?
    async fn assert_ended(&self, id: &str, expected: &str) {
        assert_eq!(self.status(id).await, expected, "{id}");
        let mut transaction = self.begin().await;
        for step in STEPS {
            let effects = self.effects(&mut transaction, id, step).await;
            let is = |effect: &str| effects.iter().any(|other| other == effect);
            match expected {
                "completed" => assert!(is("did") && !is("undid"), "{id} {step}: {effects:?}"),
                _ => assert!(is("undid") || !is("did"), "{id} {step}: {effects:?}"),
            }
        }
    }

    /// Every message once more, the latest first: nothing changes.
    async fn assert_settled(&self, id: &str, expected: &str) {
        let saga = saga(&self.outbox(), id);
        let messages = self.messages(id).await;
        for message in messages.iter().rev() {
            if Command::read(&Message::from(message)).is_none() {
                self.deliver(&saga, message).await;
            }
        }
        assert_eq!(
            self.messages(id).await.len(),
            messages.len(),
            "an ended saga sends nothing"
        );
        self.assert_ended(id, expected).await;
    }
}

macro_rules! saga_application {
    ($type:ty) => {
        impl SagaApplication for $type {
            async fn effects(
                &self,
                transaction: &mut Self::Transaction,
                saga: &str,
                step: &str,
            ) -> Vec<String> {
                let select = "select effect from pillarbox.effects where saga = $1 and step = $2";
                let query = sqlx::query_scalar(self.sql(select)).bind(saga).bind(step);
                query.fetch_all(&mut **transaction).await.expect("it reads")
            }

            async fn have_effect(
                &self,
                transaction: &mut Self::Transaction,
                saga: &str,
                step: &str,
                effect: &str,
            ) {
                let insert = "insert into pillarbox.effects (saga, step, effect) values ($1, $2, $3)";
                let query = sqlx::query(self.sql(insert))
                    .bind(saga)
                    .bind(step)
                    .bind(effect);
                query
                    .execute(&mut **transaction)
                    .await
                    .expect("never twice");
            }

            async fn acknowledge(&self, event: Uuid) {
                let insert = "insert into pillarbox.acknowledged (event) values ($1) on conflict do nothing";
                let query = sqlx::query(self.sql(insert)).bind(event.to_string());
                query.execute(&self.pool).await.expect("acknowledged");
            }

            async fn acknowledged(&self) -> BTreeSet<String> {
                let select = "select event from pillarbox.acknowledged";
                let query = sqlx::query_scalar(self.sql(select)).fetch_all(&self.pool);
                query.await.expect("it reads").into_iter().collect()
            }

            async fn status(&self, saga: &str) -> String {
                let select = "select status from pillarbox.sagas where id = $1";
                let query = sqlx::query_scalar(self.sql(select)).bind(saga);
                query.fetch_one(&self.pool).await.expect("it is there")
            }
        }
    };
}

saga_application!(OnPostgres);
saga_application!(OnSqlite);

/// Not a test: the process that the tests below kill.
#[tokio::test]
#[ignore = "run by the tests of this file"]
async fn application_process() {
    let value = |variable| std::env::var(variable).expect("the parent process sets it");
    let (address, saga) = (value(DATABASE), value(SAGA));
    match address.split_once(':').expect("kind:address") {
        ("postgres", schema) => OnPostgres::existing(schema).run(&saga).await,
        ("sqlite", path) => {
            let pool = pool(path.as_ref()).await;
            let application = OnSqlite { pool, prefix: PREFIX };
            application.run(&saga).await;
        }
        (other, _) => panic!("{other} is no database"),
    }
}

fn run_to_be_killed(address: &str, saga: &str, failpoint: &str) -> Output {
    ignored_test("saga::killed::application_process")
        .env(DATABASE, address)
        .env(SAGA, saga)
        .env("PILLARBOX_ABORT_AT", failpoint)
        .output()
        .expect("it runs")
}

/// Did it die there? Otherwise it has ended well before.
fn was_killed(output: &Output, failpoint: &str) -> bool {
    let killed = !output.status.success();
    if killed {
        assert_aborted_at(failpoint, output.status, &String::from_utf8_lossy(&output.stderr));
    }
    killed
}

/// Kills the application at every hit of every failpoint, each with a saga of its own, and lets another one take over.
async fn killed_everywhere(fault: &str, expected: &str, application: &impl SagaApplication, address: &str) {
    for failpoint in FAILPOINTS {
        let mut kills = 0;
        loop {
            let id = format!("{fault}:{failpoint}-{kills}");
            let output = run_to_be_killed(address, &id, &format!("{failpoint}:{}", kills + 1));
            let killed = was_killed(&output, failpoint);
            application.run(&id).await;
            application.assert_ended(&id, expected).await;
            if !killed {
                application.assert_settled(&id, expected).await;
                break;
            }
            kills += 1;
        }
        assert!(
            kills >= 2,
            "{failpoint} is on the way of every saga, and was hit {kills} times"
        );
    }
}

/// Kills the application after a few commits, again and again, until there is nothing left to commit.
async fn killed_again_and_again(
    fault: &str,
    expected: &str,
    application: &impl SagaApplication,
    address: &str,
) {
    let id = format!("{fault}:again");
    let mut kills = 0;
    // Of three commits the first finds the saga started, the second does what was not acknowledged, the third gets on.
    while was_killed(&run_to_be_killed(address, &id, "after_commit:3"), "after_commit") {
        kills += 1;
        assert!(kills < 100, "it gets nowhere");
    }
    assert!(kills > 4, "{kills}");
    application.assert_ended(&id, expected).await;
    application.assert_settled(&id, expected).await;
}

macro_rules! faults {
    ($($name:ident: $fault:literal ends $expected:literal by $how:ident on $($database:ident)+,)+) => {
        $(mod $name {
            $(
                #[tokio::test]
                #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
                async fn $database() {
                    let (harness, application, address) = super::$database().await;
                    super::$how($fault, $expected, &application, &address).await;
                    pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
                }
            )+
        })+
    };
}

async fn on_postgres() -> (PostgresHarness, OnPostgres, String) {
    let harness = PostgresHarness::direct().await;
    harness.execute(TABLES).await;
    let schema = harness.store.schema();
    let (application, address) = (OnPostgres::existing(schema), format!("postgres:{schema}"));
    (harness, application, address)
}

async fn on_sqlite() -> (SqliteHarness, OnSqlite, String) {
    let harness = SqliteHarness::fresh().await;
    let application = OnSqlite {
        pool: pool(&harness.path()).await,
        prefix: PREFIX,
    };
    let made = sqlx::raw_sql(application.sql(TABLES))
        .execute(&application.pool)
        .await;
    made.expect("the tables are made");
    let address = format!("sqlite:{}", harness.path().display());
    (harness, application, address)
}

// What differs between the databases is how a transaction ends, so that a few faults are enough for the second.
faults! {
    all_steps_succeed: "well:none" ends "completed" by killed_everywhere on on_postgres on_sqlite,
    a_step_fails_once: "fails:payment" ends "completed" by killed_everywhere on on_postgres,
    the_first_step_rejects: "refuses:payment" ends "compensated" by killed_everywhere on on_postgres,
    the_second_step_rejects: "refuses:stock" ends "compensated" by killed_everywhere on on_postgres on_sqlite,
    the_last_step_rejects: "refuses:shipping" ends "compensated" by killed_everywhere on on_postgres,
    a_step_is_done_without_a_reply: "silent:stock" ends "compensated" by killed_everywhere on on_postgres,
    all_steps_succeed_and_no_process_lives_long:
        "well:none" ends "completed" by killed_again_and_again on on_postgres on_sqlite,
    the_last_step_rejects_and_no_process_lives_long:
        "refuses:shipping" ends "compensated" by killed_again_and_again on on_postgres on_sqlite,
}

#[tokio::test]
async fn without_being_killed_every_fault_ends_as_it_should() {
    let (_harness, application, _) = on_sqlite().await;
    for (fault, expected) in [
        ("well:none", "completed"),
        ("fails:shipping", "completed"),
        ("refuses:payment", "compensated"),
        ("silent:payment", "compensated"),
    ] {
        application.run(fault).await;
        application.assert_ended(fault, expected).await;
        application.assert_settled(fault, expected).await;
    }
}
