//! Large tables: an import does not read delivered rows, by the table's own indexes. Counted in rows, not in time.

use std::time::Duration;

use pillarbox_store::adopt::ImportRequest;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::{Adopted, importer};
use super::seeds::{ARAP, FAMILY_HUB, MODKIT, ORDER_SERVICE, REDIVER, Seed};
use pillarbox_testkit::wait::until_some;

const BATCH: usize = 100;

fn request(batch: usize, max_in_progress: usize) -> ImportRequest {
    ImportRequest {
        worker: Uuid::from_u128(7),
        lease: Duration::from_secs(60),
        batch,
        max_in_progress,
        detect_changes: true,
        prune: false,
    }
}

/// Rows of the table that were fetched since it was created, once the server has counted them.
async fn fetched(adopted: &Adopted) -> i64 {
    let sql = format!(
        "select (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_all_tables
         where relid = '{}'::regclass",
        adopted.place()
    );
    sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_one(&adopted.outbox.pool)
        .await
        .expect("counts")
}

/// Rows fetched by one import. A backend reports its counts when it ends, so the store is closed here.
async fn fetched_by_one_import(adopted: &Adopted) -> i64 {
    let before = settled(adopted).await;
    let store = &adopted.outbox.store;
    let imported = importer(store)
        .import(&request(BATCH, 1000))
        .await
        .expect("imports");
    assert_eq!(imported.rows, BATCH, "{}", adopted.seed.name);
    store.close().await;
    until_some("the server counts", async || {
        let after = settled(adopted).await;
        (after > before).then_some(after - before)
    })
    .await
}

/// The count when it no longer changes.
pub(super) async fn settled(adopted: &Adopted) -> i64 {
    loop {
        let before = fetched(adopted).await;
        sqlx::query("select pg_sleep(0.5)")
            .execute(&adopted.outbox.pool)
            .await
            .expect("waits");
        if fetched(adopted).await == before {
            return before;
        }
    }
}

/// Delivered rows first, then as many as ten imports read.
async fn fill(adopted: &Adopted, delivered: u32, columns: &str, done: &str, new: &str) {
    let place = adopted.seed.place;
    let id = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";
    adopted
        .run(&format!("alter table {place} set (autovacuum_enabled = false)"))
        .await;
    if place.ends_with("notification_outbox") {
        adopted
            .run("insert into {schema}.tenants values (gen_random_uuid())")
            .await;
    }
    for (from, to, values) in [(1, delivered, done), (delivered + 1, delivered + 1000, new)] {
        let values = values.replace("{id}", id);
        adopted
            .run(&format!(
                "insert into {place} ({columns}) select {values} from generate_series({from}, {to}) as n"
            ))
            .await;
    }
    adopted.run(&format!("analyze {place}")).await;
}

/// A table, and how many delivered rows it has.
struct Large {
    seed: Seed,
    delivered: u32,
    columns: &'static str,
    done: &'static str,
    new: &'static str,
}

/// The thousand waiting rows once, to list them. Each row of the batch twice, to choose and to lock it.
const FETCHED: i64 = 1500;

impl Large {
    async fn check(self) {
        let adopted = Adopted::new(self.seed).await;
        fill(&adopted, self.delivered, self.columns, self.done, self.new).await;
        let fetched = fetched_by_one_import(&adopted).await;
        assert!(
            fetched <= FETCHED,
            "{}: {fetched} rows were fetched for {BATCH}",
            self.seed.name
        );
        adopted.drop_schemas().await;
    }
}

#[tokio::test]
async fn a_million_sent_rows_are_not_read() {
    let large = Large {
        seed: ORDER_SERVICE,
        delivered: 1_000_000,
        columns: "id, aggregate_type, aggregate_id, event_type, payload, status, created_at",
        done: "{id}, 'Order', {id}, 'OrderCreated', '{}', 'SENT', now() - interval '1 day'",
        new: "{id}, 'Order', {id}, 'OrderCreated', '{}', 'NEW', now() + make_interval(secs => n)",
    };
    large.check().await;
}

#[tokio::test]
async fn published_events_of_families_are_not_read() {
    let large = Large {
        seed: FAMILY_HUB,
        delivered: 100_000,
        columns: "event_id, event_type, event_version, aggregate_type, aggregate_id, payload, status, created_at, updated_at",
        done: "{id}, 'E', 1, 'A', {id}, '{}', 1, now() - interval '1 day', now()",
        new: "{id}, 'E', 1, 'A', {id}, '{}', 0, now() + make_interval(secs => n), now()",
    };
    large.check().await;
}

