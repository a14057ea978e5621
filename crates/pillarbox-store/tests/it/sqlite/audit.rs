//! The audit on SQLite: a line and its change are one transaction, and a line stays as it is.

use pillarbox::Event;
use pillarbox_store::Operate;
use pillarbox_store::audit::AuditFilter;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;

use super::SqliteHarness;

#[tokio::test]
async fn a_change_whose_line_cannot_be_written_is_rolled_back() {
    let outbox = SqliteHarness::fresh().await;
    let enqueued = outbox.enqueue(&[Event::new("shop", "orders")]).await;
    let id = enqueued.expect("accepted")[0].id();
    outbox
        .run("create trigger full_up before insert on pillarbox_audit begin select raise(abort, 'full'); end")
        .await;
    outbox.store.delete(&OPERATOR, &[id]).await.expect_err("no line");
    outbox.store.retry(&OPERATOR, &[id]).await.expect_err("no line");
    outbox
        .store
        .pause(&OPERATOR, "chat", "a test")
        .await
        .expect_err("no line");
    let row = outbox.store.show(&OPERATOR, id).await.expect("a look");
    assert_eq!(row.expect("it is there").status, "pending");
    assert!(!outbox.store.resume(&OPERATOR, "chat").await.expect("resumes"));
}

#[tokio::test]
async fn a_line_is_neither_changed_nor_deleted() {
    let outbox = SqliteHarness::fresh().await;
    for statement in [
        "update pillarbox_audit set subject = 'mallory'",
        "delete from pillarbox_audit",
    ] {
        let tried = sqlx::raw_sql(statement).execute(&outbox.application).await;
        let refused = tried.expect_err(statement).to_string();
        assert!(refused.contains("lines are only added"), "{refused}");
    }
    let lines = outbox.store.audit(&OPERATOR, &AuditFilter::default()).await;
    let lines = lines.expect("lines");
    assert_eq!((lines.len(), lines[0].action.as_str()), (1, "migrate"));
}
