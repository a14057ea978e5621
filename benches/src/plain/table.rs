//! The plain table, and the one statement that acks and claims.

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::backlog::Backlog;
use crate::database::Database;
use crate::failure::Failure;

/// The name of the plain table.
const TABLE: &str = "plain_outbox";

/// A client with one connection.
pub(crate) struct Plain<'a> {
    database: &'a Database,
    connection: PgConnection,
    worker: Uuid,
}

/// A claimed row.
pub(crate) struct Claimed {
    pub(crate) id: Uuid,
    pub(crate) topic: String,
    pub(crate) payload: String,
}

impl<'a> Plain<'a> {
    /// Creates the table if it does not exist, and connects.
    pub(crate) async fn new(database: &'a Database) -> Result<Self, Failure> {
        let found = database
            .count(&format!(
                "select count(*) from pg_class where relname = '{TABLE}'"
            ))
            .await?;
        if found == 0 {
            database.run(include_str!("plain.sql")).await?;
        }
        let mut connection = database.connection().await?;
        // These settings keep the planner from a sequential scan of a table that was empty when it was analysed.
        sqlx::raw_sql("set jit = off; set enable_seqscan = off")
            .execute(&mut connection)
            .await?;
        Ok(Self {
            database,
            connection,
            worker: Uuid::new_v4(),
        })
    }

    pub(crate) fn backlog(&self) -> Backlog<'a> {
        Backlog {
            database: self.database,
            table: TABLE,
        }
    }

    /// Acks these rows and claims the next thousand.
    pub(crate) async fn turn(&mut self, acked: &[Uuid]) -> Result<Vec<Claimed>, Failure> {
        let rows = sqlx::query(include_str!("turn.sql"))
            .bind(acked)
            .bind(self.worker)
            .fetch_all(&mut self.connection)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Claimed {
                    id: row.try_get_unchecked(0)?,
                    topic: row.try_get_unchecked(1)?,
                    payload: row.try_get_unchecked(2)?,
                })
            })
            .collect()
    }

    /// Drains the table without delivering anything.
    pub(crate) async fn drain(&mut self) -> Result<(), Failure> {
        let mut claimed = self.turn(&[]).await?;
        while !claimed.is_empty() {
            let ids: Vec<Uuid> = claimed.iter().map(|row| row.id).collect();
            claimed = self.turn(&ids).await?;
        }
        Ok(())
    }
}
