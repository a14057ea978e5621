//! A family's invitations: a command handler, an aggregate, a repository and a unit of work, on real databases.

mod killed;
mod lost;
mod saving;

use pillarbox::{Aggregate, CommitError, Enqueued, Event, Recorded, UnitOfWork};
use pillarbox_testkit::store_suite::Harness;
use serde::Serialize;
use sqlx::PgPool;

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

/// What both databases do for the application, each with its own types.
trait Database: Application {
    /// Runs SQL that is written for the schema `pillarbox`.
    async fn run(&self, sql: &str);
    /// The repository: is there such an invitation?
    async fn exists(&self, transaction: &mut Self::Transaction, email: &str) -> bool;
    /// The repository: saves an invitation, once or again.
    async fn save(&self, transaction: &mut Self::Transaction, email: &str) -> Result<(), sqlx::Error>;
    /// Whom the application has invited.
    async fn invited(&self) -> Vec<String>;

    /// What the outbox holds.
    async fn events(&self) -> Vec<Event> {
        let mut transaction = self.begin().await;
        let events = self.outbox().enqueued(&mut transaction).await;
        events.expect("it reads")
    }

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
        let mut work = UnitOfWork::new(&outbox, self.begin().await);
        self.save(&mut work, &invitation.email).await.expect("saves");
        work.commit(&mut [invitation]).await
    }

    /// The command handler: invites a member that was not invited before.
    async fn invite(&self, email: &str) -> Result<(), CommitError> {
        let outbox = self.outbox();
        let mut work = UnitOfWork::new(&outbox, self.begin().await);
        if self.exists(&mut work, email).await {
            return Ok(());
        }
        let mut invitation = Invitation::create(email);
        self.save(&mut work, &invitation.email).await.expect("saves");
        work.commit(&mut [&mut invitation]).await?;
        Ok(())
    }
}

impl OnPostgres {
    /// The same by way of another address.
    fn through(&self, url: &str) -> Self {
        Self {
            store: self.store.clone(),
            pool: PgPool::connect_lazy(url).expect("a URL"),
        }
    }
}

macro_rules! database {
    ($type:ty) => {
        impl Database for $type {
            async fn run(&self, sql: &str) {
                let done = sqlx::raw_sql(self.sql(sql)).execute(&self.pool).await;
                done.expect("the statement runs");
            }

            async fn exists(&self, transaction: &mut Self::Transaction, email: &str) -> bool {
                let found = sqlx::query(self.sql("select 1 from pillarbox.invitations where email = $1"))
                    .bind(email)
                    .fetch_optional(&mut **transaction)
                    .await;
                found.expect("it reads").is_some()
            }

            async fn save(
                &self,
                transaction: &mut Self::Transaction,
                email: &str,
            ) -> Result<(), sqlx::Error> {
                let insert = "insert into pillarbox.invitations (email, family) values ($1, 1)
                    on conflict (email) do nothing";
                let insert = sqlx::query(self.sql(insert)).bind(email);
                insert.execute(&mut **transaction).await?;
                Ok(())
            }

            async fn invited(&self) -> Vec<String> {
                let select = "select email from pillarbox.invitations order by email";
                let emails = sqlx::query_scalar(self.sql(select))
                    .fetch_all(&self.pool)
                    .await;
                emails.expect("it reads")
            }
        }
    };
}

database!(OnPostgres);
database!(OnSqlite);

/// An outbox and the application's tables in a schema of their own, with a family.
async fn on_postgres() -> (PostgresHarness, OnPostgres) {
    let harness = PostgresHarness::direct().await;
    let database = OnPostgres::existing(harness.store.schema());
    database.run(TABLES).await;
    database.run("insert into pillarbox.families values (1)").await;
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
