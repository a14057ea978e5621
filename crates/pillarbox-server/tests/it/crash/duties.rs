//! The daemon as a database role with the duty `dispatcher` of `pillarbox grant`, and no other.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::fixture::{Fixture, Tuning, execute};
use crate::command::run;
use pillarbox_testkit::wait::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_needs_no_more_privileges_than_its_duty_grants() {
    let fixture = Fixture::new(Load::Light).await;
    let role = format!("dispatcher_{}", Uuid::new_v4().simple());
    let grant = [
        "grant",
        "dispatcher",
        &role,
        "--create",
        "--database",
        &fixture.database.url,
    ];
    run(&std::env::temp_dir(), &grant).success();
    let mut owner = PgConnection::connect(&fixture.database.url)
        .await
        .expect("connects");
    let database = fixture
        .database
        .url
        .replacen("pillarbox@", &format!("{role}@"), 1);
    let tuning = Tuning {
        database: Some(database.clone()),
        ..Tuning::long_leases()
    };
    fixture.producer.commit(200).await;
    let daemon = fixture.start(&tuning);
    fixture.until_done().await;
    daemon.stop().await;

    let mut dispatcher = PgConnection::connect(&database).await.expect("connects");
    for beyond in [
        "truncate pillarbox.outbox_events",
        "delete from pillarbox.destinations",
        "update pillarbox.migrations set version = 999",
        "select * from public.orders",
    ] {
        let refused = sqlx::query(beyond).execute(&mut dispatcher).await;
        let refused = refused.expect_err("the role has more privileges than it should");
        assert!(
            refused.to_string().contains("permission denied"),
            "{beyond}: {refused}"
        );
    }
    dispatcher.close().await.expect("closes");
    execute(&mut owner, format!("drop owned by {role}; drop role {role}")).await;
    owner.close().await.expect("closes");
    let report = fixture.check_ledger("a role with few privileges", &[]).await;
    assert_eq!((report.duplicates, report.attempts), (0, 1));
}
