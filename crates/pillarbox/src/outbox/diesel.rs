//! Transactions of diesel on PostgreSQL: of diesel-async, and of diesel itself, which blocks.
//!
//! diesel hides the server's error codes: only those that it names can be distinguished. A payload that the database
//! rejects is any other error here.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::diesel::connection::LoadConnection;
use ::diesel::pg::Pg;
use ::diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use ::diesel::result::{DatabaseErrorKind, Error};
use ::diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text, Uuid};
use ::diesel::{QueryableByName, RunQueryDsl, sql_query};

#[cfg(feature = "diesel-async")]
use super::postgres::connection;
use super::postgres::{self, Driver, DriverError, Value, ids_taken, write};
use super::{Outbox, enqueued, prepare};
use crate::aggregate::{Aggregate, Batch, written};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::error::StoreError;
use crate::event::{Event, ToEvent};
use crate::failpoint;

#[derive(QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Found {
    #[diesel(sql_type = BigInt)]
    place: i64,
    #[diesel(sql_type = Text)]
    id: String,
}

type Query<'a> = BoxedSqlQuery<'a, Pg, SqlQuery>;

fn query<'a>(statement: &str, values: Vec<Value<'a>>) -> Query<'a> {
    let mut query = sql_query(statement).into_boxed::<Pg>();
    for value in values {
        query = match value {
            Value::Id(id) => query.bind::<Nullable<Uuid>, _>(id),
            Value::Text(text) => query.bind::<Nullable<Text>, _>(text),
            Value::Number(number) => query.bind::<Integer, _>(number),
            Value::Bytes(bytes) => query.bind::<Nullable<Binary>, _>(bytes),
            Value::Ids(ids) => query.bind::<Array<Nullable<Uuid>>, _>(ids),
            Value::Texts(texts) => query.bind::<Array<Nullable<Text>>, _>(texts),
            Value::Numbers(numbers) => query.bind::<Array<Integer>, _>(numbers),
            Value::Bodies(bodies) => query.bind::<Array<Nullable<Binary>>, _>(bodies),
        };
    }
    query
}

fn read(found: Result<Vec<Found>, Error>) -> Result<Vec<(i64, String)>, DriverError> {
    let found = found.map_err(driver_error)?;
    Ok(found.into_iter().map(|row| (row.place, row.id)).collect())
}

/// Of a transaction that is begun or ended.
pub(crate) fn store_error(error: Error) -> StoreError {
    driver_error(error).into()
}

fn driver_error(error: Error) -> DriverError {
    let Error::DatabaseError(kind, answer) = &error else {
        return DriverError::Other(error.to_string());
    };
    let code = match kind {
        DatabaseErrorKind::UniqueViolation => "23505",
        DatabaseErrorKind::SerializationFailure => "40001",
        DatabaseErrorKind::CheckViolation => "23514",
        DatabaseErrorKind::ReadOnlyTransaction => "25006",
        DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand => {
            return DriverError::Lost(answer.message().to_owned());
        }
        _ if answer.message().starts_with("permission denied") => "42501",
        _ => return DriverError::Other(answer.message().to_owned()),
    };
    DriverError::Answer {
        code: code.to_owned(),
        message: answer.message().to_owned(),
        detail: answer.details().map(str::to_owned),
    }
}

#[cfg(feature = "diesel-async")]
impl Driver for diesel_async::AsyncPgConnection {
    async fn rows(
        &mut self,
        statement: &Arc<str>,
        values: Vec<Value<'_>>,
        _: bool,
    ) -> Result<Vec<(i64, String)>, DriverError> {
        read(diesel_async::RunQueryDsl::load(query(statement, values), self).await)
    }
}

#[cfg(feature = "diesel-async")]
connection!(diesel_async::AsyncPgConnection);

/// A connection that answers before it returns.
pub(crate) struct Blocking<'a, C>(pub(crate) &'a mut C);

impl<C: LoadConnection<Backend = Pg> + Send> Driver for Blocking<'_, C> {
    async fn rows(
        &mut self,
        statement: &Arc<str>,
        values: Vec<Value<'_>>,
        _: bool,
    ) -> Result<Vec<(i64, String)>, DriverError> {
        read(query(statement, values).load(self.0))
    }
}

impl Outbox {
    /// [`enqueue_all`](Self::enqueue_all) on a connection of diesel that blocks, such as `PgConnection`.
    ///
    /// ```no_run
    /// # fn example<C: diesel::connection::LoadConnection<Backend = diesel::pg::Pg> + Send>(connection: &mut C)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// use pillarbox::{Event, Outbox};
    ///
    /// connection.transaction(|connection| {
    ///     // … change the application's own rows
    ///     let event = Event::new("shop", "orders").json(&42)?;
    ///     Outbox::default().enqueue_blocking(connection, &[event])?;
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`enqueue_all`](Self::enqueue_all).
    pub fn enqueue_blocking<C, E>(
        &self,
        connection: &mut C,
        events: &[E],
    ) -> Result<Vec<Enqueued>, EnqueueError>
    where
        C: LoadConnection<Backend = Pg> + Send,
        E: ToEvent,
    {
        let events = prepare::all_blocking(self, events)?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        answered(write(&mut Blocking(connection), self, &events))
    }

    /// [`enqueue_recorded`](Self::enqueue_recorded) on such a connection.
    ///
    /// # Errors
    /// As for [`enqueue_recorded`](Self::enqueue_recorded).
    pub fn enqueue_recorded_blocking<C>(
        &self,
        connection: &mut C,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<Vec<Enqueued>, EnqueueError>
    where
        C: LoadConnection<Backend = Pg> + Send,
    {
        let batch = Batch::of(aggregates).map_err(EnqueueError::NoJson)?;
        let in_doubt = batch.in_doubt();
        let there = if in_doubt.is_empty() {
            Vec::new()
        } else {
            answered(ids_taken(&mut Blocking(connection), self, &in_doubt))?
        };
        let enqueued = self.enqueue_blocking(connection, &batch.without(&there))?;
        failpoint::hit("after_enqueue");
        written(aggregates);
        Ok(batch.report(&there, enqueued))
    }

    /// [`enqueued`](Self::enqueued) on such a connection.
    ///
    /// # Errors
    /// As for [`enqueued`](Self::enqueued).
    pub fn enqueued_blocking<C>(&self, connection: &mut C) -> Result<Vec<Event>, StoreError>
    where
        C: LoadConnection<Backend = Pg> + Send,
    {
        let events = answered(postgres::read(&mut Blocking(connection), self, None))?;
        enqueued::as_said(self, events)
    }
}

/// The result of a future that awaits only a blocking connection.
pub(crate) fn answered<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("it awaits nothing but a connection that blocks"),
    }
}
