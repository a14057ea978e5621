//! The producer suite in the transactions of every library.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::{EnqueueError, Enqueued, Event, Outbox, Recorded};
use pillarbox_store::operate::Filter;
use pillarbox_store::{Operate, Store};
use pillarbox_testkit::store_suite::{Capability, Corruption, Harness, Skipped, Tx};
use uuid::Uuid;

use super::harness::{Open, PostgresHarness, Session};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::environment::variable;

/// An outbox whose producers use this library.
struct Through<L> {
    outbox: PostgresHarness,
    library: L,
}

impl<L: Library> Through<L> {
    async fn fresh() -> Self {
        Self {
            outbox: PostgresHarness::direct().await,
            library: L::new(variable("PILLARBOX_TEST_POSTGRES_URL")).await,
        }
    }

    /// Are these all the rows that there are? Cleans up.
    async fn assert_holds(self, ids: &[Uuid]) {
        let rows = self
            .operate()
            .list(&OPERATOR, &Filter::default())
            .await
            .expect("lists");
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
        self.clean_up().await;
    }
}

#[async_trait]
trait Library: Send + Sync + 'static {
    async fn new(url: String) -> Self;
    async fn begin(&self, outbox: Outbox) -> Box<dyn Tx>;
}

#[async_trait]
impl<L: Library> Harness for Through<L> {
    fn store(&self) -> Arc<dyn Store> {
        self.outbox.store()
    }

    fn operate(&self) -> Arc<dyn Operate> {
        self.outbox.operate()
    }

    async fn begin(&self) -> Box<dyn Tx> {
        self.library.begin(self.outbox.outbox()).await
    }

    async fn age(&self, by: time::Duration) {
        self.outbox.age(by).await;
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        self.outbox.can(what)
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        self.outbox.corrupt(id, corruption).await;
    }

    async fn clean_up(&self) {
        self.outbox.clean_up().await;
    }
}

/// sqlx with statements that stay prepared; without, it is the store's own harness.
mod sqlx_prepared {
    use super::*;

    struct Prepared(sqlx::PgPool);

    #[async_trait]
    impl Library for Prepared {
        async fn new(url: String) -> Self {
            Self(sqlx::PgPool::connect_lazy(&url).expect("a URL"))
        }

        async fn begin(&self, outbox: Outbox) -> Box<dyn Tx> {
            Box::new(Open {
                outbox: outbox.prepared(),
                session: self.0.begin().await.expect("begins"),
            })
        }
    }

    pillarbox_testkit::producer_suite!(Through::<Prepared>::fresh);
}

mod tokio_postgres {
    use super::*;
    use ::tokio_postgres::{Client, NoTls};
    use pillarbox::UnitOfWork;

    struct TokioPostgres(String);

    async fn connect(url: &str) -> Client {
        let (client, connection) = ::tokio_postgres::connect(url, NoTls).await.expect("connects");
        tokio::spawn(connection); // ends with the client
        client
    }

    #[async_trait]
    impl Library for TokioPostgres {
        async fn new(url: String) -> Self {
            Self(url)
        }

        async fn begin(&self, outbox: Outbox) -> Box<dyn Tx> {
            let mut session = connect(&self.0).await;
            session.say("begin").await;
            Box::new(Open { outbox, session })
        }
    }

    #[async_trait]
    impl Session for Client {
        async fn say(&mut self, sql: &'static str) {
            self.batch_execute(sql).await.expect("the statement runs");
        }
    }

    pillarbox_testkit::producer_suite!(Through::<TokioPostgres>::fresh);

