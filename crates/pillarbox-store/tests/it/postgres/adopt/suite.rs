//! The store suite on adopted tables. Events are rows that the system's own producer writes, and the suite sees the imported
//! rows. At the end of each case the adopted table must agree with the outbox.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox::{EnqueueError, Enqueued, Event, Payload};
use pillarbox_store::stores::postgres::adopt::{DeliveryOrder, Table};
use pillarbox_store::{Operate, Store};
use pillarbox_testkit::store_suite::{Capability, Corruption, Field, Harness, Skipped, Tx};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::harness::Session;
use super::agreement::assert_agree;
use super::harness::Adopted;
use super::importing::{self, Importing};
use super::seeds::{ARAP, DEBEZIUM, FAMILY_HUB, MODKIT, ORDER_SERVICE, REDIVER, Seed};

/// The limit of attempts in the suite.
const LIMIT: u32 = 5;

/// A table, and how an event of the suite becomes a row of it.
pub(super) struct Producer {
    seed: Seed,
    /// $1 id   $2 JSON   $3 namespace   $4 topic   $5 tenant   $6 dedupe key   $7 ordering key   $8 not before
    insert: &'static str,
    /// Finds the row with the same dedupe key.
    first: Option<&'static str>,
    /// Columns with a time.
    times: &'static [&'static str],
    can: fn(Field) -> Result<(), Skipped>,
    /// Does every row have its own limit of attempts?
    limited: bool,
}

/// The value where the table has no column.
fn no_column(field: Field) -> Result<(), Skipped> {
    Err(Skipped(match field {
        Field::Namespace => "the table has no column for a namespace: all rows have the source's name",
        Field::Topic => "the table has no column for a topic: all rows have the table's name",
        Field::Tenant => "the table has no column for a tenant",
        Field::DedupeKey => "the table has no column for a dedupe key",
        Field::OrderingKey => "the table has no column for an ordering key",
        Field::Json => "the table does not hold JSON",
        Field::Bytes => "the table has no column for bytes and their media type",
        Field::Headers => "the table has no column for headers",
        Field::Destination => "the table has no column for a destination",
        Field::DeliverAt => "the table has no column for a time before which nothing is sent",
    }))
}

fn only_json(field: Field) -> Result<(), Skipped> {
    match field {
        Field::Json => Ok(()),
        other => no_column(other),
    }
}

const PRODUCE_ARAP: Producer = Producer {
    seed: ARAP,
    insert: r#"insert into {schema}.outbox_messages ("Id", "Type", "Content", "OccurredOnUtc", "ProcessedOnUtc", "RetryCount")
      values ($1, 'ProposalCreated', $2::jsonb, clock_timestamp() at time zone 'UTC', null, 0) returning $1"#,
    first: None,
    times: &["\"OccurredOnUtc\"", "\"ProcessedOnUtc\""],
    can: only_json,
    limited: true,
};

const PRODUCE_MODKIT: Producer = Producer {
    seed: MODKIT,
    insert: "insert into {schema}.modkit_outbox_events
        (id, namespace, topic, tenant_id, dedupe_key, payload, status, next_attempt_at, created_at)
      values ($1, $3, $4, $5, $6, $2::jsonb, 'pending', coalesce($8, clock_timestamp()), clock_timestamp())
      on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
      returning id",
    first: Some(
        "select id from {schema}.modkit_outbox_events where namespace = $1 and topic = $2 and dedupe_key = $3",
    ),
    times: &["next_attempt_at", "locked_until", "created_at", "updated_at"],
    can: |field| match field {
        Field::Namespace
        | Field::Topic
        | Field::Tenant
        | Field::DedupeKey
        | Field::Json
        | Field::DeliverAt => Ok(()),
        Field::OrderingKey | Field::Bytes | Field::Headers | Field::Destination => no_column(field),
    },
    limited: false,
};

const PRODUCE_REDIVER: Producer = Producer {
    seed: REDIVER,
    // Four retries are five attempts.
    insert: "with t as (insert into {schema}.tenants values ($1) returning id)
      insert into {schema}.notification_outbox
        (id, tenant_id, event_type, aggregate_type, title, max_retries, scheduled_at, created_at)
      select $1, id, 'new_finding', 'finding', 'SQL injection', 4, coalesce($8, clock_timestamp()), clock_timestamp()
      from t returning id",
    first: None,
    times: &["scheduled_at", "locked_at", "created_at", "updated_at", "processed_at"],
    can: |field| match field {
        Field::DeliverAt => Ok(()),
        Field::Tenant => Err(Skipped("every row of the table has a tenant")),
        Field::Json => Err(Skipped("the payload is made of the table's columns")),
        other => no_column(other),
    },
    limited: true,
};

