//! What is rejected, for whom and for how long.

use pillarbox::{EnqueueError, Event};
use pillarbox_store::quotas::Holder;
use pillarbox_store::store::{Member, Routing};
use pillarbox_store::{Scope, Store};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::privileges::as_role;
use super::super::producer::request;
use super::{OTHER_TENANT, Shop, TENANT, enqueue, event, insert, rejected};
use pillarbox_testkit::store_suite::Harness;

/// Every way to enqueue an event of this tenant: the errors, of the database or as the library says it.
async fn each_way(shop: &Shop, tenant: Option<Uuid>) -> Vec<Result<(), String>> {
    let of_tenant = || tenant.into_iter().fold(event(), Event::tenant);
    let id = tenant.map_or("null".to_owned(), |id| format!("'{id}'"));
    let json = tenant.map_or("null".to_owned(), |id| format!("\"{id}\""));
    let calls = [
        format!("select pillarbox.enqueue('shop', 'orders', tenant_id => {id})"),
        format!(
            r#"select pillarbox.enqueue_many('[{{"namespace": "shop", "topic": "o", "tenant_id": {json}}}]')"#
        ),
    ];
    let mut answers = Vec::new();
    for call in calls {
        let call = sqlx::raw_sql(AssertSqlSafe(shop.harness.sql(&call)));
        let answer = call.execute(&shop.producer.1.pool()).await;
        answers.push(answer.map(drop).map_err(|error| rejected::<()>(Err(error))));
    }
    let inserted = shop.insert(1, tenant).await;
    answers.push(inserted.map_err(|error| rejected::<()>(Err(error))));
    for (store, outbox) in [
        (&shop.writer.1, shop.harness.outbox()),
        (&shop.producer.1, shop.harness.outbox().by_function()),
    ] {
        for events in [vec![of_tenant()], vec![of_tenant(), of_tenant()]] {
            answers.push(match enqueue(store, &outbox, &events).await {
                Err(EnqueueError::QuotaExceeded(message)) => Err(message),
                other => {
                    other.expect("enqueues");
                    Ok(())
                }
            });
        }
    }
    answers
}

#[tokio::test]
async fn a_tenant_over_its_quota_is_rejected_each_way_until_events_are_delivered() {
    let shop = Shop::open().await;
    let holder = Holder::Tenant(TENANT);
    shop.set(&holder, 3).await;
    shop.insert(3, Some(TENANT)).await.expect("is within its quota");
    shop.insert(1, Some(OTHER_TENANT)).await.expect("has none");
    assert_eq!(shop.count().await.exceeded, []);
    // A soft bound: what is enqueued before the next count is accepted.
    let accepted = each_way(&shop, Some(TENANT)).await;
    assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
    assert_eq!(shop.count().await.exceeded, [(holder.clone(), 3)]);

    let message = format!(
        "quota exceeded: tenant {TENANT} has more than 3 pending events, which is its limit (try again when some are \
         delivered, or let the owner of the outbox raise it with `pillarbox quota set`)"
    );
    for answer in each_way(&shop, Some(TENANT)).await {
        assert_eq!(answer, Err(message.clone()));
    }
    for tenant in [None, Some(OTHER_TENANT)] {
        let accepted = each_way(&shop, tenant).await;
        assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
    }
    assert_eq!(shop.count().await.exceeded, [], "it is known");
    shop.deliver().await;
    assert_eq!(shop.count().await.within, [(holder, 3)]);
    let accepted = each_way(&shop, Some(TENANT)).await;
    assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
    shop.close().await;
}

#[tokio::test]
async fn a_role_over_its_quota_is_rejected_each_way_until_events_are_delivered() {
    let shop = Shop::open().await;
    shop.insert(9, None).await.expect("before there are quotas");
    let holders = [&shop.producer.0, &shop.writer.0].map(|role| Holder::Role(role.clone()));
    for holder in &holders {
        shop.set(holder, 3).await;
    }
    let accepted = each_way(&shop, None).await;
    assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
    let mut exceeded = shop.count().await.exceeded;
    exceeded.sort();
    let mut expected = holders.clone().map(|holder| (holder, 3));
    expected.sort();
    assert_eq!(exceeded, expected);
    for (answer, holder) in each_way(&shop, Some(TENANT))
        .await
        .into_iter()
        .zip([0, 0, 1, 1, 1, 0, 0])
    {
        let message = answer.expect_err("is rejected");
        let Holder::Role(name) = &holders[holder] else {
            panic!("a role")
        };
        let begin = format!("quota exceeded: role \"{name}\" has more than 3 pending events");
        assert!(message.starts_with(&begin), "{message}");
    }
    insert(&shop.harness, &shop.harness.store, 1, None)
        .await
        .expect("another role enqueues");
    shop.deliver().await;
    assert_eq!(shop.count().await.within.len(), 2);
    let accepted = each_way(&shop, None).await;
    assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
    shop.close().await;
}

