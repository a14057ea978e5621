//! Saves and commits that fail and are retried.

use super::*;

const EMAIL: &str = "ada@example.com";

#[tokio::test]
async fn an_invitation_and_its_event_are_committed_together_on_postgres() {
    let (harness, database) = on_postgres().await;
    committed_together(&database).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn an_invitation_and_its_event_are_committed_together_on_sqlite() {
    let (_harness, database) = on_sqlite().await;
    committed_together(&database).await;
}

async fn committed_together(database: &impl Database) {
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    let enqueued = database.commit(&mut invitation).await.expect("commits");
    assert_eq!(enqueued, [Enqueued::New(id)]);
    assert!(invitation.recorded.is_empty());
    assert_invited_once(database, EMAIL).await;
}

#[tokio::test]
async fn a_save_that_fails_and_is_tried_again_tells_once_on_postgres() {
    let (harness, database) = on_postgres().await;
    let trap = "create function pillarbox.refuse() returns trigger language plpgsql
          as $$ begin raise exception 'not today'; end $$;
        create trigger trap before insert on pillarbox.invitations
          for each row execute function pillarbox.refuse()";
    saved_at_the_second_try(&database, trap, "drop trigger trap on pillarbox.invitations").await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_save_that_fails_and_is_tried_again_tells_once_on_sqlite() {
    let (_harness, database) = on_sqlite().await;
    let trap = "create trigger trap before insert on invitations
        begin select raise(abort, 'not today'); end";
    saved_at_the_second_try(&database, trap, "drop trigger trap").await;
}

async fn saved_at_the_second_try(database: &impl Database, trap: &str, no_trap: &str) {
    database.run(trap).await;
    let outbox = database.outbox();
    let mut invitation = Invitation::create(EMAIL);
    let mut work = UnitOfWork::new(&outbox, database.begin().await);
    database.save(&mut work, EMAIL).await.expect_err("not today");
    drop(work); // rolls back
    assert_eq!(invitation.recorded.len(), 1);
    assert_eq!(database.announced().await, [""; 0]);

    database.run(no_trap).await;
    database.commit(&mut invitation).await.expect("commits");
    assert_invited_once(database, EMAIL).await;
}

#[tokio::test]
async fn a_failed_save_that_is_ignored_does_not_become_an_event_on_postgres() {
    let (harness, database) = on_postgres().await;
    let outbox = database.outbox();
    let mut invitation = Invitation::create(EMAIL);
    let mut work = UnitOfWork::new(&outbox, database.begin().await);
    let swallowed = sqlx::query("select 1 / 0").execute(&mut **work).await;
    swallowed.expect_err("the transaction is broken from here on");
    let refused = work.commit(&mut [&mut invitation]).await;
    assert!(matches!(refused, Err(CommitError::Enqueue(_))), "{refused:?}");
    assert_eq!(invitation.recorded.len(), 1);
    database.commit(&mut invitation).await.expect("commits");
    assert_invited_once(&database, EMAIL).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_commit_that_fails_and_is_tried_again_tells_once_on_postgres() {
    let (harness, database) = on_postgres().await;
    committed_at_the_third_try(&database).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_commit_that_fails_and_is_tried_again_tells_once_on_sqlite() {
    let (_harness, database) = on_sqlite().await;
    committed_at_the_third_try(&database).await;
}

async fn committed_at_the_third_try(database: &impl Database) {
    database.run("delete from pillarbox.families").await;
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    for _ in 0..2 {
        let refused = database.commit(&mut invitation).await;
        assert!(matches!(refused, Err(CommitError::Commit(_))), "{refused:?}");
        assert_eq!(invitation.recorded.len(), 1);
        assert_eq!(database.invited().await, [""; 0]);
        assert_eq!(database.announced().await, [""; 0]);
    }
    database.run("insert into pillarbox.families values (1)").await;
    let enqueued = database.commit(&mut invitation).await.expect("commits");
    assert_eq!(enqueued, [Enqueued::New(id)]);
    assert_invited_once(database, EMAIL).await;
}

#[tokio::test]
async fn several_aggregates_share_a_commit_on_postgres() {
    let (harness, database) = on_postgres().await;
    shared(&database).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn several_aggregates_share_a_commit_on_sqlite() {
    let (_harness, database) = on_sqlite().await;
    shared(&database).await;
}

async fn shared(database: &impl Database) {
    let outbox = database.outbox();
    let (mut ada, mut bob) = (Invitation::create("ada"), Invitation::create("bob"));
    ada.recorded.record(&MemberInvited {
        email: "ada again".to_owned(),
    });
    let mut work = UnitOfWork::new(&outbox, database.begin().await);
    database.save(&mut work, "ada").await.expect("saves");
    database.save(&mut work, "bob").await.expect("saves");
    work.commit(&mut [&mut bob, &mut ada]).await.expect("commits");
    let events = database.events().await;
    let enqueued: Vec<_> = events
        .iter()
        .filter_map(|event| event.aggregate_id.as_deref())
        .collect();
    assert_eq!(enqueued, ["ada", "bob", "ada again"]);
}

#[tokio::test]
async fn a_test_sees_the_events_of_one_namespace_on_postgres() {
    let (harness, database) = on_postgres().await;
    one_namespace(&database).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_test_sees_the_events_of_one_namespace_on_sqlite() {
    let (_harness, database) = on_sqlite().await;
    one_namespace(&database).await;
}

async fn one_namespace(database: &impl Database) {
    database.invite(EMAIL).await.expect("commits");
    let outbox = database.outbox();
    let mut transaction = database.begin().await;
    let other = Event::new("shop", "orders");
    outbox.enqueue(&mut transaction, &other).await.expect("accepted");
    for (namespace, seen) in [("family", 1), ("shop", 1), ("other", 0)] {
        let events = outbox
            .enqueued_by(&mut transaction, namespace)
            .await
            .expect("it reads");
        assert_eq!(events.len(), seen);
        assert!(events.iter().all(|event| event.namespace == namespace));
    }
    assert_eq!(
        outbox.enqueued(&mut transaction).await.expect("it reads").len(),
        2
    );
}