const PRODUCE_FAMILY_HUB: Producer = Producer {
    seed: FAMILY_HUB,
    insert: "insert into {schema}.outbox_events
        (event_id, event_type, event_version, aggregate_type, aggregate_id, payload, status, created_at, updated_at)
      values ($1, 'FamilyHub.FamilyMemberInvitedEvent', 1, 'FamilyMemberInvitation', $1, $2::jsonb, 0,
        clock_timestamp() at time zone 'UTC', clock_timestamp() at time zone 'UTC') returning event_id",
    first: None,
    times: &["processed_at", "created_at", "updated_at"],
    can: only_json,
    limited: false,
};

const PRODUCE_ORDER_SERVICE: Producer = Producer {
    seed: ORDER_SERVICE,
    insert: "insert into {schema}.outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
      values ($1, 'Order', $1, 'OrderCreated', $2, 'NEW', clock_timestamp() at time zone 'UTC') returning id",
    first: None,
    times: &["created_at", "sent_at"],
    can: |field| match field {
        Field::Json => Err(Skipped("the table's text arrives as it was written, as bytes")),
        other => no_column(other),
    },
    limited: false,
};

/// With the aggregate id as ordering key, as the event router uses it as message key.
const PRODUCE_DEBEZIUM: Producer = Producer {
    seed: DEBEZIUM,
    insert: "insert into {schema}.outbox (id, aggregatetype, aggregateid, type, payload)
      values ($1, $4, coalesce($7, ''), 'OrderCreated', $2::jsonb) returning id",
    first: None,
    times: &[],
    can: |field| match field {
        Field::Topic | Field::OrderingKey | Field::Json => Ok(()),
        other => no_column(other),
    },
    limited: false,
};

/// One table with its producer, and an outbox that adopted it.
pub(super) struct Suite {
    adopted: Adopted,
    producer: Producer,
    importing: Arc<Importing>,
}

impl Suite {
    async fn of(producer: Producer) -> Self {
        let adopted = Adopted::with(producer.seed, |mut table| {
            // What rows without a namespace are known by in the suite.
            table.name = "shop".to_owned();
            table.layout.max_attempts = table.layout.max_attempts.map(|_| LIMIT);
            if producer.seed.name == "debezium" {
                table.layout.ordering_key = Some("aggregateid".to_owned());
                table.layout.delivery_order = Some(DeliveryOrder::Key);
            }
            Table {
                poll: Duration::from_secs(1),
                ..table
            }
        })
        .await;
        let importing = Arc::new(Importing::new(&adopted.outbox.store));
        Self {
            adopted,
            producer,
            importing,
        }
    }

    pub(super) async fn arap() -> Self {
        Self::of(PRODUCE_ARAP).await
    }

    pub(super) async fn modkit() -> Self {
        Self::of(PRODUCE_MODKIT).await
    }

    pub(super) async fn rediver() -> Self {
        Self::of(PRODUCE_REDIVER).await
    }

    pub(super) async fn family_hub() -> Self {
        Self::of(PRODUCE_FAMILY_HUB).await
    }

    pub(super) async fn order_service() -> Self {
        Self::of(PRODUCE_ORDER_SERVICE).await
    }

    pub(super) async fn debezium() -> Self {
        Self::of(PRODUCE_DEBEZIUM).await
    }
}

#[async_trait]
impl Harness for Suite {
    fn store(&self) -> Arc<dyn Store> {
        self.importing.clone()
    }

    fn operate(&self) -> Arc<dyn Operate> {
        self.importing.clone()
    }

    async fn begin(&self) -> Box<dyn Tx> {
        let sql = |text: &str| text.replace("{schema}", self.adopted.schema());
        Box::new(Producing {
            insert: sql(self.producer.insert),
            first: self.producer.first.map(sql),
            can: self.producer.can,
            transaction: self.adopted.outbox.pool.begin().await.expect("begins"),
        })
    }

