//! SIGTERM under load: in good order, every time.

use std::time::Duration;

use super::patience::Weight;
use super::world::{Tuning, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_under_load_gives_everything_back_and_repeats_nothing() {
    let world = World::new(Weight::Heavy).await;
    let tuning = Tuning::calm();
    let load = world.producer.keep_busy();
    for round in 1..=10 {
        let delivered = world.count("delivered").await;
        let daemon = world.start(&tuning);
        world.more_than(delivered, "delivered").await;
        // Not a wait for a fact: the moment is the test's chance.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..300))).await;
        daemon.stop().await;
        assert_eq!(
            world.count("processing").await,
            0,
            "round {round} left rows in processing"
        );
    }
    load.stop().await;
    let daemon = world.start(&tuning);
    world.done().await;
    daemon.stop().await;
    let report = world.reckon("SIGTERM, ten times", &[]).await;
    assert_eq!(report.duplicates, 0, "a stop is not a fault");
    assert_eq!(
        report.attempts, 1,
        "what was given back was given back with its attempt"
    );
}
