//! The business table: one entry for each event. An event that is handled twice has two entries.

use std::collections::BTreeMap;

use pillarbox::Event;
use pillarbox::inbox::Inbox;
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use pillarbox_store::stores::postgres::{Options, Postgres};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, PgTransaction};

use pillarbox_testkit::environment::{unique_identifier, variable};

/// A schema that no other test uses, with an inbox and a table of entries.
pub(crate) struct Ledger {
    pub(crate) pool: PgPool,
    pub(crate) schema: String,
}

/// The body of an event.
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

impl Ledger {
    /// Creates it.
    pub(crate) async fn create() -> Self {
        let schema = unique_identifier("t");
        let options = Options {
            schema: schema.clone(),
            max_connections: 2,
            ..Options::default()
        };
        let store = Postgres::new(&variable("PILLARBOX_TEST_POSTGRES_URL"), options).unwrap();
        store.migrate().await.unwrap();
        store.close().await;
        let ledger = Self::existing(&schema);
        let table = "create table LEDGER (position bigserial primary key, account text not null, number bigint not null)";
        let table = table.replace("LEDGER", &ledger.table());
        sqlx::raw_sql(AssertSqlSafe(table))
            .execute(&ledger.pool)
            .await
            .unwrap();
        ledger
    }

    /// One that another process created.
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

    /// A consumer that writes entries.
    pub(crate) fn consumer(&self) -> Consumer<PgPool> {
        self.consumer_on(self.pool.clone())
    }

    /// The same with another pool.
    pub(crate) fn consumer_on(&self, pool: PgPool) -> Consumer<PgPool> {
        Consumer::new("ledger", pool)
            .inbox(self.inbox())
            .concurrency(8)
            .on("EntryMade", 1, self.write_entry())
    }

    pub(crate) fn write_entry(&self) -> WriteEntry {
        let table = self.table();
        WriteEntry {
            insert: format!("insert into {table} (account, number) values ($1, $2)"),
        }
    }

    fn table(&self) -> String {
        format!("{}.ledger", self.schema)
    }

    /// How many entries there are.
    pub(crate) async fn len(&self) -> i64 {
        let count = format!("select count(*) from {}", self.table());
        let count = sqlx::query_scalar(AssertSqlSafe(count));
        count.fetch_one(&self.pool).await.unwrap()
    }

    /// The numbers of every account, in the order in which they were written.
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

    /// Drops the schema.
    pub(crate) async fn drop(self) {
        let statement = format!("drop schema {} cascade", self.schema);
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&self.pool)
            .await
            .unwrap();
        self.pool.close().await;
    }
}

/// Writes an entry for each event.
pub(crate) struct WriteEntry {
    insert: String,
}

impl Handler<PgTransaction<'static>, Entry> for WriteEntry {
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
