//! The application with diesel-async, and with diesel itself, which blocks. What only they can get wrong is tested here.

use ::diesel::connection::SimpleConnection;
use ::diesel::sql_types::{BigInt, Text};
use ::diesel::{Connection, OptionalExtension, PgConnection, QueryableByName, RunQueryDsl, sql_query};
use ::diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl as AsyncRunQueryDsl};
use pillarbox::diesel::{BlockingTransaction, Transaction, begin, begin_blocking};

use super::*;

#[derive(Clone)]
pub(super) struct OnDieselAsync {
    postgres: OnPostgres,
    url: String,
}

#[derive(Clone)]
pub(super) struct OnDiesel {
    postgres: OnPostgres,
    url: String,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// What does not depend on the library: it is the same database.
macro_rules! on_the_same_postgres {
    () => {
        fn outbox(&self) -> Outbox {
            Database::outbox(&self.postgres)
        }

        async fn run(&self, sql: &str) {
            self.postgres.run(sql).await;
        }

        fn trap(&self) -> [&'static str; 2] {
            POSTGRES_TRAP
        }

        fn track(&self, work: &mut Self::Work<'_>, invitation: &mut Invitation) {
            work.track(invitation);
        }

        async fn invited(&self) -> Vec<String> {
            self.postgres.invited().await
        }

        async fn events(&self) -> Vec<Event> {
            self.postgres.events().await
        }
    };
}

impl Remote for OnDieselAsync {
    const HIDES_CODES: bool = true;

    fn through(postgres: &OnPostgres, url: &str) -> Self {
        Self {
            postgres: postgres.clone(),
            url: url.to_owned(),
        }
    }
}

impl Database for OnDieselAsync {
    type Work<'a> = UnitOfWork<'a, Transaction<Box<AsyncPgConnection>>>;

    on_the_same_postgres!();

    async fn begin<'a>(&self, outbox: &'a Outbox) -> Self::Work<'a> {
        let connection = AsyncPgConnection::establish(&self.url).await.expect("connects");
        let transaction = begin(Box::new(connection)).await.expect("begins");
        UnitOfWork::new(outbox, transaction)
    }

    async fn exists(&self, work: &mut Self::Work<'_>, email: &str) -> bool {
        let select = sql_query(self.postgres.sql(EXISTS).0).bind::<Text, _>(email);
        AsyncRunQueryDsl::execute(select, &mut ***work)
            .await
            .expect("it reads")
            > 0
    }

    async fn save(&self, work: &mut Self::Work<'_>, email: &str) -> Result<(), String> {
        let insert = sql_query(self.postgres.sql(SAVE).0).bind::<Text, _>(email);
        let done = AsyncRunQueryDsl::execute(insert, &mut ***work).await;
        done.map(drop).map_err(|error| error.to_string())
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
}

impl Remote for OnDiesel {
    const HIDES_CODES: bool = true;

    fn through(postgres: &OnPostgres, url: &str) -> Self {
        Self {
            postgres: postgres.clone(),
            url: url.to_owned(),
        }
    }
}

impl OnDiesel {
    fn begin_now<'a>(&self, outbox: &'a Outbox) -> <Self as Database>::Work<'a> {
        let connection = PgConnection::establish(&self.url).expect("connects");
        let transaction = begin_blocking(Box::new(connection)).expect("begins");
        UnitOfWork::new(outbox, transaction)
    }

    fn save_now(&self, work: &mut <Self as Database>::Work<'_>, email: &str) -> Result<(), String> {
        let insert = sql_query(self.postgres.sql(SAVE).0).bind::<Text, _>(email);
        let done = RunQueryDsl::execute(insert, &mut ***work);
        done.map(drop).map_err(|error| error.to_string())
    }
}

impl Database for OnDiesel {
    type Work<'a> = UnitOfWork<'a, BlockingTransaction<Box<PgConnection>>>;

    on_the_same_postgres!();

