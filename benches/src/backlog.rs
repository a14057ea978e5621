//! Events to be drained: the same content in the plain table and in ours.

use crate::database::Database;
use crate::failure::Failure;

/// JSON text of about 300 bytes, as PostgreSQL writes it.
const SMALL: &str = "jsonb_build_object('order', n, 'customer', 'c-' || n, 'currency', 'EUR', \
                     'note', repeat('x', 235))";

/// A backlog in one table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog<'a> {
    pub(crate) database: &'a Database,
    /// With its schema.
    pub(crate) table: &'a str,
}

impl Backlog<'_> {
    /// Empties the table and writes `rows` events of 300 bytes, none of which has a key.
    pub(crate) async fn refill(self, rows: u32, topic: &str) -> Result<(), Failure> {
        let table = self.table;
        self.database.run(&format!("truncate {table}")).await?;
        let insert = format!(
            "insert into {table} (id, namespace, topic, payload) \
             select pillarbox.uuidv7(), 'bench', '{topic}', {SMALL} from generate_series(1, {rows}) n"
        );
        self.database.run(&insert).await?;
        self.database.calm(table).await
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
        self.database.calm(table).await
    }

    /// Fails unless every row is delivered: a figure for half of the work would be worse than none.
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
        Err(Failure::said(format!(
            "{delivered} of {rows} rows of {table} are delivered"
        )))
    }
}
