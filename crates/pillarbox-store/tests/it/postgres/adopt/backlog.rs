//! A backlog: importing a row costs the same however many rows wait, on the indexes that each system's own schema has.
//! Counted in rows, not in time.

use std::time::Duration;

use pillarbox_store::adopt::ImportRequest;
use uuid::Uuid;

use super::harness::{Adopted, importer};
use super::large::settled;
use super::seeds::{ARAP, DEBEZIUM, FAMILY_HUB, MODKIT, ORDER_SERVICE, REDIVER, Seed};

/// The cost of a row among many may be so many times that of a row among few.
const MOST: f64 = 1.3;

/// Rows as the system's producers insert them, `{id}` and a position `{n}`.
struct Backlog {
    seed: Seed,
    columns: &'static str,
    values: &'static str,
}

impl Backlog {
    /// The cost of a row is the same among 10,000 and among 100,000.
    async fn check(&self) {
        let few = self.fetched_per_row(10_000).await;
        let many = self.fetched_per_row(100_000).await;
        println!(
            "{}: {few:.2} rows are fetched per row among 10,000, {many:.2} among 100,000",
            self.seed.name
        );
        assert!(many <= few * MOST, "{}: {few:.2}, then {many:.2}", self.seed.name);
    }

    /// Imports all rows in batches, as the dispatcher does, and returns how many rows of the table were fetched for each.
    async fn fetched_per_row(&self, rows: i32) -> f64 {
        let adopted = Adopted::new(self.seed).await;
        self.insert(&adopted, rows).await;
        let before = settled(&adopted).await;
        let store = &adopted.outbox.store;
        let mut imported = 0;
        for round in 0.. {
            let request = ImportRequest {
                worker: Uuid::from_u128(7),
                lease: Duration::from_secs(600),
                batch: 100,
                max_in_progress: 1_000_000,
                detect_changes: round == 0,
                prune: false,
            };
            let done = importer(store).import(&request).await.expect("imports");
            imported += done.rows;
            if !done.more {
                break;
            }
        }
        assert_eq!(imported, usize::try_from(rows).expect("few"));
        // A backend reports its counts when it ends.
        store.close().await;
        let fetched = settled(&adopted).await - before;
        adopted.drop_schemas().await;
        let fetched = i32::try_from(fetched).expect("it is not quadratic");
        f64::from(fetched) / f64::from(rows)
    }

    async fn insert(&self, adopted: &Adopted, rows: i32) {
        let place = self.seed.place;
        if place.ends_with("notification_outbox") {
            adopted
                .run("insert into {schema}.tenants values ('00000000-0000-7000-8000-000000000000')")
                .await;
        }
        // Ids in no order, as those of version 4 are.
        let id = "md5(n::text)::uuid";
        let values = self.values.replace("{id}", id);
        adopted
            .run(&format!(
                "alter table {place} set (autovacuum_enabled = false);
                 insert into {place} ({columns}) select {values} from generate_series(1, {rows}) as n;
                 analyze {place}",
                columns = self.columns
            ))
            .await;
    }
}

#[tokio::test]
async fn a_row_of_arap_costs_the_same_in_any_backlog() {
    let backlog = Backlog {
        seed: ARAP,
        columns: r#""Id", "Type", "Content", "OccurredOnUtc""#,
        values: "{id}, 't', '{}', now() - make_interval(secs => n)",
    };
    backlog.check().await;
}

#[tokio::test]
async fn a_row_of_modkit_costs_the_same_in_any_backlog() {
    let backlog = Backlog {
        seed: MODKIT,
        columns: "id, namespace, topic, payload, status, created_at",
        values: "{id}, 'n', 't', '{}', 'pending', now() - make_interval(secs => n)",
    };
    backlog.check().await;
}

#[tokio::test]
async fn a_row_of_rediver_costs_the_same_in_any_backlog() {
    let backlog = Backlog {
        seed: REDIVER,
        columns: "id, tenant_id, event_type, aggregate_type, title, status, scheduled_at",
        values: "{id}, '00000000-0000-7000-8000-000000000000', 'e', 'a', 't',
          case n % 2 when 0 then 'pending' else 'failed' end, now() - make_interval(secs => n)",
    };
    backlog.check().await;
}

#[tokio::test]
async fn a_row_of_family_hub_costs_the_same_in_any_backlog() {
    let backlog = Backlog {
        seed: FAMILY_HUB,
        columns: "event_id, event_type, event_version, aggregate_type, aggregate_id, payload, status, created_at, updated_at",
        values: "{id}, 'E', 1, 'A', {id}, '{}', 0, now() - make_interval(secs => n), now()",
    };
    backlog.check().await;
}

/// All rows have the same time, as those of one transaction have.
#[tokio::test]
async fn a_row_of_order_service_costs_the_same_in_any_backlog() {
    let backlog = Backlog {
        seed: ORDER_SERVICE,
        columns: "id, aggregate_type, aggregate_id, event_type, payload, status, created_at",
        values: "{id}, 'Order', {id}, 'OrderCreated', '{}', 'NEW', now()",
    };
    backlog.check().await;
}

#[tokio::test]
async fn a_row_of_debezium_costs_the_same_in_any_backlog() {
    let backlog = Backlog {
        seed: DEBEZIUM,
        columns: "id, aggregatetype, aggregateid, type, payload",
        values: "{id}, 'order', {id}, 'OrderCreated', '{}'",
    };
    backlog.check().await;
}