#[tokio::test]
async fn completed_notifications_are_not_read() {
    let large = Large {
        seed: REDIVER,
        delivered: 100_000,
        columns: "id, tenant_id, event_type, aggregate_type, title, status, scheduled_at",
        done: "{id}, (select id from {schema}.tenants), 'e', 'a', 't', 'completed', now() - interval '1 day'",
        new: "{id}, (select id from {schema}.tenants), 'e', 'a', 't', 'pending', now() - make_interval(secs => 2000 - n % 2000)",
    };
    large.check().await;
}

#[tokio::test]
async fn processed_messages_are_not_read() {
    let large = Large {
        seed: ARAP,
        delivered: 100_000,
        columns: r#""Id", "Type", "Content", "OccurredOnUtc", "ProcessedOnUtc""#,
        done: "{id}, 't', '{}', now() - interval '1 day', now()",
        new: "{id}, 't', '{}', now() + make_interval(secs => n), null",
    };
    large.check().await;
}

#[tokio::test]
async fn delivered_events_of_modules_are_not_read() {
    let large = Large {
        seed: MODKIT,
        delivered: 100_000,
        columns: "id, namespace, topic, payload, status, created_at",
        done: "{id}, 'n', 't', '{}', 'delivered', now() - interval '1 day'",
        new: "{id}, 'n', 't', '{}', 'pending', now() - make_interval(secs => 2000 - n % 2000)",
    };
    large.check().await;
}

#[tokio::test]
async fn detecting_changes_reads_only_rows_in_progress() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let columns = "id, aggregate_type, aggregate_id, event_type, payload, status, created_at";
    let done = "{id}, 'Order', {id}, 'OrderCreated', '{}', 'SENT', now() - interval '1 day'";
    let new = "{id}, 'Order', {id}, 'OrderCreated', '{}', 'NEW', now() + make_interval(secs => n)";
    fill(&adopted, 50_000, columns, done, new).await;
    let store = &adopted.outbox.store;
    let imported = importer(store).import(&request(BATCH, 1000)).await;
    assert_eq!(imported.expect("imports").rows, BATCH);
    let fetched = fetched_by_one_import(&adopted).await;
    // Rows in progress are read twice: to detect changes, and to step over them. The server counts some reads late.
    assert!(fetched <= 2 * FETCHED, "{fetched} rows were fetched");
    adopted.drop_schemas().await;
}

#[tokio::test]
async fn no_more_rows_than_the_limit_are_in_progress() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    adopted
        .run(
            "insert into {schema}.outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
             select gen_random_uuid(), 'Order', gen_random_uuid(), 'OrderCreated', '{}', 'NEW', now()
             from generate_series(1, 10300)",
        )
        .await;
    let import = async || {
        let store = &adopted.outbox.store;
        importer(store)
            .import(&request(4000, 10_000))
            .await
            .expect("imports")
    };
    for expected in [4000, 4000, 2000, 0] {
        let imported = import().await;
        assert_eq!((imported.rows, imported.full), (expected, expected == 0));
    }
    for delivery in adopted.claim().await {
        adopted
            .settle(&delivery, pillarbox_store::Verdict::Delivered)
            .await;
    }
    assert_eq!(import().await.rows, 100, "as many as have ended");
    adopted.drop_schemas().await;
}

#[tokio::test]
async fn a_full_import_continues_with_its_list() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    adopted
        .run(
            "insert into {schema}.outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
             select gen_random_uuid(), 'Order', gen_random_uuid(), 'OrderCreated', '{}', 'NEW',
               now() + make_interval(secs => n)
             from generate_series(1, 300) as n",
        )
        .await;
    let import = async || {
        let request = ImportRequest {
            detect_changes: false,
            prune: false,
            ..request(40, 100)
        };
        importer(&adopted.outbox.store)
            .import(&request)
            .await
            .expect("imports")
    };
    for expected in [40, 40, 20, 0, 0] {
        assert_eq!(import().await.rows, expected);
    }
    // A late commit is found when the list has been imported.
    let late = adopted.produce().await;
    adopted
        .change(late, "created_at = now() - interval '1 hour'")
        .await;
    let mut seen = 0;
    while seen < 301 {
        let claimed = adopted.claim().await;
        assert!(!claimed.is_empty(), "{seen} rows came, and no more");
        for delivery in claimed {
            seen += 1;
            assert_eq!(delivery.event.id == late, seen == 301, "{seen}");
            adopted
                .settle(&delivery, pillarbox_store::Verdict::Delivered)
                .await;
        }
        import().await;
        import().await;
    }
    adopted.drop_schemas().await;
}
