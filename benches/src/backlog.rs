//! Backlogs to drain, with the same content in the plain table and in the outbox.

use crate::database::Database;
use crate::failure::Failure;

/// JSON text of about 300 bytes, as PostgreSQL writes it.
const SMALL: &str = "jsonb_build_object('order', n, 'customer', 'c-' || n, 'currency', 'EUR', \
                     'note', repeat('x', 235))";

/// The backlog in one table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog<'a> {
    pub(crate) database: &'a Database,
    /// The table, with its schema.
    pub(crate) table: &'a str,
}

impl Backlog<'_> {
    /// Empties the table and writes `rows` events of 300 bytes without a key.
    pub(crate) async fn refill(self, rows: u32, topic: &str) -> Result<(), Failure> {
        self.clear().await?;
        self.fill(rows, topic, "").await
    }

    /// The same with `keys` ordering keys in turn.
    pub(crate) async fn refill_keyed(self, rows: u32, keys: u32) -> Result<(), Failure> {
        self.clear().await?;
        let key = format!(", ordering_key => 'key-' || n % {keys}");
        self.fill(rows, "drain", &key).await
    }

    /// The same, plus one key whose head is dead and blocks `behind` rows.
    pub(crate) async fn refill_blocked(self, rows: u32, keys: u32, behind: u32) -> Result<(), Failure> {
        self.clear().await?;
        self.fill(1, "blocked", ", ordering_key => 'blocked', status => 'dead'")
            .await?;
        self.fill(behind, "blocked", ", ordering_key => 'blocked'")
            .await?;
        let key = format!(", ordering_key => 'key-' || n % {keys}");
        self.fill(rows, "drain", &key).await
    }

    /// The same for the destinations `to-0`, `to-1` … in turn.
    pub(crate) async fn refill_to(self, rows: u32, destinations: u32) -> Result<(), Failure> {
        self.clear().await?;
        let to = format!(", destination => 'to-' || n % {destinations}");
        self.fill(rows, "drain", &to).await
    }

    /// Empties the table and writes so many delivered rows.
    pub(crate) async fn refill_delivered(self, rows: u32) -> Result<(), Failure> {
        self.clear().await?;
        let done = ", status => 'delivered', delivered_at => now()";
        self.fill(rows, "done", done).await
    }

    /// Adds events without a key to what the table has.
    pub(crate) async fn add(self, rows: u32, topic: &str) -> Result<(), Failure> {
        self.fill(rows, topic, "").await
    }

    /// Empties the table.
    pub(crate) async fn clear(self) -> Result<(), Failure> {
        self.database.run(&format!("truncate {}", self.table)).await
    }

    /// Adds events with `keys` ordering keys, beside a running dispatcher.
    pub(crate) async fn add_keyed(self, rows: u64, keys: u32) -> Result<(), Failure> {
        let key = format!(", ordering_key => 'key-' || n % {keys}");
        self.insert(rows, "steady", &key).await
    }

    /// Adds one event with this key.
    pub(crate) async fn add_one(self, key: u32) -> Result<(), Failure> {
        self.insert(1, "single", &format!(", ordering_key => 'key-{key}'"))
            .await
    }

    /// Writes events and vacuums the table. `also` sets further columns, each as `, column => expression`.
    async fn fill(self, rows: u32, topic: &str, also: &str) -> Result<(), Failure> {
        self.insert(rows.into(), topic, also).await?;
        self.database.vacuum_and_checkpoint(self.table).await
    }

    async fn insert(self, rows: u64, topic: &str, also: &str) -> Result<(), Failure> {
        let table = self.table;
        let also: Vec<(&str, &str)> = also
            .split(", ")
            .filter_map(|pair| pair.split_once(" => "))
            .collect();
        let columns: String = also.iter().map(|(column, _)| format!(", {column}")).collect();
        let values: String = also.iter().map(|(_, value)| format!(", {value}")).collect();
        let insert = format!(
            "insert into {table} (id, namespace, topic, payload{columns}) \
             select pillarbox.uuidv7(), 'bench', '{topic}', {SMALL}{values} from generate_series(1, {rows}) n"
        );
        self.database.run(&insert).await
    }

    /// Empties the table and writes `rows` events of 1 MiB that hardly compress.
    pub(crate) async fn refill_large(self, rows: u32) -> Result<(), Failure> {
        let table = self.table;
        self.database.run(&format!("truncate {table}")).await?;
        let insert = format!(
            "with noise as materialized (
               select string_agg(md5(n::text), '') as text from generate_series(1, 32768) n
             )
             insert into {table} (id, namespace, topic, payload)
             select pillarbox.uuidv7(), 'bench', 'large', jsonb_build_object('order', n, 'note', noise.text)
             from noise, generate_series(1, {rows}) n"
        );
        self.database.run(&insert).await?;
        self.database.vacuum_and_checkpoint(table).await
    }

    /// Fails unless every row is delivered, because a figure for half of the work would be wrong.
    pub(crate) async fn verify(self, rows: u32) -> Result<(), Failure> {
        let table = self.table;
        let delivered = self
            .database
            .count(&format!(
                "select count(*) from {table} where status = 'delivered'"
            ))
            .await?;
        if delivered == i64::from(rows) {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{delivered} of {rows} rows of {table} are delivered"
        )))
    }
    /// Fails unless the table is empty.
    pub(crate) async fn verify_empty(self) -> Result<(), Failure> {
        let table = self.table;
        let left = self
            .database
            .count(&format!("select count(*) from {table}"))
            .await?;
        if left == 0 {
            return Ok(());
        }
        Err(Failure::new(format!("{left} rows are left in {table}")))
    }
}
