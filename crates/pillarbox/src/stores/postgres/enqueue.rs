//! Puts events into the outbox, in the caller's transaction and in nothing else.
//!
//! **If we die here** the transaction rolls back: nothing happened, neither the event nor what it tells of.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::sql::Sql;
use super::{SCHEMA, store_error};
use crate::enqueue::{EnqueueError, Enqueued};
use crate::event::Event;
use crate::payload::Payload;
use crate::store::StoreError;
use crate::validate::{Limits, validate};

/// How often an enqueue looks again when the event that was there before is gone when it looks.
const LOOKS: usize = 3;

/// What an application calls. Cheap to clone; make one and keep it.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use pillarbox::{Event, stores::postgres::Outbox};
///
/// let outbox = Outbox::default();
/// let mut transaction = pool.begin().await?;
/// sqlx::query("insert into orders (id) values (42)").execute(&mut *transaction).await?;
/// let event = Event::new("shop", "orders").json(&serde_json::json!({"order": 42}))?;
/// outbox.enqueue(&mut transaction, &event).await?;
/// transaction.commit().await?; // both, or neither
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Outbox {
    sql: Sql,
    limits: Limits,
    prepared: bool,
    serialised: bool,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::in_schema(SCHEMA).expect("the default schema has a sound name")
    }
}

impl Outbox {
    /// The outbox in another schema than `pillarbox`.
    ///
    /// # Errors
    /// When the name cannot be a schema's.
    pub fn in_schema(schema: &str) -> Result<Self, StoreError> {
        Ok(Self::with(Sql::new(schema)?))
    }

    pub(super) fn with(sql: Sql) -> Self {
        Self {
            sql,
            limits: Limits::default(),
            prepared: false,
            serialised: false,
        }
    }

    /// Sets what is accepted.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps its statements prepared on the connection, under a name: one round trip less for every call.
    ///
    /// Not behind a pooler in transaction mode, where the name may be another program's statement by the next
    /// transaction. Without this, nothing here depends on how the connection came about.
    #[must_use]
    pub fn prepared(mut self) -> Self {
        self.prepared = true;
        self
    }

    /// Makes writers wait for each other that enqueue with the same ordering key: the second draws its place in
    /// the order when the first has committed, so that the order of commits is the order of delivery.
    ///
    /// Needed only where writers of one key have no common lock of their own, such as the row that they change. A
    /// key is locked from the call to the end of the caller's transaction; the keys of one call are taken in one
    /// order for everybody, so that two calls cannot wait for each other. Two transactions that each make several
    /// calls can: enqueue all of a transaction's events by one call, or in the order of their keys. Events without
    /// a key are not held up.
    #[must_use]
    pub fn serialised(mut self) -> Self {
        self.serialised = true;
        self
    }

    /// Enqueues one event in the transaction that `connection` is in.
    ///
    /// # Errors
    /// When the event is refused, or the database refuses it; in the latter case PostgreSQL has ended the
    /// transaction.
    pub async fn enqueue(
        &self,
        connection: &mut PgConnection,
        event: &Event,
    ) -> Result<Enqueued, EnqueueError> {
        validate(event, &self.limits)?;
        self.serialise(connection, std::slice::from_ref(event)).await?;
        for _ in 0..LOOKS {
            if self.insert(connection, event).await?.is_some() {
                return Ok(Enqueued::New(event.id));
            }
            if let Some(first) = self.before(connection, &[event]).await?.get(&0) {
                return Ok(Enqueued::Already(*first));
            }
        }
        Err(vanished())
    }

