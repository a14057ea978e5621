//! The statements on PostgreSQL, apart from the library that runs them.
//!
//! | file | what it has |
//! |---|---|
//! | `driver` | what a library implements: it binds values to a statement and returns its rows |
//! | `enqueue` | writes events, and finds duplicates by their dedupe keys |
//! | `bind` | an event as the parameters of a statement |
//! | `function` | the same by the SQL functions, for roles that may do nothing else |

mod bind;
mod driver;
mod enqueue;
mod function;

use std::borrow::Cow;
use std::sync::Arc;

use uuid::Uuid;

use self::bind::{Form, with_parameters};
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel-async"))]
pub(super) use self::driver::connection;
pub(crate) use self::driver::{Driver, DriverError, Value};
pub(crate) use self::enqueue::write;
use super::sealed::Backend;
use super::{Outbox, stored};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::envelope::with_columns;
use crate::error::StoreError;
use crate::event::Event;
use crate::inbox::{self, Inbox};
use crate::saga;
use crate::schema::in_schema;

/// The statements, with the schema's name in them.
#[derive(Debug)]
pub(crate) struct Statements {
    enqueue: Arc<str>,
    enqueue_once: Arc<str>,
    enqueue_all: Many,
    enqueue_all_once: Many,
    enqueued_before: Arc<str>,
    serialise: Arc<str>,
    enqueued: Arc<str>,
    ids_taken: Arc<str>,
    by_function: Arc<str>,
    ids_by_function: Arc<str>,
}

/// The two forms of a statement that writes many events.
#[derive(Debug)]
struct Many {
    alike: Arc<str>,
    mixed: Arc<str>,
}

impl Many {
    fn form(&self, form: Form) -> &Arc<str> {
        match form {
            Form::Alike => &self.alike,
            Form::Mixed => &self.mixed,
        }
    }
}

impl Statements {
    pub(super) fn in_schema(schema: &str) -> Self {
        let formed = |text, form| in_schema(&with_columns(&with_parameters(text, form)), schema).into();
        let statement = |text| formed(text, Form::Mixed);
        let many = |text| Many {
            alike: formed(text, Form::Alike),
            mixed: formed(text, Form::Mixed),
        };
        Self {
            enqueue: statement(include_str!("sql/enqueue.sql")),
            enqueue_once: statement(include_str!("sql/enqueue_once.sql")),
            enqueue_all: many(include_str!("sql/enqueue_all.sql")),
            enqueue_all_once: many(include_str!("sql/enqueue_all_once.sql")),
            enqueued_before: statement(include_str!("sql/enqueued_before.sql")),
            serialise: statement(include_str!("sql/serialise.sql")),
            enqueued: statement(include_str!("sql/enqueued.sql")),
            ids_taken: statement(include_str!("sql/ids_taken.sql")),
            by_function: statement(include_str!("sql/by_function.sql")),
            ids_by_function: statement(include_str!("sql/ids_by_function.sql")),
        }
    }
}

impl<D: Driver> Backend for D {
    async fn write(
        &mut self,
        outbox: &Outbox,
        events: &[Cow<'_, Event>],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        write(self, outbox, events).await
    }

    async fn read(&mut self, outbox: &Outbox, namespace: Option<&str>) -> Result<Vec<Event>, StoreError> {
        read(self, outbox, namespace).await
    }

    async fn taken(&mut self, outbox: &Outbox, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        ids_taken(self, outbox, ids).await
    }

    async fn mark(&mut self, inbox: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        inbox::postgres::mark(self, inbox, consumer, ids).await
    }

    async fn unmark(&mut self, inbox: &Inbox, consumer: &str, ids: &[Uuid]) -> Result<(), StoreError> {
        inbox::postgres::unmark(self, inbox, consumer, ids).await
    }

    async fn prune(&mut self, inbox: &Inbox, consumer: &str, limit: i32) -> Result<u64, StoreError> {
        inbox::postgres::prune(self, inbox, consumer, limit).await
    }

    async fn saga(
        &mut self,
        outbox: &Outbox,
        request: saga::Request<'_>,
    ) -> Result<saga::Response, StoreError> {
        saga::postgres::answer(self, outbox, request).await
    }
}

/// The events that the transaction sees.
pub(crate) async fn read<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    namespace: Option<&str>,
) -> Result<Vec<Event>, StoreError> {
    let values = vec![Value::Text(namespace)];
    let rows = driver.rows(&outbox.sql.enqueued, values, outbox.prepared).await?;
    rows.iter().map(|(_, json)| stored::event(json)).collect()
}

/// Those of the ids that the transaction sees in the outbox.
pub(crate) async fn ids_taken<D: Driver + ?Sized>(
    driver: &mut D,
    outbox: &Outbox,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, StoreError> {
    if outbox.by_function {
        return function::ids_taken(driver, outbox, ids).await;
    }
    let values = vec![Value::Ids(ids.iter().copied().map(Some).collect())];
    let rows = driver
        .rows(&outbox.sql.ids_taken, values, outbox.prepared)
        .await?;
    rows.iter().map(|(_, id)| parse(id)).collect()
}

pub(crate) fn parse(id: &str) -> Result<Uuid, StoreError> {
    Uuid::parse_str(id).map_err(|error| StoreError::Other(format!("{id:?} is not a UUID: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schema_replaces_every_mention() {
        let sql = Statements::in_schema("my_outbox");
        for text in [
            &sql.enqueue,
            &sql.enqueue_once,
            &sql.enqueue_all.alike,
            &sql.enqueue_all.mixed,
            &sql.enqueue_all_once.alike,
            &sql.enqueue_all_once.mixed,
            &sql.enqueued_before,
            &sql.serialise,
            &sql.enqueued,
            &sql.ids_taken,
            &sql.by_function,
            &sql.ids_by_function,
        ] {
            assert!(!text.contains("pillarbox."), "{text}");
        }
        assert!(sql.enqueue.contains("\"my_outbox\".outbox_events"));
    }
}