#[tokio::test]
async fn a_group_and_its_members_have_one_quota_together() {
    let shop = Shop::open().await;
    let (group, group_store) = (&shop.writer.0, &shop.writer.1);
    let mut members = Vec::new();
    for _ in 0..2 {
        members.push(as_role(&shop.harness, &format!("grant {group} to ROLE")).await);
    }
    shop.set(&Holder::Role(group.clone()), 3).await;
    for (_, store) in &members {
        insert(&shop.harness, store, 2, None)
            .await
            .expect("is within the quota");
    }
    assert_eq!(shop.count().await.exceeded, [(Holder::Role(group.clone()), 3)]);
    for store in members.iter().map(|(_, store)| store).chain([group_store]) {
        rejected(insert(&shop.harness, store, 1, None).await);
    }
    // Neither does another role help that it may choose.
    let as_group = shop.harness.sql(&format!(
        "begin; set local role {group}; insert into pillarbox.outbox_events (namespace, topic, payload) values ('a', 'b', '{{}}')"
    ));
    rejected(
        sqlx::raw_sql(AssertSqlSafe(as_group))
            .execute(&members[0].1.pool())
            .await,
    );
    for (role, store) in members {
        store.close().await;
        super::drop_role(&shop.harness, &role).await;
    }
    shop.close().await;
}

#[tokio::test]
async fn each_tenant_has_the_common_quota_unless_it_has_its_own() {
    let shop = Shop::open().await;
    shop.set(&Holder::EachTenant, 2).await;
    shop.set(&Holder::Tenant(OTHER_TENANT), 9).await;
    for tenant in [TENANT, OTHER_TENANT, Uuid::nil()] {
        shop.insert(3, Some(tenant)).await.expect("enqueues");
    }
    shop.insert(20, None).await.expect("no tenant has no quota");
    let exceeded = shop.count().await.exceeded;
    assert_eq!(
        exceeded,
        [(Holder::Tenant(Uuid::nil()), 2), (Holder::Tenant(TENANT), 2)]
    );
    rejected(shop.insert(1, Some(TENANT)).await);
    rejected(shop.insert(1, Some(Uuid::nil())).await);
    shop.insert(1, Some(OTHER_TENANT)).await.expect("has more");
    shop.insert(1, None).await.expect("has none");
    shop.deliver().await;
    assert_eq!(shop.count().await.within.len(), 2);
    shop.insert(1, Some(TENANT)).await.expect("goes on");
    shop.close().await;
}

/// Under a snapshot that another session holds, every version of a count stays, so a scan gets slower with each count.
#[tokio::test]
async fn an_enqueue_reads_the_counts_of_its_own_holders_only() {
    let shop = Shop::open().await;
    shop.set(&Holder::Role(shop.writer.0.clone()), 1_000_000).await;
    shop.set(&Holder::EachTenant, 1_000_000).await;
    shop.harness
        .execute(
            "insert into pillarbox.over_quota (kind, name, max_pending, counted_at)
             select 'tenant', lpad(to_hex(n), 32, '0')::uuid::text, 1, clock_timestamp() from generate_series(1, 2000) as n;
             insert into pillarbox.over_quota (kind, name, max_pending, counted_at)
             select 'role', 'r' || n, 1, clock_timestamp() from generate_series(1, 200) as n",
        )
        .await;
    let mut transaction = shop.writer.1.pool().begin().await.expect("begins");
    let insert = shop.harness.sql(&format!(
        "insert into pillarbox.outbox_events (namespace, topic, tenant_id, payload) values ('shop', 'orders', '{TENANT}', '{{}}')"
    ));
    sqlx::raw_sql(AssertSqlSafe(insert))
        .execute(&mut *transaction)
        .await
        .expect("enqueues");
    let read = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint, coalesce(sum(seq_scan + idx_scan), 0)::bigint
         from pg_stat_xact_all_tables where relid = any($1::regclass[])";
    let mut reads = Vec::new();
    for table in [
        format!("{}.over_quota", shop.harness.store.schema()),
        "pg_catalog.pg_auth_members".to_owned(),
    ] {
        let read: (i64, i64) = sqlx::query_as(read)
            .bind(vec![table])
            .fetch_one(&mut *transaction)
            .await
            .expect("reads statistics");
        reads.push(read);
    }
    assert!(reads[0].0 < 10, "{} rows of over_quota", reads[0].0);
    assert!(reads[1].1 < 10, "{} looks at memberships", reads[1].1);
    transaction.rollback().await.expect("rolls back");
    shop.close().await;
}

