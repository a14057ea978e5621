//! The business table: one entry for each event. An event that is handled twice has two entries.
//!
//! Consumers log in as a role with the duty `consumer`, for the name `ledger` only, which may also insert entries. An inbox that
//! another login uses fails the test.

use std::collections::BTreeMap;

use pillarbox::Event;
use pillarbox::inbox::Inbox;
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use pillarbox_store::stores::postgres::{Bounds, Duty, Options, Postgres};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool, PgTransaction};

use pillarbox_testkit::duties;
use pillarbox_testkit::environment::{unique_identifier, variable};

/// A schema that no other test uses, with an inbox and a table of entries.
pub(crate) struct Ledger {
    /// For consumers.
    pub(crate) pool: PgPool,
    /// For the test itself.
    pub(crate) owner: PgPool,
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
        let url = variable("PILLARBOX_TEST_POSTGRES_URL");
        let store = Postgres::new(&url, options).unwrap();
        store.migrate().await.unwrap();
        let ledger = Self::existing(&schema);
        let as_ledger = [(Duty::Consumer, Bounds::names(["ledger"]))];
        duties::create_role(&store, &url, &ledger.role(), &as_ledger).await;
        store.close().await;
        duties::refuse_owners(&ledger.owner, &schema, &["inbox"]).await;
        let (table, role) = (ledger.table(), ledger.role());
        ledger
            .administer(&format!(
                "create table {table} (
                   position bigint generated always as identity primary key, account text not null, number bigint not null
                 );
                 grant insert on {table} to {role}"
            ))
            .await;
        ledger
    }

    /// One that another process created.
    pub(crate) fn existing(schema: &str) -> Self {
        let pool = |options| {
            PgPoolOptions::new()
                .max_connections(10)
                .connect_lazy_with(options)
        };
        Self {
            pool: pool(login(&role(schema))),
            owner: pool(variable("PILLARBOX_TEST_POSTGRES_URL").parse().unwrap()),
            schema: schema.to_owned(),
        }
    }

    /// The role of the consumers.
    pub(crate) fn role(&self) -> String {
        role(&self.schema)
    }

    /// How a consumer logs in.
    pub(crate) fn login(&self) -> PgConnectOptions {
        login(&self.role())
    }

    /// Runs statements as the owner.
    pub(crate) async fn administer(&self, statements: &str) {
        let statements = AssertSqlSafe(statements.to_owned());
        sqlx::raw_sql(statements).execute(&self.owner).await.unwrap();
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
        count.fetch_one(&self.owner).await.unwrap()
    }

    /// The numbers of every account, in the order in which they were written.
    pub(crate) async fn accounts(&self) -> BTreeMap<String, Vec<i64>> {
        let select = format!("select account, number from {} order by position", self.table());
        let rows: Vec<(String, i64)> = sqlx::query_as(AssertSqlSafe(select))
            .fetch_all(&self.owner)
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

    /// Drops the schema and the role.
    pub(crate) async fn drop(self) {
        self.pool.close().await;
        duties::drop_role(&self.owner, &self.role()).await;
        self.administer(&format!("drop schema {} cascade", self.schema))
            .await;
        self.owner.close().await;
    }
}

fn role(schema: &str) -> String {
    format!("{schema}_ledger")
}

fn login(role: &str) -> PgConnectOptions {
    let url = duties::log_in_as(&variable("PILLARBOX_TEST_POSTGRES_URL"), role);
    url.parse().unwrap()
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

#[tokio::test]
async fn a_login_that_owns_the_inbox_fails_the_test() {
    let ledger = Ledger::create().await;
    for (pool, is_refused) in [(&ledger.owner, true), (&ledger.pool, false)] {
        let mut transaction = pool.begin().await.unwrap();
        let key = uuid::Uuid::now_v7();
        let marked = ledger.inbox().mark(&mut transaction, "ledger", key).await;
        assert_eq!(marked.is_err(), is_refused, "{marked:?}");
    }
    ledger.drop().await;
}
