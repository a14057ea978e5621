//! Who counts, and what it costs.

use pillarbox_store::quotas::{Counted, Holder};
use pillarbox_store::{Store, StoreError};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::{Shop, TENANT};

#[tokio::test]
async fn the_worker_that_started_first_counts_for_all() {
    let shop = Shop::open().await;
    shop.set(&Holder::Tenant(TENANT), 1).await;
    shop.insert(2, Some(TENANT)).await.expect("enqueues");
    let later = Uuid::new_v4();
    shop.start(later).await;
    let store = &shop.dispatcher.1;
    let count = async |worker| {
        let counted = store.count_quotas(worker, None).await.expect("asks");
        counted.expect("PostgreSQL has quotas")
    };
    assert_eq!(count(later).await, Counted::default());
    assert_eq!(
        count(Uuid::new_v4()).await,
        Counted::default(),
        "it has not started"
    );
    assert_eq!(count(shop.worker).await.exceeded.len(), 1);
    shop.age(5).await;
    store.deregister(shop.worker).await.expect("stops");
    shop.insert(0, None).await.expect("enqueues nothing");
    shop.deliver().await;
    assert_eq!(count(later).await.within.len(), 1);
    shop.close().await;
}

/// Adds tenants by number, with so many pending events each.
async fn tenants(harness: &PostgresHarness, tenants: u32, events: u32) {
    harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id)
             select 'shop', 'orders', '{{}}', lpad(to_hex(n % {tenants}), 32, '0')::uuid
             from generate_series(0, {}) as n",
            i64::from(tenants * events) - 1
        ))
        .await;
}

#[tokio::test]
async fn a_pass_over_many_quotas_is_cut_and_misses_none() {
    let shop = Shop::open().await;
    shop.set(&Holder::Tenant(TENANT), 5).await;
    shop.set(&Holder::Role(shop.writer.0.clone()), 5).await;
    // Tenants 0 to 2,999, the odd ones with a quota of one.
    tenants(&shop.harness, 3000, 2).await;
    shop.harness
        .execute(
            "insert into pillarbox.quotas (kind, name, max_pending)
             select 'tenant', lpad(to_hex(2 * n + 1), 32, '0')::uuid::text, 1 from generate_series(0, 1499) as n;
             insert into pillarbox.quotas (kind, name, max_pending) select 'role', 'r' || n, 1 from generate_series(0, 1499) as n",
        )
        .await;
    let count = async |after: Option<Holder>| {
        let counted = shop.dispatcher.1.count_quotas(shop.worker, after.as_ref()).await;
        counted.expect("counts").expect("PostgreSQL has quotas")
    };
    let first = count(None).await;
    let Some(Holder::Role(_)) = first.after else {
        panic!("a thousand roles: {first:?}")
    };
    let second = count(first.after).await;
    let Some(Holder::Tenant(_)) = second.after else {
        panic!("all roles and a thousand tenants: {second:?}")
    };
    let third = count(second.after).await;
    assert_eq!(third.after, None);
    assert_eq!(
        first.exceeded.len() + second.exceeded.len() + third.exceeded.len(),
        1500
    );

    // With a quota for each tenant, the tenants with events are stepped over.
    shop.harness.execute("delete from pillarbox.over_quota").await;
    shop.set(&Holder::EachTenant, 1).await;
    assert_eq!(shop.count().await.exceeded.len(), 3000);
    shop.close().await;
}

#[tokio::test]
async fn a_call_counts_a_bounded_number_of_rows() {
    let shop = Shop::open().await;
    shop.set(&Holder::EachTenant, 9000).await;
    tenants(&shop.harness, 5, 9001).await;
    let store = &shop.dispatcher.1;
    let count = async |after: Option<Holder>| {
        let counted = store.count_quotas(shop.worker, after.as_ref()).await;
        counted.expect("counts").expect("PostgreSQL has quotas")
    };
    let first = count(None).await;
    assert_eq!(
        (first.exceeded.len(), first.after.clone()),
        (3, Some(Holder::Tenant(Uuid::from_u128(2))))
    );
    assert_eq!(count(first.after).await.exceeded.len(), 2);
    shop.close().await;
}

