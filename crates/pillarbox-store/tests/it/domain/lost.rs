//! Commits whose answer is lost: the network fails while PostgreSQL commits.

use pillarbox_testkit::proxy::Proxy;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::*;
use pillarbox_testkit::environment::authority;
use pillarbox_testkit::wait::until_some;

const EMAIL: &str = "ada@example.com";

/// An application far away, whose commits wait for a lock that the test holds.
struct Far<D> {
    harness: PostgresHarness,
    near: OnPostgres,
    far: D,
    same: D,
    network: Proxy,
    holder: PgConnection,
    lock: i32,
}

impl<D: Remote> Far<D> {
    async fn new() -> Self {
        let (harness, near) = on_postgres().await;
        let url = variable("PILLARBOX_TEST_POSTGRES_URL");
        let network = Proxy::start(authority(&url)).await;
        let far = D::through(&near, &network.url(&url));
        let same = D::through(&near, &url);
        let lock = i32::from_ne_bytes(*uuid::Uuid::new_v4().as_bytes().first_chunk().expect("16 bytes"));
        near.run(&format!(
            "create function pillarbox.wait() returns trigger language plpgsql
               as $$ begin perform pg_advisory_xact_lock(0, {lock}); return null; end $$;
             create constraint trigger wait after insert on pillarbox.invitations deferrable initially deferred
               for each row execute function pillarbox.wait()"
        ))
        .await;
        let mut holder = PgConnection::connect(&url).await.expect("connects");
        let held = sqlx::query("select pg_advisory_lock(0, $1)").bind(lock);
        held.execute(&mut holder).await.expect("locks");
        Self {
            harness,
            near,
            far,
            same,
            network,
            holder,
            lock,
        }
    }

    async fn let_commit(&mut self) {
        let free = sqlx::query("select pg_advisory_unlock(0, $1)").bind(self.lock);
        free.execute(&mut self.holder).await.expect("unlocks");
    }

    /// Who has begun to commit, and waits for the lock?
    async fn committing(&self) -> i32 {
        let select =
            "select pid from pg_locks where locktype = 'advisory' and not granted and objid = $1::int8::oid";
        let lock = i64::from(self.lock.cast_unsigned());
        until_some("a commit has begun", async || {
            let pid = sqlx::query_scalar(select)
                .bind(lock)
                .fetch_optional(&self.near.pool);
            pid.await.expect("it reads")
        })
        .await
    }

    /// Is the invitation there?
    async fn committed(&self) {
        until_some("the commit happened", async || {
            (!self.near.invited().await.is_empty()).then_some(())
        })
        .await;
    }

    /// Commits an invitation, and loses the answer: after it happened, or before.
    async fn lose(&mut self, invitation: &mut Invitation, happens: bool) {
        let far = D::through(
            &self.near,
            &self.network.url(&variable("PILLARBOX_TEST_POSTGRES_URL")),
        );
        let (lost, ()) = tokio::join!(far.commit(invitation), async {
            let pid = self.committing().await;
            if happens {
                self.network.mute();
                self.let_commit().await;
                self.committed().await;
                self.network.cut();
            } else {
                let end = sqlx::query("select pg_terminate_backend($1)").bind(pid);
                end.execute(&self.near.pool).await.expect("ends it");
                self.let_commit().await;
            }
        });
        self.network.restore().await; // not before: the answer would still arrive
        let is_lost = match &lost {
            Err(CommitError::Commit(StoreError::Unavailable(_))) => true,
            Err(CommitError::Commit(_)) => D::HIDES_CODES,
            Err(_) | Ok(_) => false,
        };
        assert!(is_lost, "{lost:?}");
        assert_eq!(invitation.recorded.len(), 1, "not enqueued yet");
    }
}

/// Each case with every library.
macro_rules! cases {
    ($module:ident: $library:ty => $($name:ident,)+) => {
        mod $module {
            $(#[tokio::test]
            async fn $name() {
                super::$name::<$library>().await;
            })+
        }
    };
}

cases! { with_sqlx: super::OnPostgres =>
    a_commit_that_happened_unheard_is_not_repeated,
    a_commit_that_was_cut_off_before_it_happened_is_made_good,
    a_caller_that_reads_first_need_not_save_again,
    a_commit_in_progress_is_waited_for,
    a_commit_that_its_caller_gave_up_is_not_repeated,
}

cases! { with_diesel_async: super::OnDieselAsync =>
    a_commit_that_happened_unheard_is_not_repeated,
    a_commit_that_was_cut_off_before_it_happened_is_made_good,
    a_caller_that_reads_first_need_not_save_again,
    a_commit_in_progress_is_waited_for,
    a_commit_that_its_caller_gave_up_is_not_repeated,
}

// A caller that blocks cannot give up.
cases! { with_diesel: super::OnDiesel =>
    a_commit_that_happened_unheard_is_not_repeated,
    a_commit_that_was_cut_off_before_it_happened_is_made_good,
    a_caller_that_reads_first_need_not_save_again,
    a_commit_in_progress_is_waited_for,
}