    /// Enqueues many events in the transaction that `connection` is in, in their order, with one statement.
    /// One that is refused refuses them all.
    ///
    /// # Errors
    /// As for [`enqueue`](Self::enqueue).
    pub async fn enqueue_all(
        &self,
        connection: &mut PgConnection,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        for event in events {
            validate(event, &self.limits)?;
        }
        self.serialise(connection, events).await?;
        let mut enqueued: Vec<Option<Enqueued>> = vec![None; events.len()];
        for _ in 0..LOOKS {
            let open: Vec<usize> = (0..events.len()).filter(|&i| enqueued[i].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let batch: Vec<&Event> = open.iter().map(|&i| &events[i]).collect();
            let mut new = self.insert_all(connection, &batch).await?;
            let mut known = Vec::new();
            for &i in &open {
                // An id that came back is new once; a second event with that id was not written.
                if new.remove(&events[i].id) {
                    enqueued[i] = Some(Enqueued::New(events[i].id));
                } else {
                    known.push(i);
                }
            }
            if known.is_empty() {
                break;
            }
            let batch: Vec<&Event> = known.iter().map(|&i| &events[i]).collect();
            let before = self.before(connection, &batch).await?;
            for (position, &i) in known.iter().enumerate() {
                enqueued[i] = before.get(&position).copied().map(Enqueued::Already);
            }
        }
        enqueued.into_iter().map(|one| one.ok_or_else(vanished)).collect()
    }

    /// Waits for writers of the same keys, if that is wanted. Before any `seq` is drawn.
    async fn serialise(&self, connection: &mut PgConnection, events: &[Event]) -> Result<(), EnqueueError> {
        let keyed = events
            .iter()
            .filter_map(|event| Some((event, event.ordering_key.as_deref()?)));
        let (namespaces, keys): (Vec<&str>, Vec<&str>) =
            keyed.map(|(event, key)| (event.namespace.as_str(), key)).unzip();
        if !self.serialised || keys.is_empty() {
            return Ok(());
        }
        sqlx::query(self.sql.serialise.safe())
            .bind(namespaces)
            .bind(keys)
            .persistent(self.prepared)
            .execute(connection)
            .await
            .map_err(store_error)?;
        Ok(())
    }

    async fn insert(
        &self,
        connection: &mut PgConnection,
        event: &Event,
    ) -> Result<Option<Uuid>, EnqueueError> {
        let content = Content::of(event);
        sqlx::query_scalar(self.sql.enqueue.safe())
            .bind(event.id)
            .bind(&event.namespace)
            .bind(&event.topic)
            .bind(&event.event_type)
            .bind(event.event_version)
            .bind(&event.aggregate_type)
            .bind(&event.aggregate_id)
            .bind(event.tenant_id)
            .bind(&event.dedupe_key)
            .bind(&event.ordering_key)
            .bind(&event.severity)
            .bind(content.json)
            .bind(content.body)
            .bind(&event.content_type)
            .bind(&event.content_encoding)
            .bind(sqlx::types::Json(&event.headers))
            .bind(&event.destination)
            .bind(event.deliver_at)
            .persistent(self.prepared)
            .fetch_optional(connection)
            .await
            .map_err(|error| enqueue_error(error, event.id))
    }

    async fn insert_all(
        &self,
        connection: &mut PgConnection,
        events: &[&Event],
    ) -> Result<HashSet<Uuid>, EnqueueError> {
        fn column<'a, T>(events: &[&'a Event], of: impl Fn(&'a Event) -> T) -> Vec<T> {
            events.iter().map(|event| of(event)).collect()
        }
        let headers = column(events, |event| {
            serde_json::to_string(&event.headers).unwrap_or_default()
        });
        let ids: Vec<Uuid> = sqlx::query_scalar(self.sql.enqueue_all.safe())
            .bind(column(events, |event| event.id))
            .bind(column(events, |event| event.namespace.as_str()))
            .bind(column(events, |event| event.topic.as_str()))
            .bind(column(events, |event| event.event_type.as_deref()))
            .bind(column(events, |event| event.event_version))
            .bind(column(events, |event| event.aggregate_type.as_deref()))
            .bind(column(events, |event| event.aggregate_id.as_deref()))
            .bind(column(events, |event| event.tenant_id))
            .bind(column(events, |event| event.dedupe_key.as_deref()))
            .bind(column(events, |event| event.ordering_key.as_deref()))
            .bind(column(events, |event| event.severity.as_deref()))
            .bind(column(events, |event| Content::of(event).json.0))
            .bind(column(events, |event| Content::of(event).body))
            .bind(column(events, |event| event.content_type.as_deref()))
            .bind(column(events, |event| event.content_encoding.as_deref()))
            .bind(headers)
            .bind(column(events, |event| event.destination.as_deref()))
            .bind(column(events, |event| event.deliver_at))
            .persistent(self.prepared)
            .fetch_all(connection)
            .await
            .map_err(|error| enqueue_error(error, events.first().map_or_else(Uuid::nil, |event| event.id)))?;
        Ok(ids.into_iter().collect())
    }

