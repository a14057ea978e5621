//! Who sets quotas, and what is there for them.

use std::collections::BTreeSet;

use pillarbox_store::audit::AuditFilter;
use pillarbox_store::quotas::{Holder, QuotaRecord};
use pillarbox_store::stores::postgres::Postgres;
use pillarbox_store::{Operate, Store, StoreError};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;

use super::super::harness::PostgresHarness;
use super::{OTHER_TENANT, Shop, TENANT};

/// The triggers and indexes of the events, and whether they are valid.
async fn there(harness: &PostgresHarness) -> BTreeSet<String> {
    let sql = "select tgname::text from pg_trigger where tgrelid = 'pillarbox.outbox_events'::regclass and not tgisinternal
         union all
         select c.relname || case when indisvalid then '' else ' is invalid' end
         from pg_index i join pg_class c on c.oid = i.indexrelid where indrelid = 'pillarbox.outbox_events'::regclass";
    let found = sqlx::query_scalar::<_, String>(AssertSqlSafe(harness.sql(sql)));
    let found = found.fetch_all(&harness.pool).await.expect("looks");
    found.into_iter().collect()
}

async fn set(store: &Postgres, holder: &Holder, max_pending: u64) -> Option<u64> {
    let set = store.set_quota(&OPERATOR, holder, max_pending).await;
    set.expect("sets the quota")
}

async fn remove(store: &Postgres, holder: &Holder) -> Option<u64> {
    let removed = store.remove_quota(&OPERATOR, holder).await;
    removed.expect("removes the quota")
}

/// The role of the tests, which owns the outbox.
async fn user(harness: &PostgresHarness) -> String {
    let user = sqlx::query_scalar("select session_user::text").fetch_one(&harness.pool);
    user.await.expect("a name")
}

