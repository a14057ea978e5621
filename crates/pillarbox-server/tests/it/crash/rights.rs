//! The daemon as a database role that may do what docs/postgres.md grants a dispatcher, and no more.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::patience::Weight;
use super::world::{Tuning, World, execute};

/// What the documentation grants to the role `dispatcher`.
fn grants(role: &str) -> String {
    let documentation = include_str!("../../../../../docs/postgres.md");
    let grants = documentation
        .lines()
        .filter(|line| line.starts_with("grant") && line.ends_with("to dispatcher;"));
    let grants: Vec<String> = grants
        .map(|line| line.replace("dispatcher;", &format!("{role};")))
        .collect();
    assert_eq!(
        grants.len(),
        5,
        "docs/postgres.md says something else than this test knows: {grants:?}"
    );
    grants.join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_needs_no_more_rights_than_the_documentation_grants() {
    let world = World::new(Weight::Light).await;
    let role = format!("dispatcher_{}", Uuid::new_v4().simple());
    let mut owner = PgConnection::connect(&world.database).await.expect("connects");
    execute(&mut owner, format!("create role {role} login; {}", grants(&role))).await;
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
