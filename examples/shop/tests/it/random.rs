//! Random services are killed with `kill -9` while orders of all kinds are processed.

use std::time::Duration;

use crate::fixture::{Fixture, SERVICES};

const ROUNDS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn every_order_ends_whole_although_services_are_killed_at_random() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // Short enough that steps time out while a service is down. So there are retries and ambiguous commands.
    let fixture = Fixture::open_to_kill("3s").await;
    let mut services = fixture.start_all();
    let mut kills = 0;
    for _ in 0..ROUNDS {
        fixture.order(&["--count", "6"]).await;
        fixture.order(&["--count", "2", "--card", "expired"]).await;
        fixture.order(&["--count", "2", "--item", "unicorn"]).await;
        fixture.order(&["--count", "2", "--address", "nowhere"]).await;
        for _ in 0..3 {
            // Not to wait for a fact: the moment of the kill is random.
            tokio::time::sleep(Duration::from_millis(random.u64(50..500))).await;
            let victim = SERVICES[random.usize(..SERVICES.len())];
            services.remove(victim).unwrap().kill();
            services.insert(victim, fixture.start(victim));
            kills += 1;
        }
    }
    let totals = fixture.check_ledger(services).await;
    println!("{kills} kills, {totals:?}");
    assert_eq!(totals.confirmed + totals.cancelled, 120);
    // Orders that could be done may have timed out. Orders that could not be done were not done.
    assert!(totals.cancelled >= 60, "{totals:?}");
    let impossible = "select count(*) from shop.orders o join pillarbox.sagas s on s.id = o.id::text
         where o.status = 'confirmed'
         and (s.data ->> 'card' = 'expired' or s.data ->> 'address' = 'nowhere' or o.item = 'unicorn')";
    assert_eq!(fixture.count(impossible).await, 0);
    fixture.close().await;
}