    async fn age(&self, by: time::Duration) {
        self.adopted.outbox.age(by).await;
        if self.producer.times.is_empty() {
            return;
        }
        let seconds = by.as_seconds_f64();
        let older = |column: &&str| format!("{column} = {column} - make_interval(secs => {seconds})");
        let set: Vec<String> = self.producer.times.iter().map(older).collect();
        let update = format!("update {} set {}", self.producer.seed.place, set.join(", "));
        self.adopted.run(&update).await;
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        match what {
            Capability::ConcurrentTransactions
            | Capability::EnqueueWaitsForRivals
            | Capability::Savepoints
            | Capability::ManyRanges
            | Capability::Corrupt(_) => Ok(()),
            Capability::Field(field) => (self.producer.can)(field),
            Capability::Archive => Err(Skipped("copies of adopted rows are archived like any row")),
            Capability::Outbox => Err(Skipped("rows are written by the system's own producer")),
            Capability::Checks => Err(Skipped("the system's own producer has no checks")),
            Capability::OwnTable => Err(Skipped(
                "a row has its place when it is imported, and stays in its table when it is deleted here",
            )),
            Capability::OpenLimit if self.producer.limited => {
                Err(Skipped("every row of the table knows how many attempts it has"))
            }
            Capability::OpenLimit => Ok(()),
            Capability::ExactFind => self.adopted.outbox.can(what),
        }
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        importing::import(&self.importing).await;
        self.adopted.outbox.corrupt(id, corruption).await;
    }

    async fn clean_up(&self) {
        importing::import(&self.importing).await;
        let limit = self.producer.limited.then_some(LIMIT);
        assert_agree(&self.adopted, limit).await;
        self.adopted.drop_schemas().await;
    }
}

/// A transaction of the system's own producer.
struct Producing {
    insert: String,
    first: Option<String>,
    can: fn(Field) -> Result<(), Skipped>,
    transaction: sqlx::Transaction<'static, sqlx::Postgres>,
}

impl Producing {
    async fn produce(&mut self, event: &Event) -> Enqueued {
        for field in used(event) {
            (self.can)(field).unwrap_or_else(|why| panic!("the case has to ask for {field:?}: {why:?}"));
        }
        let json = String::from_utf8(event.payload.as_bytes().to_vec()).expect("JSON is text");
        let written: Option<Uuid> = sqlx::query_scalar(AssertSqlSafe(self.insert.clone()))
            .bind(event.id)
            .bind(json)
            .bind(&event.namespace)
            .bind(&event.topic)
            .bind(event.tenant_id)
            .bind(&event.dedupe_key)
            .bind(&event.ordering_key)
            .bind(event.deliver_at)
            .fetch_optional(&mut *self.transaction)
            .await
            .expect("the producer inserts");
        match written {
            Some(id) => Enqueued::New(id),
            None => Enqueued::Duplicate(self.first(event).await),
        }
    }

    async fn first(&mut self, event: &Event) -> Uuid {
        let first = self
            .first
            .clone()
            .expect("only where there is a dedupe key nothing is written");
        sqlx::query_scalar(AssertSqlSafe(first))
            .bind(&event.namespace)
            .bind(&event.topic)
            .bind(&event.dedupe_key)
            .fetch_one(&mut *self.transaction)
            .await
            .expect("the first one is there")
    }
}

/// The optional fields of the event.
fn used(event: &Event) -> Vec<Field> {
    let is_plain = event.payload == Payload::empty();
    let is_bytes = matches!(event.payload, Payload::Bytes(_));
    [
        (Field::Namespace, event.namespace != "shop"),
        (Field::Topic, event.topic != "orders"),
        (Field::Tenant, event.tenant_id.is_some()),
        (Field::DedupeKey, event.dedupe_key.is_some()),
        (Field::OrderingKey, event.ordering_key.is_some()),
        (Field::Json, !is_plain && !is_bytes),
        (Field::Bytes, is_bytes),
        (Field::Headers, !event.headers.is_empty()),
        (Field::Destination, event.destination.is_some()),
        (Field::DeliverAt, event.deliver_at.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, used)| used.then_some(field))
    .collect()
}

#[async_trait]
impl Tx for Producing {
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut enqueued = Vec::new();
        for event in events {
            enqueued.push(self.produce(event).await);
        }
        Ok(enqueued)
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

// The whole suite runs on the two layouts that differ most. Modkit has a column for almost everything: namespace, topic, tenant,
// dedupe key, status, attempts, due time and lease. Debezium has no state at all: a delivered row is deleted, and it is the only
// one with an ordering key. The others run the cases that depend on their columns.

mod modkit {
    pillarbox_testkit::store_suite!(super::Suite::modkit);
}

mod debezium {
    pillarbox_testkit::store_suite!(super::Suite::debezium);
}

mod arap {
    pillarbox_testkit::column_suite!(super::Suite::arap);
}

mod rediver {
    pillarbox_testkit::column_suite!(super::Suite::rediver);
}

mod family_hub {
    pillarbox_testkit::column_suite!(super::Suite::family_hub);
}

mod order_service {
    pillarbox_testkit::column_suite!(super::Suite::order_service);
}
