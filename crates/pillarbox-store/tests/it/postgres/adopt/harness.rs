//! One adopted table in its own schema, and an outbox.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::Delivery;
use pillarbox_store::adopt::{Import, ImportRequest, Imported};
use pillarbox_store::store::{ClaimRequest, Due, Settlement, Share, Take};
use pillarbox_store::stores::postgres::Postgres;
use pillarbox_store::stores::postgres::adopt::{DeliveryOrder, ErrorText, SpeaksFor, Table, built_in};
use pillarbox_store::{Scope, Store, Verdict};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgTransaction};
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::producer::request;
use super::seeds::Seed;
use pillarbox_testkit::environment::variable;

pub(super) struct Adopted {
    pub(super) outbox: PostgresHarness,
    pub(super) seed: Seed,
    schema: String,
    worker: Uuid,
}

impl Adopted {
    pub(super) async fn new(seed: Seed) -> Self {
        Self::with(seed, |table| table).await
    }

    pub(super) async fn with(seed: Seed, change: impl FnOnce(Table) -> Table) -> Self {
        Self::at(&variable("PILLARBOX_TEST_POSTGRES_URL"), seed, change).await
    }

    /// With a store at this URL.
    pub(super) async fn at(url: &str, seed: Seed, change: impl FnOnce(Table) -> Table) -> Self {
        let outbox = PostgresHarness::at(url).await;
        let schema = format!("s_{}", Uuid::new_v4().simple());
        let adopted = Self {
            outbox,
            seed,
            schema,
            worker: Uuid::new_v4(),
        };
        adopted.run(&format!("create schema {}", adopted.schema)).await;
        adopted.run(seed.table).await;
        let table = change(adopted.table());
        adopted.outbox.store.adopt(&[table]).await.expect("it fits");
        adopted
    }

    /// The table with its built-in layout.
    pub(super) fn table(&self) -> Table {
        let mut layout = built_in(self.seed.name).expect("a layout of that name");
        layout.table = self.place();
        // Rows without a lane can be claimed without leasing lanes. Order has tests of its own.
        layout.delivery_order = Some(DeliveryOrder::None);
        layout.write_processing = layout.shows_processing().map(|_| false);
        // Whom a row may speak for has tests of its own.
        let namespaces = layout.namespace.iter().map(|_| "*".to_owned()).collect();
        Table {
            name: self.seed.name.to_owned(),
            speaks_for: SpeaksFor {
                namespaces,
                tenants: Vec::new(),
            },
            prune_dead: None,
            prune_interval: Duration::ZERO,
            error_text: ErrorText::Full,
            layout,
            poll: Duration::from_secs(5),
            batch: 100,
            prune: None,
        }
    }

    pub(super) async fn run(&self, sql: &str) -> u64 {
        let sql = sql.replace("{schema}", &self.schema);
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.outbox.pool).await;
        done.expect("the statement runs").rows_affected()
    }

    /// Inserts a row as the system's own producer does.
    pub(super) async fn produce(&self) -> Uuid {
        let id = Uuid::now_v7();
        self.run(&self.seed.insert.replace("{id}", &id.to_string())).await;
        id
    }

    /// Updates the row in its table.
    pub(super) async fn change(&self, id: Uuid, set: &str) {
        let Seed { place, id: key, .. } = self.seed;
        let changed = self
            .run(&format!("update {place} set {set} where {key} = '{id}'"))
            .await;
        assert_eq!(changed, 1, "the row is there");
    }

    /// The row as JSON; null if it does not exist.
    pub(super) async fn row(&self, id: Uuid) -> Value {
        let (place, key) = (self.place(), self.seed.id);
        let sql = format!("select to_jsonb(s) from {place} s where {key} = '{id}'");
        let row: Option<Value> = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_optional(&self.outbox.pool)
            .await
            .expect("reads");
        row.unwrap_or(Value::Null)
    }

    /// The table's name, with its schema.
    pub(super) fn place(&self) -> String {
        self.seed.place.replace("{schema}", &self.schema)
    }

    /// Locks the row as another session, until the transaction ends.
    pub(super) async fn hold(&self, id: Uuid) -> PgTransaction<'static> {
        let lock = format!(
            "select 1 from {} where {} = '{id}' for update",
            self.place(),
            self.seed.id
        );
        let mut session = self.outbox.pool.begin().await.expect("begins");
        let lock = sqlx::raw_sql(AssertSqlSafe(lock));
        lock.execute(&mut *session).await.expect("locks");
        session
    }

    pub(super) fn request(&self) -> ImportRequest {
        ImportRequest {
            worker: self.worker,
            lease: Duration::from_secs(60),
            batch: 100,
            max_in_progress: 1000,
            detect_changes: true,
            prune: true,
        }
    }

    pub(super) async fn import(&self) -> Imported {
        let imported = importer(&self.outbox.store).import(&self.request()).await;
        imported.expect("imports")
    }

    pub(super) async fn claim(&self) -> Vec<Delivery> {
        let look = self
            .outbox
            .store
            .find(&Scope::All, None, None, 100)
            .await
            .expect("looks");
        let share = |due: Due| Share {
            backlog: due.backlog,
            limit: 100,
            floor: 0,
            fair: false,
            resume: false,
        };
        let request = ClaimRequest {
            worker: self.worker,
            take: Take::Free(look.due.into_iter().map(share).collect()),
            ..request(100)
        };
        self.outbox.store.claim(&request).await.expect("claims")
    }

    /// Imports and claims one row.
    pub(super) async fn take(&self) -> Delivery {
        self.import().await;
        let mut claimed = self.claim().await;
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        claimed.remove(0)
    }

    pub(super) async fn settle(&self, delivery: &Delivery, verdict: Verdict) {
        let lost = self.settle_late(delivery, verdict).await;
        assert!(lost.is_empty(), "{lost:?}");
    }

    /// Settles a row that may be lost. Returns the lost rows.
    pub(super) async fn settle_late(&self, delivery: &Delivery, verdict: Verdict) -> Vec<Uuid> {
        self.settle_by(&self.outbox.store, delivery, verdict).await
    }

    /// Settles with the store of another process.
    pub(super) async fn settle_by(
        &self,
        store: &Postgres,
        delivery: &Delivery,
        verdict: Verdict,
    ) -> Vec<Uuid> {
        let settled = store.settle(self.worker, &[settlement(delivery, verdict)]).await;
        settled.expect("settles")
    }

    /// The worker that claims.
    pub(super) fn worker(&self) -> Uuid {
        self.worker
    }

    /// The schema of the table.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) async fn drop_schemas(&self) {
        use pillarbox_testkit::store_suite::Harness;
        self.run("drop schema {schema} cascade").await;
        self.outbox.clean_up().await;
    }

    pub(super) async fn clean_up(self) {
        self.drop_schemas().await;
    }
}

/// The importer of the store's only adopted table.
pub(super) fn importer(store: &Postgres) -> Arc<dyn Import> {
    store.importers().into_iter().next().expect("a table is adopted")
}

pub(super) fn settlement(delivery: &Delivery, verdict: Verdict) -> Settlement {
    Settlement {
        id: delivery.id,
        claim: delivery.claim,
        verdict,
        destination: Some("there".to_owned()),
        max_attempts: None,
        unordered: false,
        keep: true,
    }
}

pub(super) fn retry(seconds: u64) -> Verdict {
    Verdict::Retry {
        after: Duration::from_secs(seconds),
        reason: "it failed".to_owned(),
    }
}

pub(super) fn dead() -> Verdict {
    Verdict::Dead {
        reason: "given up".to_owned(),
    }
}
