//! Saves and commits that fail and are retried.

use super::*;

const EMAIL: &str = "ada@example.com";

/// Each case on every database and library.
macro_rules! cases {
    ($($name:ident,)+) => {
        mod on_postgres {
            $(#[tokio::test]
            async fn $name() {
                let (harness, database) = super::on_postgres().await;
                super::$name(&database).await;
                pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
            })+
        }

        mod on_diesel_async {
            $(#[tokio::test]
            async fn $name() {
                let (harness, database) = super::on_library::<super::OnDieselAsync>().await;
                super::$name(&database).await;
                pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
            })+
        }

        mod on_diesel {
            $(#[tokio::test]
            async fn $name() {
                let (harness, database) = super::on_library::<super::OnDiesel>().await;
                super::$name(&database).await;
                pillarbox_testkit::store_suite::Harness::clean_up(&harness).await;
            })+
        }

        mod on_sqlite {
            $(#[tokio::test]
            async fn $name() {
                let (_harness, database) = super::on_sqlite().await;
                super::$name(&database).await;
            })+
        }
    };
}

cases! {
    an_invitation_and_its_event_are_committed_together,
    a_save_that_fails_and_is_tried_again_tells_once,
    a_commit_that_fails_and_is_tried_again_tells_once,
    several_aggregates_share_a_commit,
    a_dropped_unit_of_work_is_rolled_back,
    a_tracked_aggregate_that_is_not_listed_stops_the_commit,
}

async fn an_invitation_and_its_event_are_committed_together(database: &impl Database) {
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    let enqueued = database.commit(&mut invitation).await.expect("commits");
    assert_eq!(enqueued, [Enqueued::New(id)]);
    assert!(invitation.recorded.is_empty());
    assert_invited_once(database, EMAIL).await;
}

async fn a_save_that_fails_and_is_tried_again_tells_once(database: &impl Database) {
    let [trap, no_trap] = database.trap();
    database.run(trap).await;
    let outbox = database.outbox();
    let mut invitation = Invitation::create(EMAIL);
    let mut work = database.begin(&outbox).await;
    let refused = database.save(&mut work, EMAIL).await.expect_err("not today");
    assert!(refused.contains("not today"), "{refused}");
    drop(work); // rolls back
    assert_eq!(invitation.recorded.len(), 1);
    assert_eq!(database.announced().await, [""; 0]);

    database.run(no_trap).await;
    database.commit(&mut invitation).await.expect("commits");
    assert_invited_once(database, EMAIL).await;
}

/// PostgreSQL only: a transaction of SQLite goes on after a statement that failed.
async fn a_failed_save_that_is_ignored_does_not_become_an_event(database: &impl Database) {
    let [trap, no_trap] = database.trap();
    database.run(trap).await;
    let outbox = database.outbox();
    let mut invitation = Invitation::create(EMAIL);
    let mut work = database.begin(&outbox).await;
    let swallowed = database.save(&mut work, EMAIL).await;
    swallowed.expect_err("the transaction is broken from here on");
    let refused = database.end(work, &mut [&mut invitation]).await;
    assert!(matches!(refused, Err(CommitError::Enqueue(_))), "{refused:?}");
    assert_eq!(invitation.recorded.len(), 1);
    database.run(no_trap).await;
    database.commit(&mut invitation).await.expect("commits");
    assert_invited_once(database, EMAIL).await;
}

#[tokio::test]
async fn a_failed_save_that_is_ignored_does_not_become_an_event_on_postgres() {
    let (harness, database) = on_postgres().await;
    a_failed_save_that_is_ignored_does_not_become_an_event(&database).await;
    harness.clean_up().await;
    let (harness, database) = on_library::<OnDieselAsync>().await;
    a_failed_save_that_is_ignored_does_not_become_an_event(&database).await;
    harness.clean_up().await;
    let (harness, database) = on_library::<OnDiesel>().await;
    a_failed_save_that_is_ignored_does_not_become_an_event(&database).await;
    harness.clean_up().await;
}

async fn a_commit_that_fails_and_is_tried_again_tells_once(database: &impl Database) {
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

async fn several_aggregates_share_a_commit(database: &impl Database) {
    let outbox = database.outbox();
    let (mut ada, mut bob) = (Invitation::create("ada"), Invitation::create("bob"));
    ada.recorded.record(&MemberInvited {
        email: "ada again".to_owned(),
    });
    let mut work = database.begin(&outbox).await;
    database.save(&mut work, "ada").await.expect("saves");
    database.save(&mut work, "bob").await.expect("saves");
    let done = database.end(work, &mut [&mut bob, &mut ada]).await;
    done.expect("commits");
    let events = database.events().await;
    let enqueued: Vec<_> = events
        .iter()
        .filter_map(|event| event.aggregate_id.as_deref())
        .collect();
    assert_eq!(enqueued, ["ada", "bob", "ada again"]);
}

async fn a_dropped_unit_of_work_is_rolled_back(database: &impl Database) {
    let outbox = database.outbox();
    let mut work = database.begin(&outbox).await;
    database.save(&mut work, EMAIL).await.expect("saves");
    assert!(database.exists(&mut work, EMAIL).await);
    drop(work);
    // Waits for the rollback: it would write the same row.
    database.invite(EMAIL).await.expect("commits");
    assert_invited_once(database, EMAIL).await;
}

async fn a_tracked_aggregate_that_is_not_listed_stops_the_commit(database: &impl Database) {
    let outbox = database.outbox();
    let (mut ada, mut bob) = (Invitation::create("ada"), Invitation::create("bob"));
    let mut work = database.begin(&outbox).await;
    for (email, invitation) in [("ada", &mut ada), ("bob", &mut bob)] {
        database.track(&mut work, invitation);
        database.save(&mut work, email).await.expect("saves");
    }
    let refused = database
        .end(work, &mut [&mut bob])
        .await
        .expect_err("ada is missing");
    assert_eq!(
        refused.to_string(),
        "commit refused: 1 recorded events of the tracked aggregate `it::domain::Invitation` with the id \"ada\" would be \
         lost (pass the aggregate to the commit, or clear what it recorded)"
    );
    assert_eq!(database.invited().await, [""; 0], "it is rolled back");
    assert_eq!(database.announced().await, [""; 0]);
    assert_eq!((ada.recorded.len(), bob.recorded.len()), (1, 1));

    let mut work = database.begin(&outbox).await;
    for (email, invitation) in [("ada", &mut ada), ("bob", &mut bob)] {
        database.track(&mut work, invitation);
        database.save(&mut work, email).await.expect("saves");
    }
    let done = database.end(work, &mut [&mut ada, &mut bob]).await;
    done.expect("commits");
    assert_eq!(database.announced().await, ["ada", "bob"]);
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

async fn one_namespace<D: Database + Application>(database: &D) {
    database.invite(EMAIL).await.expect("commits");
    let outbox = Application::outbox(database);
    let mut transaction = Application::begin(database).await;
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
