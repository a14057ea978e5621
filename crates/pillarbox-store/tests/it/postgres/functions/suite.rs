//! The producer suite for the SQL functions.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::InvalidEvent;
use pillarbox::internal::validate;
use pillarbox::{EnqueueError, Enqueued, Event, Limits, StoreError};
use pillarbox_store::{Operate, Store};
use pillarbox_testkit::store_suite::{Capability, Corruption, Harness, Skipped, Tx};
use uuid::Uuid;

use super::super::harness::{PostgresHarness, Session};
use super::{enqueue, enqueue_many};

/// Which function is called for one event; several always go by `enqueue_many`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForOne {
    Enqueue,
    EnqueueMany,
}

struct ByFunction {
    outbox: Arc<PostgresHarness>,
    for_one: ForOne,
}

impl ByFunction {
    async fn one() -> Self {
        Self::new(ForOne::Enqueue).await
    }

    async fn many() -> Self {
        Self::new(ForOne::EnqueueMany).await
    }

    async fn new(for_one: ForOne) -> Self {
        let outbox = Arc::new(PostgresHarness::direct().await);
        Self { outbox, for_one }
    }
}

mod by_enqueue {
    pillarbox_testkit::producer_suite!(super::ByFunction::one);
}

mod by_enqueue_many {
    pillarbox_testkit::producer_suite!(super::ByFunction::many);
}

#[async_trait]
impl Harness for ByFunction {
    fn store(&self) -> Arc<dyn Store> {
        self.outbox.store()
    }

    fn operate(&self) -> Arc<dyn Operate> {
        self.outbox.operate()
    }

    async fn begin(&self) -> Box<dyn Tx> {
        Box::new(Open {
            outbox: self.outbox.clone(),
            for_one: self.for_one,
            transaction: self.outbox.pool.begin().await.expect("begins"),
        })
    }

    async fn age(&self, by: time::Duration) {
        self.outbox.age(by).await;
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        match what {
            Capability::Outbox => Err(Skipped(
                "the functions compress nothing, and a session says which trace it is in",
            )),
            Capability::ConcurrentTransactions
            | Capability::EnqueueWaitsForRivals
            | Capability::Savepoints
            | Capability::ManyRanges
            | Capability::Field(_)
            | Capability::Checks
            | Capability::OwnTable
            | Capability::OpenLimit
            | Capability::Archive
            | Capability::ExactFind
            | Capability::Corrupt(_) => self.outbox.can(what),
        }
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        self.outbox.corrupt(id, corruption).await;
    }

    async fn clean_up(&self) {
        self.outbox.clean_up().await;
    }
}

struct Open {
    outbox: Arc<PostgresHarness>,
    for_one: ForOne,
    transaction: sqlx::Transaction<'static, sqlx::Postgres>,
}

#[async_trait]
impl Tx for Open {
    /// With a savepoint around the call, as a caller has it who wants to go on after an error.
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        // Who has no JSON cannot make a call.
        for event in events {
            if let Err(none @ InvalidEvent::NotJson(_)) = validate(event, &Limits::default()) {
                return Err(none.into());
            }
        }
        self.transaction.say("savepoint call").await;
        let answer = match (events, self.for_one) {
            ([event], ForOne::Enqueue) => enqueue(&self.outbox, &mut self.transaction, event)
                .await
                .map(|enqueued| vec![enqueued]),
            (events, _) => enqueue_many(&self.outbox, &mut self.transaction, events).await,
        };
        match answer {
            Ok(enqueued) => {
                self.transaction.say("release call").await;
                Ok(enqueued)
            }
            Err(error) => {
                self.transaction.say("rollback to call").await;
                Err(meaning(&error, events))
            }
        }
    }

    async fn savepoint(&mut self) {
        self.transaction.say("savepoint mark").await;
    }

    async fn rollback_to_savepoint(&mut self) {
        self.transaction.say("rollback to mark").await;
    }

    async fn commit(self: Box<Self>) {
        Session::commit(self.transaction).await;
    }

    async fn rollback(self: Box<Self>) {
        Session::rollback(self.transaction).await;
    }
}

/// What the library would have said: a refusal by its sentence, the rest by its code.
fn meaning(error: &sqlx::Error, events: &[Event]) -> EnqueueError {
    let error = error.as_database_error().expect("the database says no");
    let refusals = events
        .iter()
        .filter_map(|event| validate(event, &Limits::default()).err());
    let found = refusals
        .into_iter()
        .find(|refusal| refusal.to_string() == error.message());
    match (error.code().as_deref(), found) {
        (Some("22023"), Some(refusal)) => refusal.into(),
        (Some("23505"), _) => EnqueueError::IdTaken(events[0].id),
        _ => StoreError::Other(error.to_string()).into(),
    }
}
