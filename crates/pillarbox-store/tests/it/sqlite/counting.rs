//! Statistics of a table that is too large to be counted.

use pillarbox_store::{Operate, Scope};
use pillarbox_testkit::OPERATOR;

use super::SqliteHarness;

#[tokio::test]
async fn a_large_outbox_is_counted_within_bounds_and_says_so() {
    let outbox = SqliteHarness::fresh().await;
    outbox
        .run(
            "with recursive n (n) as (select 1 union all select n + 1 from n where n < 60000)
             insert into outbox_events (namespace, topic, payload, status)
             select iif(n % 4 = 0, 'till', 'shop'), 'orders', '{}',
               iif(n <= 25000, 'pending', iif(n % 1000 = 0, 'dead', 'delivered'))
             from n",
        )
        .await;
    let stats = outbox.store.stats(&OPERATOR, &Scope::All).await.expect("stats");
    assert!(!stats.exact);
    assert_eq!(
        (stats.pending, stats.dead),
        (20_000, 35),
        "what is capped, and what an index tells"
    );
    assert!(
        (50_000..=60_000).contains(&stats.delivered),
        "an estimate from the newest rows: {stats:?}"
    );
    let till = outbox
        .store
        .stats(&OPERATOR, &Scope::of(["till"]))
        .await
        .expect("stats");
    assert!(
        (12_000..=15_000).contains(&till.delivered),
        "a quarter of it: {till:?}"
    );
    assert_eq!(till.pending, 6_250);

    outbox.run("delete from outbox_events where rowno <= 45000").await;
    let stats = outbox.store.stats(&OPERATOR, &Scope::All).await.expect("stats");
    assert!(stats.exact);
    assert_eq!((stats.pending, stats.delivered, stats.dead), (0, 14_985, 15));
}