#[tokio::test]
async fn holders_over_their_quota_keep_no_other_from_being_counted() {
    let shop = Shop::open().await;
    shop.set(&Holder::Tenant(Uuid::nil()), 20_000).await;
    shop.set(&Holder::Tenant(TENANT), 1).await;
    // Counted again, it uses up what a call may count.
    tenants(&shop.harness, 1, 20_001).await;
    shop.insert(2, Some(TENANT)).await.expect("enqueues");
    let mut after = None;
    let mut exceeded = Vec::new();
    for _ in 0..3 {
        shop.age(5).await;
        let counted = shop.dispatcher.1.count_quotas(shop.worker, after.as_ref()).await;
        let counted = counted.expect("counts").expect("PostgreSQL has quotas");
        exceeded.extend(counted.exceeded);
        after = counted.after;
    }
    let expected = [(Holder::Tenant(Uuid::nil()), 20_000), (Holder::Tenant(TENANT), 1)];
    assert_eq!(exceeded, expected);
    shop.close().await;
}

/// In blocks, because time depends on the machine.
#[tokio::test]
async fn a_count_reads_neither_history_nor_more_than_the_quota_and_one() {
    let shop = Shop::open().await;
    shop.set(&Holder::Tenant(Uuid::nil()), 100).await;
    shop.set(&Holder::Role(shop.writer.0.clone()), 100).await;
    // Before what is pending: a scan of the table would read it first.
    shop.harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id, enqueued_by, status)
             select 'shop', 'orders', '{{}}', '{}', '{}', 'delivered' from generate_series(1, 20000)",
            Uuid::nil(),
            shop.writer.0
        ))
        .await;
    tenants(&shop.harness, 1, 5000).await;
    shop.insert(5000, None).await.expect("enqueues");
    for statistics in [false, true] {
        if statistics {
            shop.harness.execute("analyze pillarbox.outbox_events").await;
        }
        let count = format!("pillarbox.count_pending('tenant', '{}', 100)", Uuid::nil());
        let read = blocks(&shop.harness, &count).await;
        assert!(read < 400, "{read} blocks of a tenant");
        // A server with many roles has many blocks of them.
        let role = &shop.writer.0;
        let members = blocks(&shop.harness, &format!("pillarbox.members('{role}')")).await;
        let count = format!("pillarbox.count_pending('role', '{role}', 100)");
        let read = blocks(&shop.harness, &count).await.saturating_sub(members);
        assert!(read < 400, "{read} blocks of a role");
    }
    shop.close().await;
}

/// How many blocks it reads.
async fn blocks(harness: &PostgresHarness, expression: &str) -> u64 {
    let explain = harness.sql(&format!(
        "explain (analyze, buffers, format json) select {expression}"
    ));
    // Once before: the first call in a session reads the catalog to plan, more of it the more tables and roles a server has.
    let first = harness.sql(&format!("do $$ begin perform {expression}; end $$"));
    let sql = format!("begin; set local enable_seqscan = off; {first}; {explain}; commit");
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&harness.pool).await;
    let plan: serde_json::Value = sqlx::Row::get(&rows.expect("explains")[0], 0);
    let blocks = |kind: &str| plan[0]["Plan"][kind].as_u64().expect("a number");
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

#[tokio::test]
async fn a_missing_index_is_an_error_and_no_count_of_the_whole_table() {
    let shop = Shop::open().await;
    shop.set(&Holder::EachTenant, 5).await;
    shop.harness
        .execute("drop index pillarbox.outbox_events_by_tenant")
        .await;
    let failed = shop.dispatcher.1.count_quotas(shop.worker, None).await;
    let Err(StoreError::Other(why)) = failed else {
        panic!("{failed:?}")
    };
    assert!(why.contains("run `pillarbox quota set` again"), "{why}");
    shop.set(&Holder::EachTenant, 5).await;
    shop.count().await;
    shop.close().await;
}
