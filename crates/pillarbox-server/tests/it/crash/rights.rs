//! The daemon as a database role that may do what `pillarbox grant dispatcher` lets it do, and no more.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::patience::Weight;
use super::world::{Tuning, World, execute};
use crate::binary::run;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_needs_no_more_rights_than_it_is_granted() {
    let world = World::new(Weight::Light).await;
    let role = format!("dispatcher_{}", Uuid::new_v4().simple());
    let grant = [
        "grant",
        "dispatcher",
        &role,
        "--create",
        "--database",
        &world.database,
    ];
    run(&std::env::temp_dir(), &grant).good();
    let mut owner = PgConnection::connect(&world.database).await.expect("connects");
    let database = world.database.replacen("pillarbox@", &format!("{role}@"), 1);
    let tuning = Tuning {
        database: Some(database.clone()),
        ..Tuning::calm()
    };
    world.producer.commit(200).await;
    let daemon = world.start(&tuning);
    world.done().await;
    daemon.stop().await;

    let mut dispatcher = PgConnection::connect(&database).await.expect("connects");
    for beyond in [
        "delete from pillarbox.outbox_events",
        "delete from pillarbox.destinations",
        "update pillarbox.migrations set version = 999",
        "select * from public.orders",
    ] {
        let refused = sqlx::query(beyond).execute(&mut dispatcher).await;
        let refused = refused.expect_err("the role may do more than it should");
        assert!(
            refused.to_string().contains("permission denied"),
            "{beyond}: {refused}"
        );
    }
    dispatcher.close().await.expect("closes");
    execute(&mut owner, format!("drop owned by {role}; drop role {role}")).await;
    owner.close().await.expect("closes");
    let report = world.reckon("a role with few rights", &[]).await;
    assert_eq!((report.duplicates, report.attempts), (0, 1));
}
