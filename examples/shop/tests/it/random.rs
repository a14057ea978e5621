//! Random services are killed with `kill -9` while orders of all kinds are under way.

use std::time::Duration;

use crate::world::{SERVICES, World};

const ROUNDS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_whenever_every_order_ends_whole() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // Short enough that steps time out while a service is away: retries and commands in doubt are part of it.
    let world = World::open_to_kill("3s").await;
    let mut services = world.start_all();
    let mut kills = 0;
    for _ in 0..ROUNDS {
        world.order(&["--count", "6"]).await;
        world.order(&["--count", "2", "--card", "expired"]).await;
        world.order(&["--count", "2", "--item", "unicorn"]).await;
        world.order(&["--count", "2", "--address", "nowhere"]).await;
        for _ in 0..3 {
            // Not to wait for a fact: the moment of the kill is random.
            tokio::time::sleep(Duration::from_millis(random.u64(50..500))).await;
            let victim = SERVICES[random.usize(..SERVICES.len())];
            services.get_mut(victim).unwrap().kill().await;
            services.insert(victim, world.start(victim));
            kills += 1;
        }
    }
    let reckoning = world.reckon(services).await;
    println!("{kills} kills, {reckoning:?}");
    assert_eq!(reckoning.confirmed + reckoning.cancelled, 120);
    // Those that could be done may have been given up on, by patience; those that could not were not done.
    assert!(reckoning.cancelled >= 60, "{reckoning:?}");
    let impossible = "select count(*) from shop.orders o join pillarbox.sagas s on s.id = o.id::text
         where o.status = 'confirmed'
         and (s.data ->> 'card' = 'expired' or s.data ->> 'address' = 'nowhere' or o.item = 'unicorn')";
    assert_eq!(world.count(impossible).await, 0);
    world.close().await;
}