    #[tokio::test]
    async fn a_transaction_of_its_own_kind_is_taken_too() {
        let harness = Through::<TokioPostgres>::fresh().await;
        let outbox = harness.outbox.outbox();
        let mut client = connect(&harness.library.0).await;
        let event = Event::new("shop", "orders");
        let mut transaction = client.transaction().await.expect("begins");
        let enqueued = outbox.enqueue(&mut transaction, &event).await.expect("accepted");
        assert_eq!(enqueued, Enqueued::New(event.id));
        transaction.commit().await.expect("commits");
        let mut transaction = client.transaction().await.expect("begins");
        let gone = Event::new("shop", "orders");
        outbox.enqueue(&mut transaction, &gone).await.expect("accepted");
        drop(transaction); // rolls back
        harness.assert_holds(&[event.id]).await;
    }

    #[tokio::test]
    async fn a_unit_of_work_commits_it() {
        let harness = Through::<TokioPostgres>::fresh().await;
        let outbox = harness.outbox.outbox();
        let mut client = connect(&harness.library.0).await;
        let (mut recorded, event) = (Recorded::default(), Event::new("shop", "orders"));
        recorded.record(&event);
        drop(UnitOfWork::new(
            &outbox,
            client.transaction().await.expect("begins"),
        ));
        let work = UnitOfWork::new(&outbox, client.transaction().await.expect("begins"));
        work.commit(&mut [&mut recorded]).await.expect("commits");
        assert!(recorded.is_empty());
        harness.assert_holds(&[event.id]).await;
    }

    #[tokio::test]
    async fn behind_pgbouncer_no_statement_stays_behind() {
        let harness = PostgresHarness::direct().await;
        let outbox = harness.outbox();
        let url = variable("PILLARBOX_TEST_PGBOUNCER_URL");
        let producers = (0..4).map(|_| {
            let (url, outbox) = (url.clone(), outbox.clone());
            tokio::spawn(async move {
                let mut client = connect(&url).await;
                for _ in 0..10 {
                    let mut transaction = client.transaction().await.expect("begins");
                    let event = Event::new("shop", "orders");
                    outbox.enqueue(&mut transaction, &event).await.expect("accepted");
                    transaction.commit().await.expect("commits");
                }
            })
        });
        for producer in producers.collect::<Vec<_>>() {
            producer.await.expect("no statement of another");
        }
        assert_eq!(
            harness
                .operate()
                .stats(&OPERATOR, &pillarbox_store::Scope::All)
                .await
                .expect("counts")
                .pending,
            40
        );
        harness.clean_up().await;
    }
}

mod sea_orm {
    use super::*;
    use ::sea_orm::{
        ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, TransactionTrait,
    };
    use pillarbox::UnitOfWork;

    struct SeaOrm(DatabaseConnection);

    #[async_trait]
    impl Library for SeaOrm {
        async fn new(url: String) -> Self {
            let mut options = ConnectOptions::new(url);
            options.max_connections(6).sqlx_logging(false);
            Self(Database::connect(options).await.expect("connects"))
        }

        async fn begin(&self, outbox: Outbox) -> Box<dyn Tx> {
            Box::new(Open {
                outbox,
                session: self.0.begin().await.expect("begins"),
            })
        }
    }

    #[async_trait]
    impl Session for DatabaseTransaction {
        async fn say(&mut self, sql: &'static str) {
            let done = self.execute_unprepared(sql).await;
            done.expect("the statement runs");
        }

        async fn commit(self) {
            DatabaseTransaction::commit(self).await.expect("commits");
        }

        async fn rollback(self) {
            DatabaseTransaction::rollback(self).await.expect("rolls back");
        }
    }

    pillarbox_testkit::producer_suite!(Through::<SeaOrm>::fresh);

    #[tokio::test]
    async fn a_unit_of_work_commits_it() {
        let harness = Through::<SeaOrm>::fresh().await;
        let outbox = harness.outbox.outbox();
        let (mut recorded, event) = (Recorded::default(), Event::new("shop", "orders"));
        recorded.record(&event);
        let work = UnitOfWork::new(&outbox, harness.library.0.begin().await.expect("begins"));
        work.commit(&mut [&mut recorded]).await.expect("commits");
        assert!(recorded.is_empty());
        harness.assert_holds(&[event.id]).await;
    }

