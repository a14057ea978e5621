//! The daemon behind PgBouncer in transaction mode.

use super::fixture::{Fixture, Tuning};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_behind_pgbouncer_deliver_everything_exactly_once() {
    let fixture = Fixture::new(Load::Heavy).await;
    let tuning = Tuning {
        batch: 500,
        in_flight: 2000,
        database: Some(fixture.database.url_on(&variable("PILLARBOX_TEST_PGBOUNCER_URL"))),
        ..Tuning::long_leases()
    };
    for _ in 0..40 {
        fixture.producer.transaction(50).await.expect("commits");
    }
    let daemons = [fixture.start(&tuning), fixture.start(&tuning)];
    for _ in 0..60 {
        fixture.producer.transaction(50).await.expect("commits");
    }
    fixture.until_done().await;
    let workers: i64 = sqlx::query_scalar(
        "select count(distinct client_port) from pg_stat_activity where datname = current_database()
         and application_name = 'pillarbox'",
    )
    .fetch_one(&fixture.pool)
    .await
    .expect("the database answers");
    assert!(workers > 0, "the daemons did not use the pooler");
    for daemon in daemons {
        daemon.stop().await;
    }
    let report = fixture.check_ledger("two workers behind PgBouncer", &[]).await;
    assert_eq!((report.events, report.duplicates, report.attempts), (5000, 0, 1));
}
