//! Statistics of a table that is too large to be counted.

use pillarbox_store::{Operate, Scope};
use pillarbox_testkit::store_suite::Harness;
use pillarbox_testkit::{OPERATOR, operator_of};
use uuid::Uuid;

use super::PostgresHarness;

/// An estimate of the whole table would tell a tenant how much the others send.
#[tokio::test]
async fn a_part_of_a_large_table_is_estimated_in_proportion() {
    let harness = PostgresHarness::direct().await;
    let tenant = Uuid::new_v4();
    harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (namespace, topic, payload, status, tenant_id)
             select case when n % 4 = 0 then 'till' else 'shop' end, 'orders', '{{}}', 'delivered',
               case when n % 4 = 0 then '{tenant}'::uuid end
             from generate_series(1, 120000) as n;
             analyze pillarbox.outbox_events"
        ))
        .await;
    let store = &harness.store;
    let all = store.stats(&OPERATOR, &Scope::All).await.expect("stats");
    assert!(
        !all.exact && (110_000..=130_000).contains(&all.delivered),
        "{all:?}"
    );
    let till = store.stats(&OPERATOR, &Scope::of(["till"])).await.expect("stats");
    let ours = store
        .stats(&operator_of(tenant), &Scope::All)
        .await
        .expect("stats");
    for part in [till, ours] {
        assert!((25_000..=35_000).contains(&part.delivered), "a quarter: {part:?}");
    }
    let nothing = store.stats(&OPERATOR, &Scope::of([""; 0])).await.expect("stats");
    let others = store
        .stats(&operator_of(Uuid::new_v4()), &Scope::All)
        .await
        .expect("stats");
    assert_eq!((nothing.delivered, others.delivered), (0, 0));
    harness.clean_up().await;
}