    #[tokio::test]
    async fn the_transaction_that_a_closure_is_lent_is_taken_too() {
        let harness = Through::<SeaOrm>::fresh().await;
        let outbox = harness.outbox.outbox();
        let event = Event::new("shop", "orders");
        let id = event.id;
        let done = harness.library.0.transaction(|transaction| {
            Box::pin(async move { outbox.enqueue(&mut &*transaction, &event).await })
        });
        assert_eq!(done.await.expect("commits"), Enqueued::New(id));
        assert_eq!(
            harness
                .operate()
                .stats(&OPERATOR, &pillarbox_store::Scope::All)
                .await
                .expect("counts")
                .pending,
            1
        );
        harness.clean_up().await;
    }
}

mod diesel_async {
    use super::*;
    use ::diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};

    struct DieselAsync(String);

    #[async_trait]
    impl Library for DieselAsync {
        async fn new(url: String) -> Self {
            Self(url)
        }

        async fn begin(&self, outbox: Outbox) -> Box<dyn Tx> {
            let mut session = AsyncPgConnection::establish(&self.0).await.expect("connects");
            session.say("begin").await;
            Box::new(Open { outbox, session })
        }
    }

    #[async_trait]
    impl Session for AsyncPgConnection {
        async fn say(&mut self, sql: &'static str) {
            self.batch_execute(sql).await.expect("the statement runs");
        }
    }

    pillarbox_testkit::producer_suite!(Through::<DieselAsync>::fresh);

    #[tokio::test]
    async fn the_connection_that_a_closure_is_lent_is_in_its_transaction() {
        let harness = Through::<DieselAsync>::fresh().await;
        let outbox = harness.outbox.outbox();
        let mut connection = AsyncPgConnection::establish(&harness.library.0)
            .await
            .expect("connects");
        let kept = Event::new("shop", "orders");
        let done: Result<Enqueued, Box<dyn std::error::Error + Send + Sync>> = connection
            .transaction(async |connection| Ok(outbox.enqueue(connection, &kept).await?))
            .await;
        assert_eq!(done.expect("commits"), Enqueued::New(kept.id));
        let failed: Result<(), Box<dyn std::error::Error + Send + Sync>> = connection
            .transaction(async |connection| {
                outbox.enqueue(connection, &Event::new("shop", "orders")).await?;
                Err("the save failed".into())
            })
            .await;
        failed.expect_err("rolled back");
        harness.assert_holds(&[kept.id]).await;
    }
}

mod diesel {
    use super::*;
    use ::diesel::connection::SimpleConnection;
    use ::diesel::{Connection, PgConnection};
    use pillarbox::StoreError;
    use pillarbox::inbox::Inbox;
    use pillarbox::inbox::Key;
    use std::time::Duration;

    struct Diesel(String);