    async fn begin<'a>(&self, outbox: &'a Outbox) -> Self::Work<'a> {
        self.begin_now(outbox)
    }

    async fn exists(&self, work: &mut Self::Work<'_>, email: &str) -> bool {
        let select = sql_query(self.postgres.sql(EXISTS).0).bind::<Text, _>(email);
        RunQueryDsl::execute(select, &mut ***work).expect("it reads") > 0
    }

    async fn save(&self, work: &mut Self::Work<'_>, email: &str) -> Result<(), String> {
        self.save_now(work, email)
    }

    async fn end(
        &self,
        work: Self::Work<'_>,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<Vec<Enqueued>, CommitError> {
        work.commit_blocking(aggregates)
    }

    async fn was_committed(
        &self,
        work: &mut Self::Work<'_>,
        aggregates: &mut [&mut dyn Aggregate],
    ) -> Result<bool, StoreError> {
        work.was_committed_blocking(aggregates)
    }

    /// On a thread of its own, so that a test can do something meanwhile.
    async fn commit(&self, invitation: &mut Invitation) -> Result<Vec<Enqueued>, CommitError> {
        let this = self.clone();
        let mut moved = Invitation {
            email: invitation.email.clone(),
            recorded: std::mem::take(&mut invitation.recorded),
        };
        let thread = tokio::task::spawn_blocking(move || {
            let outbox = Database::outbox(&this);
            let mut work = this.begin_now(&outbox);
            this.save_now(&mut work, &moved.email).expect("saves");
            let done = work.commit_blocking(&mut [&mut moved]);
            (done, moved)
        });
        let (done, moved) = thread.await.expect("no panic");
        invitation.recorded = moved.recorded;
        done
    }
}

/// How many invitations a connection sees.
const COUNT: &str = "select count(*) as count from pillarbox.invitations";

#[tokio::test]
async fn a_connection_of_diesel_async_goes_on_after_a_unit_of_work_was_dropped() {
    let (harness, database) = on_library::<OnDieselAsync>().await;
    let outbox = Database::outbox(&database);
    let mut connection = AsyncPgConnection::establish(&database.url)
        .await
        .expect("connects");
    let (insert, count) = (database.postgres.sql(SAVE).0, database.postgres.sql(COUNT).0);
    let save = async |connection: &mut AsyncPgConnection, email: &str| {
        let insert = sql_query(insert.clone()).bind::<Text, _>(email.to_owned());
        AsyncRunQueryDsl::execute(insert, connection)
            .await
            .expect("saves");
    };
    for email in ["ada", "bob"] {
        let transaction = begin(&mut connection).await.expect("begins");
        let mut work = UnitOfWork::new(&outbox, transaction);
        save(&mut work, email).await;
        drop(work);
    }
    let counted: Count = AsyncRunQueryDsl::get_result(sql_query(count.clone()), &mut connection)
        .await
        .expect("it reads");
    assert_eq!(counted.count, 0, "both were rolled back");
    save(&mut connection, "carol").await; // in no transaction: it commits by itself
    assert_eq!(database.invited().await, ["carol"]);

    // In a transaction of the caller's own it is a savepoint.
    let mut dora = Invitation::create("dora");
    connection
        .transaction(async |connection| {
            save(connection, "outer").await;
            let mut dropped = UnitOfWork::new(&outbox, begin(&mut *connection).await.expect("begins"));
            save(&mut dropped, "ada").await;
            drop(dropped);
            let mut work = UnitOfWork::new(&outbox, begin(connection).await.expect("begins"));
            save(&mut work, "dora").await;
            work.commit(&mut [&mut dora]).await.expect("commits");
            Ok::<_, ::diesel::result::Error>(())
        })
        .await
        .expect("commits");
    assert_eq!(database.invited().await, ["carol", "dora", "outer"]);
    assert_eq!(database.announced().await, ["dora"]);
    harness.clean_up().await;
}

#[tokio::test]
async fn a_connection_of_diesel_goes_on_after_a_unit_of_work_was_dropped() {
    let (harness, database) = on_library::<OnDiesel>().await;
    let outbox = Database::outbox(&database);
    let mut connection = PgConnection::establish(&database.url).expect("connects");
    let (insert, exists) = (database.postgres.sql(SAVE).0, database.postgres.sql(EXISTS).0);
    let save = |connection: &mut PgConnection, email: &str| {
        let insert = sql_query(&insert).bind::<Text, _>(email);
        RunQueryDsl::execute(insert, connection).expect("saves");
    };
    let mut work = UnitOfWork::new(&outbox, begin_blocking(&mut connection).expect("begins"));
    save(&mut work, "ada");
    drop(work);
    let found = sql_query(exists).bind::<Text, _>("ada");
    assert_eq!(
        RunQueryDsl::execute(found, &mut connection).optional(),
        Ok(Some(0))
    );
    connection
        .batch_execute("select 1")
        .expect("the connection is well");

    let mut dora = Invitation::create("dora");
    connection
        .transaction(|connection| {
            save(connection, "outer");
            let mut work = UnitOfWork::new(&outbox, begin_blocking(connection).expect("begins"));
            save(&mut work, "dora");
            work.commit_blocking(&mut [&mut dora]).expect("commits");
            Ok::<_, ::diesel::result::Error>(())
        })
        .expect("commits");
    assert_eq!(database.invited().await, ["dora", "outer"]);
    assert_eq!(database.announced().await, ["dora"]);
    harness.clean_up().await;
}