#[tokio::test]
async fn an_outdated_count_rejects_nothing() {
    let shop = Shop::open().await;
    shop.set(&Holder::Tenant(TENANT), 1).await;
    shop.insert(2, Some(TENANT)).await.expect("enqueues");
    shop.count().await;
    // A worker that counts millions of rows takes minutes until it counts a holder again.
    shop.age(590).await;
    rejected(shop.insert(1, Some(TENANT)).await);
    shop.age(11).await;
    shop.insert(1, Some(TENANT)).await.expect("no worker counts");
    shop.close().await;
}

#[tokio::test]
async fn a_rejected_enqueue_costs_the_caller_one_statement() {
    let shop = Shop::open().await;
    shop.set(&Holder::Tenant(TENANT), 1).await;
    shop.insert(2, Some(TENANT)).await.expect("enqueues");
    shop.count().await;
    let outbox = shop.harness.outbox().by_function();
    let mut transaction = shop.producer.1.pool().begin().await.expect("begins");
    let one = outbox.enqueue(&mut transaction, &event()).await;
    assert!(one.expect("enqueues").is_new());
    sqlx::raw_sql("savepoint before")
        .execute(&mut *transaction)
        .await
        .expect("sets a savepoint");
    let refused = outbox.enqueue(&mut transaction, &event().tenant(TENANT)).await;
    assert!(
        matches!(refused, Err(EnqueueError::QuotaExceeded(_))),
        "{refused:?}"
    );
    sqlx::raw_sql("rollback to before")
        .execute(&mut *transaction)
        .await
        .expect("goes back");
    let two = outbox.enqueue(&mut transaction, &event()).await;
    assert!(two.expect("enqueues").is_new());
    transaction.commit().await.expect("commits");
    let claimed = shop.dispatcher.1.claim(&request(10)).await.expect("claims");
    assert_eq!(claimed.len(), 4);
    shop.close().await;
}

#[tokio::test]
async fn a_duplicate_and_a_retry_are_no_new_events() {
    let shop = Shop::open().await;
    shop.set(&Holder::Tenant(TENANT), 1).await;
    let key = format!("{TENANT}/a");
    let events = [event().tenant(TENANT).dedupe_key(&key), event().tenant(TENANT)];
    enqueue(&shop.writer.1, &shop.harness.outbox(), &events)
        .await
        .expect("enqueues");
    assert_eq!(shop.count().await.exceeded.len(), 1);
    for (store, outbox) in [
        (&shop.writer.1, shop.harness.outbox()),
        (&shop.producer.1, shop.harness.outbox().by_function()),
    ] {
        let again = [event().tenant(TENANT).dedupe_key(&key)];
        enqueue(store, &outbox, &again).await.expect("is a duplicate");
    }
    let retried = shop
        .harness
        .operate()
        .retry(&pillarbox_testkit::OPERATOR, &[events[0].id])
        .await;
    assert_eq!(retried.expect("retries"), [events[0].id]);
    shop.close().await;
}

#[tokio::test]
async fn what_the_dispatcher_inserts_is_never_rejected_and_counts_for_the_role_of_its_event() {
    let shop = Shop::open().await;
    let writer = Holder::Role(shop.writer.0.clone());
    shop.set(&Holder::Tenant(TENANT), 1).await;
    shop.set(&writer, 2).await;
    shop.set(&Holder::Role(shop.dispatcher.0.clone()), 1).await;
    shop.insert(2, Some(TENANT)).await.expect("enqueues");
    assert_eq!(shop.count().await.exceeded, [(Holder::Tenant(TENANT), 1)]);

    let request = request(1);
    let store = &shop.dispatcher.1;
    let claimed = store.claim(&request).await.expect("claims");
    let members = ["a", "b", "c"].iter().enumerate().map(|(place, name)| Member {
        id: if place == 0 { claimed[0].id } else { Uuid::now_v7() },
        destination: (*name).to_owned(),
        max_attempts: None,
    });
    let routing = Routing {
        id: claimed[0].id,
        claim: request.claim,
        members: members.collect(),
    };
    let routed = store
        .route(request.worker, &[routing])
        .await
        .expect("writes the family");
    assert!(routed.lost.is_empty() && routed.waiting.is_empty());
    assert_eq!(shop.count().await.exceeded, [(writer, 2)]);
    let counted = store.pending(&Scope::All).await.expect("counts");
    assert_eq!(counted, Some(1));
    shop.close().await;
}