async fn a_commit_that_happened_unheard_is_not_repeated<D: Remote>() {
    let mut far = Far::<D>::new().await;
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    far.lose(&mut invitation, true).await;

    let enqueued = far.far.commit(&mut invitation).await.expect("commits");
    assert_eq!(enqueued, [Enqueued::Duplicate(id)]);
    assert!(invitation.recorded.is_empty());
    assert_invited_once(&far.near, EMAIL).await;
    far.harness.clean_up().await;
}

async fn a_commit_that_was_cut_off_before_it_happened_is_made_good<D: Remote>() {
    let mut far = Far::<D>::new().await;
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    far.lose(&mut invitation, false).await;
    assert_eq!(far.near.announced().await, [""; 0]);

    let enqueued = far.far.commit(&mut invitation).await.expect("commits");
    assert_eq!(enqueued, [Enqueued::New(id)]);
    assert_invited_once(&far.near, EMAIL).await;
    far.harness.clean_up().await;
}

async fn a_caller_that_reads_first_need_not_save_again<D: Remote>() {
    for happens in [true, false] {
        let mut far = Far::<D>::new().await;
        let mut invitation = Invitation::create(EMAIL);
        far.lose(&mut invitation, happens).await;
        let outbox = far.same.outbox();
        let mut work = far.same.begin(&outbox).await;
        let was_committed = far.same.was_committed(&mut work, &mut [&mut invitation]).await;
        assert_eq!(was_committed.expect("it reads"), happens);
        assert_eq!(invitation.recorded.is_empty(), happens);
        drop(work);
        far.harness.clean_up().await;
    }
}

async fn a_commit_in_progress_is_waited_for<D: Remote>() {
    let mut far = Far::<D>::new().await;
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    let (lost, ()) = tokio::join!(far.far.commit(&mut invitation), async {
        far.committing().await;
        far.network.cut(); // the server goes on: it waits for the lock and hears nothing
    });
    assert!(matches!(lost, Err(CommitError::Commit(_))), "{lost:?}");

    let again = D::through(&far.near, &variable("PILLARBOX_TEST_POSTGRES_URL"));
    let (enqueued, ()) = tokio::join!(again.commit(&mut invitation), async {
        let waiting = far.near.sql(
            "select 1 from pg_stat_activity where wait_event = 'transactionid' and query like '%pillarbox.invitations%'",
        );
        let waiting = waiting.0;
        until_some("the second try waits for the first", async || {
            let rows = sqlx::query(AssertSqlSafe(waiting.clone())).fetch_optional(&far.near.pool);
            rows.await.expect("it reads")
        })
        .await;
        far.let_commit().await;
    });
    assert_eq!(enqueued.expect("commits"), [Enqueued::Duplicate(id)]);
    assert_invited_once(&far.near, EMAIL).await;
    far.harness.clean_up().await;
}

async fn a_commit_that_its_caller_gave_up_is_not_repeated<D: Remote>() {
    let mut far = Far::<D>::new().await;
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    tokio::select! {
        done = far.far.commit(&mut invitation) => panic!("it waits for the lock: {done:?}"),
        _ = far.committing() => {} // and the commit is dropped
    }
    far.let_commit().await;
    far.committed().await;
    assert_eq!(invitation.recorded.len(), 1);

    let enqueued = far.same.commit(&mut invitation).await.expect("commits");
    assert_eq!(enqueued, [Enqueued::Duplicate(id)]);
    assert_invited_once(&far.near, EMAIL).await;
    far.harness.clean_up().await;
}

#[tokio::test]
async fn on_sqlite_a_commit_that_happened_unheard_is_not_repeated() {
    let (_harness, database) = on_sqlite().await;
    let outbox = Database::outbox(&database);
    let mut invitation = Invitation::create(EMAIL);
    let id = invitation.recorded.events().next().expect("an event").id;
    let mut transaction = Application::begin(&database).await;
    let insert = sqlx::query(database.sql(SAVE)).bind(EMAIL);
    insert.execute(&mut *transaction).await.expect("saves");
    let enqueued = outbox
        .enqueue_recorded(&mut transaction, &mut [&mut invitation])
        .await;
    assert_eq!(enqueued.expect("accepted"), [Enqueued::New(id)]);
    transaction.commit().await.expect("commits"); // and nothing is cleared: the answer is lost

    let mut work = Database::begin(&database, &outbox).await;
    let mut asked = Invitation {
        email: EMAIL.to_owned(),
        recorded: invitation.recorded.clone(),
    };
    assert!(work.was_committed(&mut [&mut asked]).await.expect("it reads"));
    drop(work);
    let enqueued = database.commit(&mut invitation).await.expect("commits");
    assert_eq!(enqueued, [Enqueued::Duplicate(id)]);
    assert_invited_once(&database, EMAIL).await;
}