    /// Off the runtime's threads, since it blocks.
    async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        #[expect(clippy::disallowed_methods, reason = "the library under test blocks")]
        let done = tokio::task::spawn_blocking(work).await;
        done.expect("no panic")
    }

    #[async_trait]
    impl Library for Diesel {
        async fn new(url: String) -> Self {
            Self(url)
        }

        async fn begin(&self, outbox: Outbox) -> Box<dyn Tx> {
            let url = self.0.clone();
            let connection = on_blocking_thread(move || {
                let mut connection = PgConnection::establish(&url).expect("connects");
                connection.batch_execute("begin").expect("begins");
                connection
            });
            Box::new(Uncommitted {
                outbox,
                connection: Some(connection.await),
            })
        }
    }

    /// No [`Session`], since it blocks.
    struct Uncommitted {
        outbox: Outbox,
        connection: Option<PgConnection>,
    }

    impl Uncommitted {
        async fn with<T: Send + 'static>(
            &mut self,
            work: impl FnOnce(&mut PgConnection) -> T + Send + 'static,
        ) -> T {
            let mut connection = self.connection.take().expect("one call at a time");
            let (connection, done) = on_blocking_thread(move || {
                let done = work(&mut connection);
                (connection, done)
            })
            .await;
            self.connection = Some(connection);
            done
        }

        fn inbox(&self) -> Inbox {
            Inbox::in_schema(self.outbox.schema()).expect("a sound name")
        }

        async fn say(&mut self, sql: &'static str) {
            let done = self.with(move |connection| connection.batch_execute(sql)).await;
            done.expect("the statement runs");
        }
    }

    #[async_trait]
    impl Tx for Uncommitted {
        async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
            let (outbox, events) = (self.outbox.clone(), events.to_vec());
            let trace = pillarbox::trace::current();
            self.with(move |connection| match trace {
                // Values of a task are not known on its blocking thread.
                Some(trace) => {
                    pillarbox::trace::within_blocking(trace, || outbox.enqueue_blocking(connection, &events))
                }
                None => outbox.enqueue_blocking(connection, &events),
            })
            .await
        }

        async fn enqueued(&mut self) -> Vec<Event> {
            let outbox = self.outbox.clone();
            let seen = self.with(move |connection| outbox.enqueued_blocking(connection));
            seen.await.expect("it reads")
        }

        async fn enqueue_recorded(&mut self, recorded: &mut Recorded) -> Result<Vec<Enqueued>, EnqueueError> {
            let outbox = self.outbox.clone();
            let mut moved = std::mem::take(recorded);
            let work = self.with(move |connection| {
                let enqueued = outbox.enqueue_recorded_blocking(connection, &mut [&mut moved]);
                (moved, enqueued)
            });
            let (moved, enqueued) = work.await;
            *recorded = moved;
            enqueued
        }

        async fn mark(&mut self, consumer: &str, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
            let (inbox, consumer, keys) = (self.inbox(), consumer.to_owned(), keys.to_vec());
            self.with(move |connection| inbox.mark_all_blocking(connection, &consumer, &keys))
                .await
        }

        async fn unmark(&mut self, consumer: &str, keys: &[Key]) -> Result<(), StoreError> {
            let (inbox, consumer, keys) = (self.inbox(), consumer.to_owned(), keys.to_vec());
            self.with(move |connection| inbox.unmark_blocking(connection, &consumer, &keys))
                .await
        }

        async fn prune(&mut self, consumer: &str, keep: Duration) -> Result<u64, StoreError> {
            let (inbox, consumer) = (self.inbox().keep(keep), consumer.to_owned());
            self.with(move |connection| inbox.prune_blocking(connection, &consumer))
                .await
        }

        async fn savepoint(&mut self) {
            self.say("savepoint mark").await;
        }

        async fn rollback_to_savepoint(&mut self) {
            self.say("rollback to mark").await;
        }

        async fn commit(mut self: Box<Self>) {
            self.say("commit").await;
        }

        async fn rollback(mut self: Box<Self>) {
            self.say("rollback").await;
        }
    }

    pillarbox_testkit::producer_suite!(Through::<Diesel>::fresh);

    #[tokio::test]
    async fn the_connection_that_a_closure_is_lent_is_in_its_transaction() {
        type Failed = Box<dyn std::error::Error>;
        let harness = Through::<Diesel>::fresh().await;
        let (outbox, url) = (harness.outbox.outbox(), harness.library.0.clone());
        let kept = Event::new("shop", "orders");
        let id = kept.id;
        on_blocking_thread(move || {
            let mut connection = PgConnection::establish(&url).expect("connects");
            let done = connection.transaction(|connection| {
                let done = outbox.enqueue_blocking(connection, std::slice::from_ref(&kept))?;
                Ok::<_, Failed>(done)
            });
            assert_eq!(done.expect("commits"), [Enqueued::New(id)]);
            let failed = connection.transaction(|connection| {
                outbox.enqueue_blocking(connection, &[Event::new("shop", "orders")])?;
                Err::<(), Failed>("the save failed".into())
            });
            failed.expect_err("rolled back");
        })
        .await;
        harness.assert_holds(&[id]).await;
    }
}
