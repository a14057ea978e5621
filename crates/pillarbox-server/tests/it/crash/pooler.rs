//! The daemon behind PgBouncer in transaction mode.

use super::patience::Weight;
use super::services::variable;
use super::world::{Tuning, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_behind_pgbouncer_deliver_everything_exactly_once() {
    let world = World::new(Weight::Heavy).await;
    let tuning = Tuning {
        batch: 500,
        in_flight: 2000,
        database: Some(world.database_at(&variable("PILLARBOX_TEST_PGBOUNCER_URL"))),
        ..Tuning::calm()
    };
    for _ in 0..40 {
        world.producer.transaction(50).await.expect("commits");
    }
    let daemons = [world.start(&tuning), world.start(&tuning)];
    for _ in 0..60 {
        world.producer.transaction(50).await.expect("commits");
    }
    world.done().await;
    let workers: i64 = sqlx::query_scalar(
        "select count(distinct client_port) from pg_stat_activity where datname = current_database()
         and application_name = 'pillarbox'",
    )
    .fetch_one(&world.pool)
    .await
    .expect("the database answers");
    assert!(workers > 0, "the daemons did not come through the pooler");
    for daemon in daemons {
        daemon.stop().await;
    }
    let report = world.reckon("two workers behind PgBouncer", &[]).await;
    assert_eq!((report.events, report.duplicates, report.attempts), (5000, 0, 1));
}