#[tokio::test]
async fn what_quotas_cost_is_there_while_there_are_quotas() {
    for harness in [
        PostgresHarness::direct().await,
        PostgresHarness::behind_pgbouncer().await,
    ] {
        let store = &harness.store;
        let without = there(&harness).await;
        let added = async || -> Vec<String> { there(&harness).await.difference(&without).cloned().collect() };
        let (role, tenant) = (Holder::Role(user(&harness).await), Holder::Tenant(TENANT));
        assert_eq!(set(store, &tenant, 10).await, None);
        assert_eq!(added().await, ["check_quotas", "outbox_events_by_tenant"]);
        assert_eq!(set(store, &tenant, 11).await, Some(10));
        assert_eq!(set(store, &Holder::EachTenant, 12).await, None);
        assert_eq!(set(store, &role, 13).await, None);
        let all = [
            "check_quotas",
            "note_role",
            "outbox_events_by_role",
            "outbox_events_by_tenant",
        ];
        assert_eq!(added().await, all);
        assert_eq!(remove(store, &tenant).await, Some(11));
        assert_eq!(added().await, all);
        assert_eq!(remove(store, &Holder::EachTenant).await, Some(12));
        assert_eq!(
            added().await,
            ["check_quotas", "note_role", "outbox_events_by_role"]
        );
        assert_eq!(remove(store, &role).await, Some(13));
        assert_eq!(there(&harness).await, without);
        assert_eq!(remove(store, &role).await, None);
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn an_index_that_stayed_behind_is_used_or_dropped() {
    let harness = PostgresHarness::direct().await;
    let without = there(&harness).await;
    let index = include_str!("../../../../src/stores/postgres/sql/tenant_index.sql");
    harness.execute(index).await;
    remove(&harness.store, &Holder::EachTenant).await;
    assert_eq!(there(&harness).await, without);
    harness.execute(index).await;
    set(&harness.store, &Holder::EachTenant, 1).await;
    remove(&harness.store, &Holder::EachTenant).await;
    assert_eq!(there(&harness).await, without);
    harness.clean_up().await;
}

#[tokio::test]
async fn quotas_that_are_set_and_removed_at_once_have_their_index() {
    let harness = PostgresHarness::direct().await;
    let without = there(&harness).await;
    let other = PostgresHarness::beside(&harness);
    let holders = [Holder::Tenant(TENANT), Holder::Tenant(OTHER_TENANT)];
    for _ in 0..3 {
        set(&harness.store, &holders[0], 1).await;
        tokio::join!(set(&harness.store, &holders[1], 1), remove(&other, &holders[0]));
        let added: Vec<String> = there(&harness).await.difference(&without).cloned().collect();
        assert_eq!(added, ["check_quotas", "outbox_events_by_tenant"]);
        remove(&harness.store, &holders[1]).await;
        assert_eq!(there(&harness).await, without);
    }
    other.close().await;
    harness.clean_up().await;
}

#[tokio::test]
async fn only_the_owner_sets_quotas() {
    let shop = Shop::open().await;
    let holder = Holder::Tenant(TENANT);
    for is_set in [false, true] {
        for store in [&shop.producer.1, &shop.writer.1, &shop.dispatcher.1] {
            let denied = store.set_quota(&OPERATOR, &holder, 5).await;
            assert!(matches!(denied, Err(StoreError::Denied(_))), "{denied:?}");
            let denied = store.remove_quota(&OPERATOR, &holder).await;
            assert!(matches!(denied, Err(StoreError::Denied(_))), "{denied:?}");
        }
        if !is_set {
            shop.set(&holder, 5).await;
        }
    }
    let unknown = Holder::Role("no_such_role".to_owned());
    let refused = shop.harness.store.set_quota(&OPERATOR, &unknown, 5).await;
    assert!(
        refused
            .expect_err("is not there")
            .to_string()
            .contains("does not exist")
    );
    for max_pending in [0, 1_000_001] {
        let refused = shop
            .harness
            .store
            .set_quota(&OPERATOR, &holder, max_pending)
            .await;
        assert!(
            refused
                .expect_err("is out of range")
                .to_string()
                .contains("1 to 1000000")
        );
    }
    shop.close().await;
}

#[tokio::test]
async fn quotas_are_listed_with_what_counts_against_them() {
    let shop = Shop::open().await;
    let list = async || shop.harness.store.quotas(&OPERATOR, 10).await.expect("lists");
    assert_eq!(list().await, []);
    shop.set(&Holder::Role(shop.writer.0.clone()), 9).await;
    shop.set(&Holder::EachTenant, 2).await;
    shop.set(&Holder::Tenant(OTHER_TENANT), 7).await;
    shop.insert(3, Some(TENANT)).await.expect("enqueues");
    shop.insert(2, Some(OTHER_TENANT)).await.expect("enqueues");
    shop.count().await;
    let record = |kind: &str, name: Option<String>, max_pending, pending| QuotaRecord {
        kind: kind.to_owned(),
        name,
        max_pending,
        pending,
        exceeded: false,
        own: true,
    };
    let exceeded = QuotaRecord {
        exceeded: true,
        own: false,
        ..record("tenant", Some(TENANT.to_string()), 2, Some(3))
    };
    let expected = [
        record("role", Some(shop.writer.0.clone()), 9, Some(5)),
        record("tenant", None, 2, None),
        record("tenant", Some(OTHER_TENANT.to_string()), 7, Some(2)),
        exceeded,
    ];
    assert_eq!(list().await, expected);
    // Another quota is counted before it rejects anything.
    shop.set(&Holder::EachTenant, 5).await;
    shop.insert(1, Some(TENANT)).await.expect("is within the quota");
    assert_eq!(
        list().await,
        expected[..3]
            .iter()
            .cloned()
            .map(|mut it| {
                if it.name.is_none() {
                    it.max_pending = 5;
                } else if it.kind == "role" {
                    it.pending = Some(6);
                }
                it
            })
            .collect::<Vec<_>>()
    );
    shop.close().await;
}

#[tokio::test]
async fn a_change_of_a_quota_is_audited() {
    let harness = PostgresHarness::direct().await;
    let role = user(&harness).await;
    let holder = Holder::Role(role.clone());
    set(&harness.store, &holder, 5).await;
    set(&harness.store, &holder, 5).await;
    set(&harness.store, &holder, 6).await;
    remove(&harness.store, &holder).await;
    remove(&harness.store, &holder).await;
    let lines = harness.store.audit(&OPERATOR, &AuditFilter::default()).await;
    let seen: Vec<_> = lines
        .expect("lines")
        .into_iter()
        .take(3)
        .map(|line| {
            let of = |value: Option<serde_json::Value>| value.and_then(|value| value["max_pending"].as_u64());
            (line.action, line.objects, of(line.before), of(line.after))
        })
        .collect();
    let shop = || vec![format!("role {role}")];
    assert_eq!(
        seen,
        [
            ("quotas.rm".to_owned(), shop(), Some(6), None),
            ("quotas.set".to_owned(), shop(), Some(5), Some(6)),
            ("quotas.set".to_owned(), shop(), None, Some(5)),
        ]
    );
    harness.clean_up().await;
}

/// A member of the owner sets quotas as the owner would.
#[tokio::test]
async fn a_member_of_the_owner_sets_quotas() {
    let harness = PostgresHarness::direct().await;
    let owner = format!("owner_{}", uuid::Uuid::new_v4().simple());
    harness.execute(&format!("create role {owner} nologin")).await;
    harness
        .store
        .migrate_for(&OPERATOR, &owner)
        .await
        .expect("gives it away");
    let (role, store) = super::super::privileges::as_role(&harness, &format!("grant {owner} to ROLE")).await;
    let holder = Holder::Tenant(TENANT);
    assert_eq!(set(&store, &holder, 5).await, None);
    assert_eq!(remove(&store, &holder).await, Some(5));
    store.check().await.expect("is sound");
    store.close().await;
    harness
        .execute(&format!(
            "drop role {role}; drop owned by {owner} cascade; drop role {owner}"
        ))
        .await;
}
