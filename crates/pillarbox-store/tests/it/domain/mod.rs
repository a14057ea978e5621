//! A family's invitations: a command handler, an aggregate, a repository and a unit of work, on real databases.

mod killed;
mod lost;
mod saving;
mod with_diesel;

use pillarbox::{Aggregate, CommitError, Enqueued, Event, Outbox, Recorded, StoreError, UnitOfWork};
use pillarbox_testkit::store_suite::Harness;
use serde::Serialize;
use sqlx::PgPool;

use self::with_diesel::{OnDiesel, OnDieselAsync};
use crate::application::{Application, OnPostgres, OnSqlite};
use crate::postgres::PostgresHarness;
use crate::sqlite::{SqliteHarness, pool};
use pillarbox_testkit::environment::variable;

#[derive(Serialize, Event)]
#[event(namespace = "family", topic = "members", type = "MemberInvited", version = 3)]
struct MemberInvited {
    #[event(key, aggregate = "invitation")]
    email: String,
}

struct Invitation {
    email: String,
    recorded: Recorded,
}

impl Invitation {
    fn create(email: &str) -> Self {
        let mut recorded = Recorded::default();
        recorded.record(&MemberInvited {
            email: email.to_owned(),
        });
        Self {
            email: email.to_owned(),
            recorded,
        }
    }
}

impl Aggregate for Invitation {
    fn recorded(&mut self) -> &mut Recorded {
        &mut self.recorded
    }
}

/// The application's tables. A family that does not exist shows itself at the commit.
const TABLES: &str = "create table pillarbox.families (id int primary key);
    create table pillarbox.invitations (
      email text primary key,
      family int not null references pillarbox.families (id) deferrable initially deferred
    );";

/// What the application needs of a database and its library.
trait Database {
    type Work<'a>;