    /// The ids of the events that came first, by position.
    async fn before(
        &self,
        connection: &mut PgConnection,
        events: &[&Event],
    ) -> Result<HashMap<usize, Uuid>, EnqueueError> {
        let column = |of: fn(&Event) -> &str| events.iter().map(|event| of(event)).collect::<Vec<_>>();
        let rows = sqlx::query(self.sql.enqueued_before.safe())
            .bind(column(|event| &event.namespace))
            .bind(column(|event| &event.topic))
            .bind(column(|event| event.dedupe_key.as_deref().unwrap_or_default()))
            .persistent(self.prepared)
            .fetch_all(connection)
            .await
            .map_err(store_error)?;
        let position = |row: &sqlx::postgres::PgRow| -> Result<(usize, Uuid), sqlx::Error> {
            let ordinal: i64 = row.try_get(0)?;
            Ok((
                usize::try_from(ordinal).unwrap_or(1).saturating_sub(1),
                row.try_get(1)?,
            ))
        };
        Ok(rows
            .iter()
            .map(position)
            .collect::<Result<_, _>>()
            .map_err(store_error)?)
    }
}

/// JSON text to be read as `jsonb`, and bytes beside it.
struct Content<'a> {
    json: JsonText<'a>,
    body: Option<&'a [u8]>,
}

impl<'a> Content<'a> {
    fn of(event: &'a Event) -> Self {
        match &event.payload {
            // Checked to be UTF-8 by `validate`, since it is JSON.
            Payload::Json(text) => Self {
                json: JsonText(std::str::from_utf8(text).unwrap_or("null")),
                body: None,
            },
            Payload::Bytes(body) => Self {
                json: JsonText("null"),
                body: Some(body),
            },
        }
    }
}

/// Text that goes over the wire as `jsonb` without being parsed here.
struct JsonText<'a>(&'a str);

impl sqlx::Type<sqlx::Postgres> for JsonText<'_> {
    fn type_info() -> sqlx::postgres::PgTypeInfo {
        <sqlx::types::Json<()> as sqlx::Type<sqlx::Postgres>>::type_info()
    }
}

impl sqlx::Encode<'_, sqlx::Postgres> for JsonText<'_> {
    fn encode_by_ref(
        &self,
        buffer: &mut sqlx::postgres::PgArgumentBuffer,
    ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
        // Binary jsonb is a version, always 1, and then the text.
        buffer.push(1);
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(sqlx::encode::IsNull::No)
    }
}

fn vanished() -> EnqueueError {
    StoreError::Unavailable(
        "an event with this dedupe key was there and is not to be seen; try the transaction again".to_owned(),
    )
    .into()
}

fn enqueue_error(error: sqlx::Error, id: Uuid) -> EnqueueError {
    if let sqlx::Error::Database(database) = &error {
        match database.code().as_deref() {
            Some("23505") => return EnqueueError::IdTaken(id),
            // Invalid text, an untranslatable character, a number out of range, nesting too deep.
            Some("22P02" | "22P05" | "22003" | "54001" | "54000" | "22021") => {
                return EnqueueError::Payload(database.message().to_owned());
            }
            _ => {}
        }
    }
    store_error(error).into()
}
