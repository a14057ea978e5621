//! SIGTERM under load.

use std::time::Duration;

use super::fixture::{Fixture, Tuning};
use pillarbox_testkit::wait::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_under_load_releases_every_row_and_repeats_nothing() {
    let fixture = Fixture::new(Load::Heavy).await;
    let tuning = Tuning::long_leases();
    let load = fixture.producer.start_load();
    for round in 1..=10 {
        let delivered = fixture.count("delivered").await;
        let daemon = fixture.start(&tuning);
        fixture.until_more_than(delivered, "delivered").await;
        // Not a wait for a fact: the signal is sent at a random moment.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..300))).await;
        daemon.stop().await;
        assert_eq!(
            fixture.count("processing").await,
            0,
            "round {round} left rows in processing"
        );
    }
    load.stop().await;
    let daemon = fixture.start(&tuning);
    fixture.until_done().await;
    daemon.stop().await;
    let report = fixture.check_ledger("SIGTERM, ten times", &[]).await;
    assert_eq!(report.duplicates, 0, "a stop is not a fault");
    assert_eq!(report.attempts, 1, "released rows keep their attempt");
}