    fn outbox(&self) -> Outbox;
    /// Runs SQL that is written for the schema `pillarbox`.
    async fn run(&self, sql: &str);
    /// Statements that let every save fail, and that end it.
    fn trap(&self) -> [&'static str; 2];
    async fn begin<'a>(&self, outbox: &'a Outbox) -> Self::Work<'a>;
    /// The repository: is there such an invitation?
    async fn exists(&self, work: &mut Self::Work<'_>, email: &str) -> bool;
    /// The repository: saves an invitation, once or again.
    async fn save(&self, work: &mut Self::Work<'_>, email: &str) -> Result<(), String>;
    /// The repository: lets the unit of work track an invitation.
    fn track(&self, work: &mut Self::Work<'_>, invitation: &mut Invitation);
    async fn end(
        &self,
        work: Self::Work<'_>,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<Vec<Enqueued>, CommitError>;
    async fn was_committed(
        &self,
        work: &mut Self::Work<'_>,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<bool, StoreError>;
    /// Whom the application has invited.
    async fn invited(&self) -> Vec<String>;
    /// What the outbox holds.
    async fn events(&self) -> Vec<Event>;

    /// The members with an event in the outbox.
    async fn announced(&self) -> Vec<String> {
        let events = self.events().await;
        let mut members: Vec<String> = events
            .into_iter()
            .filter_map(|event| event.aggregate_id.clone())
            .collect();
        members.sort();
        members
    }

    /// Saves an invitation and commits it with what it recorded.
    async fn commit(&self, invitation: &mut Invitation) -> Result<Vec<Enqueued>, CommitError> {
        let outbox = self.outbox();
        let mut work = self.begin(&outbox).await;
        self.save(&mut work, &invitation.email).await.expect("saves");
        self.end(work, &mut [invitation]).await
    }

    /// The command handler: invites a member that was not invited before.
    async fn invite(&self, email: &str) -> Result<(), CommitError> {
        let outbox = self.outbox();
        let mut work = self.begin(&outbox).await;
        if self.exists(&mut work, email).await {
            return Ok(());
        }
        let mut invitation = Invitation::create(email);
        self.save(&mut work, &invitation.email).await.expect("saves");
        self.end(work, &mut [&mut invitation]).await?;
        Ok(())
    }
}

/// A database that is reached by way of an address.
trait Remote: Database {
    /// Does the library hide the server's error codes, so that a connection that the server ended is any error?
    const HIDES_CODES: bool;

    fn through(postgres: &OnPostgres, url: &str) -> Self;
}

const EXISTS: &str = "select 1 from pillarbox.invitations where email = $1";
const SAVE: &str = "insert into pillarbox.invitations (email, family) values ($1, 1)
    on conflict (email) do nothing";
const POSTGRES_TRAP: [&str; 2] = [
    "create function pillarbox.refuse() returns trigger language plpgsql
       as $$ begin raise exception 'not today'; end $$;
     create trigger trap before insert on pillarbox.invitations
       for each row execute function pillarbox.refuse()",
    "drop trigger trap on pillarbox.invitations",
];
const SQLITE_TRAP: [&str; 2] = [
    "create trigger trap before insert on invitations
       begin select raise(abort, 'not today'); end",
    "drop trigger trap",
];

macro_rules! database {
    ($type:ty, $trap:expr) => {
        impl Database for $type {
            type Work<'a> = UnitOfWork<'a, <Self as Application>::Transaction>;

            fn outbox(&self) -> Outbox {
                Application::outbox(self)
            }

            async fn run(&self, sql: &str) {
                let done = sqlx::raw_sql(self.sql(sql)).execute(&self.pool).await;
                done.expect("the statement runs");
            }

            fn trap(&self) -> [&'static str; 2] {
                $trap
            }

            async fn begin<'a>(&self, outbox: &'a Outbox) -> Self::Work<'a> {
                UnitOfWork::new(outbox, Application::begin(self).await)
            }

            async fn exists(&self, work: &mut Self::Work<'_>, email: &str) -> bool {
                let found = sqlx::query(self.sql(EXISTS))
                    .bind(email)
                    .fetch_optional(&mut ***work)
                    .await;
                found.expect("it reads").is_some()
            }

            async fn save(&self, work: &mut Self::Work<'_>, email: &str) -> Result<(), String> {
                let insert = sqlx::query(self.sql(SAVE))
                    .bind(email)
                    .execute(&mut ***work);
                insert.await.map(drop).map_err(|error| error.to_string())
            }

            fn track(&self, work: &mut Self::Work<'_>, invitation: &mut Invitation) {
                work.track(invitation);
            }

            async fn end(
                &self,
                work: Self::Work<'_>,
                aggregates: &mut [&mut dyn Aggregate],
            ) -> Result<Vec<Enqueued>, CommitError> {
                work.commit(aggregates).await
            }

            async fn was_committed(
                &self,
                work: &mut Self::Work<'_>,
                aggregates: &mut [&mut dyn Aggregate],
            ) -> Result<bool, StoreError> {
                work.was_committed(aggregates).await
            }

            async fn invited(&self) -> Vec<String> {
                let select = "select email from pillarbox.invitations order by email";
                let emails = sqlx::query_scalar(self.sql(select))
                    .fetch_all(&self.pool)
                    .await;
                emails.expect("it reads")
            }

            async fn events(&self) -> Vec<Event> {
                let mut transaction = Application::begin(self).await;
                let events = Application::outbox(self).enqueued(&mut transaction).await;
                events.expect("it reads")
            }
        }
    };
}

database!(OnPostgres, POSTGRES_TRAP);
database!(OnSqlite, SQLITE_TRAP);

impl Remote for OnPostgres {
    const HIDES_CODES: bool = false;

    fn through(postgres: &OnPostgres, url: &str) -> Self {
        Self {
            store: postgres.store.clone(),
            pool: PgPool::connect_lazy(url).expect("a URL"),
        }
    }
}

/// An outbox and the application's tables in a schema of their own, with a family.
async fn on_postgres() -> (PostgresHarness, OnPostgres) {
    let harness = PostgresHarness::direct().await;
    let database = OnPostgres::existing(harness.store.schema());
    database.run(TABLES).await;
    database.run("insert into pillarbox.families values (1)").await;
    (harness, database)
}

/// The same by way of another library.
async fn on_library<D: Remote>() -> (PostgresHarness, D) {
    let (harness, postgres) = on_postgres().await;
    let database = D::through(&postgres, &variable("PILLARBOX_TEST_POSTGRES_URL"));
    (harness, database)
}

/// The same in a file of their own.
async fn on_sqlite() -> (SqliteHarness, OnSqlite) {
    let harness = SqliteHarness::fresh().await;
    let database = OnSqlite {
        pool: pool(&harness.path()).await,
        prefix: "",
    };
    database.run(TABLES).await;
    database.run("insert into pillarbox.families values (1)").await;
    (harness, database)
}

/// One invitation, one event, and they agree.
async fn assert_invited_once(database: &impl Database, email: &str) {
    assert_eq!(database.invited().await, [email]);
    let events = database.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].aggregate_id.as_deref(), Some(email));
    assert_eq!(events[0].event_version, 3);
}
