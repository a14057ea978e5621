//! The plans of what runs often: by index, and bounded however large the table is.

use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;

use super::harness::PostgresHarness;

/// A table with history: many rows delivered, few to do.
async fn with_history(statistics: bool) -> PostgresHarness {
    let harness = PostgresHarness::direct().await;
    harness
        .execute(
            "insert into pillarbox.outbox_events (namespace, topic, payload, status, delivered_at)
             select 'shop', 'orders', '{}', 'delivered', now() from generate_series(1, 10000)",
        )
        .await;
    harness
        .execute(
            "insert into pillarbox.outbox_events (namespace, topic, payload)
             select 'shop', 'orders', '{}' from generate_series(1, 50)",
        )
        .await;
    if statistics {
        harness.execute("analyze pillarbox.outbox_events").await;
    }
    harness
}

/// The plan of a statement with the settings of the store's own transactions, and no sequential scan in it.
async fn plan(harness: &PostgresHarness, sql: &str, settings: bool) -> String {
    let mut transaction = harness.pool.begin().await.expect("begins");
    if settings {
        let settings = "set local enable_seqscan = off; set local enable_bitmapscan = off; \
                        set local enable_mergejoin = off; set local jit = off";
        sqlx::raw_sql(settings)
            .execute(&mut *transaction)
            .await
            .expect("sets");
    }
    let explain = format!(
        "explain (analyze, costs off, timing off, summary off) {}",
        harness.sql(sql)
    );
    let rows: Vec<String> = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_all(&mut *transaction)
        .await
        .expect("explains")
        .iter()
        .map(|row| sqlx::Row::get(row, 0))
        .collect();
    transaction.rollback().await.expect("rolls back");
    let plan = rows.join("\n");
    assert!(!plan.contains("Seq Scan on outbox_events"), "{plan}");
    plan
}

fn claim_with_values() -> String {
    let uuid = "'00000000-0000-0000-0000-000000000001'::uuid";
    include_str!("../../../src/stores/postgres/sql/claim.sql")
        .replace("$1", uuid)
        .replace("$2", uuid)
        .replace("$3", "interval '1 minute'")
        .replace("$4", "1000::bigint")
        .replace("$5", "16::bigint")
        .replace("$6", "25")
        .replace("$7", "null")
        .replace("$8", "1000000::bigint")
}

#[tokio::test]
async fn a_claim_uses_its_indexes_and_reads_what_it_takes() {
    for statistics in [false, true] {
        let harness = with_history(statistics).await;
        let plan = plan(&harness, &claim_with_values(), true).await;
        for index in [
            "outbox_events_fresh",
            "outbox_events_waiting",
            "outbox_events_leased",
            "outbox_events_pkey",
        ] {
            assert!(plan.contains(index), "{index} is missing: {plan}");
        }
        assert!(!plan.contains("rows=10"), "something read the history: {plan}");
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn the_idle_probe_uses_its_indexes_without_any_setting() {
    for statistics in [false, true] {
        let harness = with_history(statistics).await;
        harness
            .execute("update pillarbox.outbox_events set status = 'delivered' where status = 'pending'")
            .await;
        let probe = include_str!("../../../src/stores/postgres/sql/is_due.sql");
        let plan = plan(&harness, probe, false).await;
        for index in [
            "outbox_events_fresh",
            "outbox_events_waiting",
            "outbox_events_leased",
        ] {
            assert!(plan.contains(index), "{index} is missing: {plan}");
        }
        harness.clean_up().await;
    }
}

/// A settle and a renewal look up the rows that they name, however many. By the index of leases they would read all that
/// is or was in somebody's hands, and by a join over the whole primary key all there is.
#[tokio::test]
async fn what_names_its_rows_looks_them_up() {
    let uuid = "'00000000-0000-0000-0000-000000000003'::uuid";
    for (statistics, batch) in [(false, 2), (true, 2), (false, 2000), (true, 2000)] {
        let array = |item: &str| format!("array[{}]", vec![item; batch].join(", "));
        let ids: Vec<String> = (0..batch)
            .map(|n| format!("'{}'::uuid", uuid::Uuid::from_u128(n as u128)))
            .collect();
        let ids = format!("array[{}]", ids.join(", "));
        let statements = [
            include_str!("../../../src/stores/postgres/sql/settle_delivered.sql")
                .replace("$4", &array("'a'"))
                .replace("$5", &array("1")),
            include_str!("../../../src/stores/postgres/sql/settle_other.sql")
                .replace("$4", &array("'retry'"))
                .replace("$5", &array("interval '1 s'"))
                .replace("$6", &array("'a'"))
                .replace("$7", &array("'a'"))
                .replace("$8", &array("1")),
            include_str!("../../../src/stores/postgres/sql/renew.sql").replace("$4", "interval '1 minute'"),
        ];
        let harness = with_history(statistics).await;
        for statement in statements {
            let sql = statement
                .replace("$1", uuid)
                .replace("$2", &ids)
                .replace("$3", &ids);
            let plan = plan(&harness, &sql, true).await;
            assert!(plan.contains("id = ANY"), "{plan}");
            assert!(!plan.contains("outbox_events_leased"), "{plan}");
            assert!(!plan.contains("rows=10"), "something read the history: {plan}");
        }
        harness.clean_up().await;
    }
}
