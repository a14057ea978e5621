//! The audit on PostgreSQL: a line and its change are one transaction, and a line stays as it is.

use pillarbox::{Event, StoreError};
use pillarbox_store::actor::{Kind, Permission, Reach};
use pillarbox_store::audit::AuditFilter;
use pillarbox_store::stores::postgres::{Bounds, Duty};
use pillarbox_store::{Actor, Operate, OperateError};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::PostgresHarness;
use super::harness::unmigrated;
use super::privileges::{drop_role, on_duty};

#[tokio::test]
async fn a_change_whose_line_cannot_be_written_is_rolled_back() {
    let harness = PostgresHarness::direct().await;
    let enqueued = harness.enqueue(&[Event::new("shop", "orders")]).await;
    let id = enqueued.expect("accepted")[0].id();
    harness
        .execute("alter table pillarbox.audit add constraint full_up check (count < 0) not valid")
        .await;
    harness.store.delete(&OPERATOR, &[id]).await.expect_err("no line");
    harness.store.retry(&OPERATOR, &[id]).await.expect_err("no line");
    harness
        .store
        .pause(&OPERATOR, "chat", "a test")
        .await
        .expect_err("no line");
    let row = harness.store.show(&OPERATOR, id).await.expect("a look");
    assert_eq!(row.expect("it is there").status, "pending");
    assert!(!harness.store.resume(&OPERATOR, "chat").await.expect("resumes"));
    harness.clean_up().await;
}

