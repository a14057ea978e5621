//! What each duty may write and see, and who owns an outbox.

mod indexes;
mod locks;
mod matrix;
mod members;
mod names;
mod overloads;
mod owner;

use pillarbox_store::stores::postgres::{Bounds, Duty, Postgres};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::privileges::{bound, drop_role};

const TENANT: Uuid = Uuid::from_u128(0x0190_c2a4_8f4e_7c3a_9d51_0f2b_6d1c_7e5a);
const OTHER_TENANT: Uuid = Uuid::from_u128(0x0190_c2a4_8f4e_7c3a_9d51_0f2b_6d1c_7e5b);

/// A producer of the namespace `shop` for one tenant, which may name the destination `mail`.
async fn shop(harness: &PostgresHarness) -> (String, Postgres) {
    let bounds = Bounds {
        tenants: Some(vec![TENANT]),
        destinations: vec!["mail".to_owned()],
        ..Bounds::namespaces(["shop"])
    };
    bound(harness, Duty::Producer, &bounds).await
}

async fn leave(harness: &PostgresHarness, role: &str, store: Postgres) {
    store.close().await;
    drop_role(harness, role).await;
}

/// Runs statements as one transaction and rolls it back. Returns the code of the error, if there is one.
async fn code(harness: &PostgresHarness, store: &Postgres, sql: &str) -> Option<String> {
    let mut transaction = store.pool().begin().await.expect("begins");
    let answer = sqlx::raw_sql(AssertSqlSafe(harness.sql(sql)))
        .execute(&mut *transaction)
        .await;
    transaction.rollback().await.expect("rolls back");
    let error = answer.err()?;
    let error = error.as_database_error().expect("by the database");
    Some(error.code().expect("has a code").into_owned())
}
