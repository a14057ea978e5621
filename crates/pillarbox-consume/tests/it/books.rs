//! The business: entries in a book, one for each event. Whatever is handled twice is there twice.

use std::collections::BTreeMap;

use pillarbox::Event;
use pillarbox::inbox::Inbox;
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use pillarbox_store::stores::postgres::{Options, Postgres};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, PgTransaction};

use crate::environment::{fresh_name, variable};

/// A schema of the test's own, with an inbox and a book.
pub(crate) struct Books {
    pub(crate) pool: PgPool,
    pub(crate) schema: String,
}

/// What an event says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) account: String,
    pub(crate) number: i64,
}

/// An event of this account.
pub(crate) fn entry(account: &str, number: i64) -> Event {
    let body = Entry {
        account: account.to_owned(),
        number,
    };
    Event::new("bank", "entries")
        .event_type("EntryMade")
        .ordering_key(account)
        .json(&body)
        .unwrap()
}

impl Books {
    /// A fresh one.
    pub(crate) async fn open() -> Self {
        let schema = fresh_name("t").replace('-', "_");
        let options = Options {
            schema: schema.clone(),
            max_connections: 2,
            ..Options::default()
        };
        let store = Postgres::new(&variable("PILLARBOX_TEST_POSTGRES_URL"), options).unwrap();
        store.migrate().await.unwrap();
        store.close().await;
        let books = Self::existing(&schema);
        let table = "create table BOOK (position bigserial primary key, account text not null, number bigint not null)";
        let table = table.replace("BOOK", &books.table());
        sqlx::raw_sql(AssertSqlSafe(table))
            .execute(&books.pool)
            .await
            .unwrap();
        books
    }

    /// One that another process opened.
    pub(crate) fn existing(schema: &str) -> Self {
        let options = variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap();
        Self {
            pool: PgPoolOptions::new()
                .max_connections(10)
                .connect_lazy_with(options),
            schema: schema.to_owned(),
        }
    }

    pub(crate) fn inbox(&self) -> Inbox {
        Inbox::in_schema(&self.schema).unwrap().prepared()
    }

    /// A consumer that keeps the book.
    pub(crate) fn consumer(&self) -> Consumer<PgPool> {
        self.consumer_on(self.pool.clone())
    }

    /// The same by another way to the database.
    pub(crate) fn consumer_on(&self, pool: PgPool) -> Consumer<PgPool> {
        Consumer::new("books", pool)
            .inbox(self.inbox())
            .concurrency(8)
            .on("EntryMade", 1, self.keeper())
    }

    pub(crate) fn keeper(&self) -> Keeper {
        let table = self.table();
        Keeper {
            insert: format!("insert into {table} (account, number) values ($1, $2)"),
        }
    }

    fn table(&self) -> String {
        format!("{}.book", self.schema)
    }

    /// How many entries there are.
    pub(crate) async fn len(&self) -> i64 {
        let count = format!("select count(*) from {}", self.table());
        let count = sqlx::query_scalar(AssertSqlSafe(count));
        count.fetch_one(&self.pool).await.unwrap()
    }

    /// The entries of every account, in the order in which they were made.
    pub(crate) async fn accounts(&self) -> BTreeMap<String, Vec<i64>> {
        let select = format!("select account, number from {} order by position", self.table());
        let rows: Vec<(String, i64)> = sqlx::query_as(AssertSqlSafe(select))
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let mut accounts: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (account, number) in rows {
            accounts.entry(account).or_default().push(number);
        }
        accounts
    }

    pub(crate) async fn account(&self, account: &str) -> Vec<i64> {
        self.accounts().await.remove(account).unwrap_or_default()
    }

    /// Leaves nothing behind.
    pub(crate) async fn close(self) {
        let drop = format!("drop schema {} cascade", self.schema);
        sqlx::raw_sql(AssertSqlSafe(drop))
            .execute(&self.pool)
            .await
            .unwrap();
        self.pool.close().await;
    }
}

/// Makes an entry for each event.
pub(crate) struct Keeper {
    insert: String,
}

impl Handler<PgTransaction<'static>, Entry> for Keeper {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        sqlx::query(AssertSqlSafe(self.insert.clone()))
            .bind(event.body.account)
            .bind(event.body.number)
            .execute(&mut **transaction)
            .await?;
        Ok(())
    }
}