#[tokio::test]
async fn not_even_the_owner_changes_or_deletes_a_line() {
    let harness = PostgresHarness::direct().await;
    for statement in [
        "update pillarbox.audit set subject = 'mallory'",
        "delete from pillarbox.audit",
        "truncate pillarbox.audit",
    ] {
        let tried = sqlx::raw_sql(AssertSqlSafe(harness.sql(statement)))
            .execute(&harness.pool)
            .await;
        let refused = tried.expect_err(statement).to_string();
        assert!(refused.contains("lines are only added"), "{refused}");
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn migrations_and_grants_have_their_lines() {
    let store = unmigrated(&pillarbox_testkit::environment::variable(
        "PILLARBOX_TEST_POSTGRES_URL",
    ));
    let owner = Actor::new(Kind::Operator, "alice", Reach::System, Permission::ALL).because("release 7");
    store.migrate_as(&owner).await.expect("migrates");
    store.migrate_as(&owner).await.expect("has nothing to do");
    let role = format!("audited_{}", Uuid::new_v4().simple());
    store
        .grant(&owner, Duty::Consumer, &Bounds::names(["letters"]), &role, true)
        .await
        .expect("grants");
    let grant = async |name: &str, create| {
        let bounds = Bounds::names([name]);
        let granted = store.grant(&owner, Duty::Consumer, &bounds, &role, create);
        granted.await.expect("grants");
    };
    grant("letters", true).await; // changes nothing
    grant("mail", false).await;
    let revoke = async || {
        store
            .revoke(&owner, Duty::Consumer, &role)
            .await
            .expect("revokes")
    };
    assert!(revoke().await);
    assert!(!revoke().await);
    let denied = store.revoke(&owner, Duty::Consumer, "no_such_role").await;
    denied.expect_err("is not there, so it has no line");
    let lines = store
        .audit(&OPERATOR, &AuditFilter::default())
        .await
        .expect("lines");
    let seen: Vec<(&str, &str, &str)> = lines
        .iter()
        .map(|line| {
            (
                line.action.as_str(),
                line.objects[0].as_str(),
                line.subject.as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("revoke", role.as_str(), "alice"),
            ("grant", role.as_str(), "alice"),
            ("grant", role.as_str(), "alice"),
            ("migrate", store.schema(), "alice")
        ]
    );
    let bounds = |name| Some(serde_json::json!({ "duty": "consumer", "names": [name] }));
    let changes = lines.iter().map(|line| (line.before.clone(), line.after.clone()));
    assert_eq!(
        changes.take(3).collect::<Vec<_>>(),
        [
            (bounds("mail"), None),
            (bounds("letters"), bounds("mail")),
            (None, bounds("letters"))
        ]
    );
    let user: String = sqlx::query_scalar("select session_user::text")
        .fetch_one(&store.pool())
        .await
        .expect("a name");
    assert!(lines.iter().all(|line| {
        line.role.as_deref() == Some(user.as_str()) && line.reason.as_deref() == Some("release 7")
    }));
    let drop = format!(
        "drop owned by {role}; drop role {role}; drop schema {} cascade",
        store.schema()
    );
    sqlx::raw_sql(AssertSqlSafe(drop))
        .execute(&store.pool())
        .await
        .expect("cleans up");
}

/// The daemon's role. Its name for the session is the server's, whatever it says.
#[tokio::test]
async fn a_dispatcher_adds_lines_and_neither_reads_nor_dates_them() {
    let harness = PostgresHarness::direct().await;
    let role = format!("audited_{}", Uuid::new_v4().simple());
    harness
        .store
        .grant(&OPERATOR, Duty::Dispatcher, &Bounds::default(), &role, true)
        .await
        .expect("grants");
    let run = async |statement: &str| {
        let sql = harness.sql(&format!("begin; set local role {role}; {statement}; commit"));
        let mut connection = harness.pool.acquire().await.expect("a connection").detach();
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .map(drop)
    };
    let line = "insert into pillarbox.audit (subject, kind, action, objects, count) values ('w', 'worker', 'x', '{}', 0)";
    run(line).await.expect("may add");
    for statement in [
        "select subject from pillarbox.audit",
        "update pillarbox.audit set subject = 'mallory'",
        "delete from pillarbox.audit",
        "insert into pillarbox.audit (subject, kind, action, objects, count, at) values ('w', 'worker', 'x', '{}', 0, now())",
        "insert into pillarbox.audit (subject, kind, action, objects, count, role) values ('w', 'worker', 'x', '{}', 0, 'owner')",
    ] {
        let refused = run(statement).await.expect_err(statement);
        let code = refused.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused}");
    }
    harness
        .execute(&format!("drop owned by {role}; drop role {role}"))
        .await;
    harness.clean_up().await;
}

#[tokio::test]
async fn no_other_duty_reads_or_writes_the_audit() {
    let harness = PostgresHarness::direct().await;
    // A dispatcher writes lines, and an API reads and writes them.
    let may = |duty: &Duty| matches!(duty, Duty::Dispatcher | Duty::Api | Duty::ApiAnyTenant);
    for duty in Duty::ALL.into_iter().filter(|duty| !may(duty)) {
        let (role, store) = on_duty(&harness, duty).await;
        for statement in [
            "select 1 from pillarbox.audit",
            "select count(tenant_id) from pillarbox.audit",
            "insert into pillarbox.audit (subject, kind, action, objects, count) values ('w', 'worker', 'x', '{}', 0)",
            "truncate pillarbox.audit",
        ] {
            let refused = sqlx::raw_sql(AssertSqlSafe(harness.sql(statement)))
                .execute(&store.pool())
                .await;
            let refused = refused.expect_err(statement).to_string();
            let expected = "permission denied for table audit";
            assert!(refused.contains(expected), "{duty:?}: {statement}: {refused}");
        }
        store.close().await;
        drop_role(&harness, &role).await;
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn the_audit_goes_with_the_outbox_to_its_owner_who_cannot_change_it() {
    let harness = PostgresHarness::direct().await;
    let owner = format!("o_{}", Uuid::new_v4().simple());
    harness.execute(&format!("create role {owner} nologin")).await;
    harness
        .store
        .migrate_for(&OPERATOR, &owner)
        .await
        .expect("gives it");
    let owners: Vec<String> = sqlx::query_scalar(AssertSqlSafe(harness.sql(
        "select relowner::regrole::text from pg_class where oid = 'pillarbox.audit'::regclass
         union all select proowner::regrole::text from pg_proc where oid = 'pillarbox.keep_audit'::regproc",
    )))
    .fetch_all(&harness.pool)
    .await
    .expect("the catalog");
    assert_eq!(owners, [owner.as_str(), owner.as_str()]);
    let tried = format!("begin; set local role {owner}; delete from pillarbox.audit; commit");
    let mut connection = harness.pool.acquire().await.expect("a connection").detach();
    let refused = sqlx::raw_sql(AssertSqlSafe(harness.sql(&tried)))
        .execute(&mut connection)
        .await;
    let refused = refused.expect_err("is kept").to_string();
    assert!(refused.contains("lines are only added"), "{refused}");
    let again = harness.store.migrate_for(&OPERATOR, &owner).await;
    again.expect("is the owner's already, so it has no line");
    let lines = harness.store.audit(&OPERATOR, &AuditFilter::default()).await;
    let lines = lines.expect("lines");
    let seen: Vec<_> = lines.iter().map(|line| line.action.as_str()).collect();
    assert_eq!(seen, ["migrate", "migrate"], "the migration and the gift");
    assert_eq!(lines[0].after, Some(serde_json::json!({ "owner": owner })));
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}

#[tokio::test]
async fn without_the_audit_the_answer_is_an_error_of_the_store() {
    let harness = PostgresHarness::direct().await;
    harness.execute("drop table pillarbox.audit").await;
    let refused = harness.store.audit(&OPERATOR, &AuditFilter::default()).await;
    assert!(
        matches!(refused, Err(OperateError::Store(StoreError::Missing(_)))),
        "{refused:?}"
    );
    harness.clean_up().await;
}
