//! The permissions that a dispatcher needs on an adopted table: exactly those in docs/adopt.md.

use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::stores::postgres::adopt::Table;
use pillarbox_store::stores::postgres::{Duty, Postgres};
use pillarbox_store::{Operate, Scope, Verdict};
use pillarbox_testkit::OPERATOR;
use serde_json::Value;
use uuid::Uuid;

use super::super::privileges::{drop_role, on_duty};
use super::harness::{Adopted, dead, importer, retry};
use super::seeds::{DEBEZIUM, ORDER_SERVICE, Seed};

/// The statements of docs/adopt.md, without comments.
fn grants() -> Vec<&'static str> {
    let manual = include_str!("../../../../../../docs/adopt.md");
    let (_, section) = manual.split_once("\n## Permissions\n").expect("its chapter");
    let (_, block) = section.split_once("```sql\n").expect("statements");
    let (block, _) = block.split_once("```").expect("their end");
    let statement = |line: &'static str| line.split_once(';').expect("one to a line").0;
    block.lines().map(statement).collect()
}

/// A table, and a role with these grants.
struct Allowed {
    adopted: Adopted,
    role: String,
    store: Postgres,
}

impl Allowed {
    async fn by(seed: Seed, grants: &[String]) -> Self {
        let adopted = Adopted::with(seed, pruned).await;
        let (role, store) = on_duty(&adopted.outbox, Duty::Dispatcher).await;
        for grant in grants {
            let grant = grant
                .replace("schema orders", "schema {schema}")
                .replace("orders.outbox", seed.place)
                .replace("to dispatcher", &format!("to {role}"));
            adopted.run(&adopted.outbox.sql(&grant)).await;
        }
        Self { adopted, role, store }
    }

    /// Adopts the table as the role.
    async fn adopt(&self) -> Result<(), String> {
        let table = pruned(self.adopted.table());
        let adopted = self.store.adopt(&[table]).await;
        adopted.map_err(|error| error.to_string())
    }

    /// Continues the test as the role.
    async fn be(mut self) -> Self {
        std::mem::swap(&mut self.adopted.outbox.store, &mut self.store);
        self
    }

    async fn clean_up(self) {
        self.adopted.outbox.store.close().await;
        drop_role(&self.adopted.outbox, &self.role).await;
        let Self {
            mut adopted, store, ..
        } = self;
        adopted.outbox.store = store;
        adopted.clean_up().await;
    }
}

fn pruned(table: Table) -> Table {
    let prune = table.layout.processed_at.is_some();
    Table {
        prune: prune.then_some(Duration::from_secs(86_400)),
        ..table
    }
}

/// All grants of docs/adopt.md, with `delete` on the table.
fn all() -> Vec<String> {
    let all = grants().into_iter();
    let all = all.map(|grant| {
        grant.replace(
            "select, update on orders.outbox",
            "select, update, delete on orders.outbox",
        )
    });
    all.collect()
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let allowed = Allowed::by(ORDER_SERVICE, &all()).await;
    allowed.adopt().await.expect("may see the table");
    let allowed = allowed.be().await;
    let adopted = &allowed.adopted;
    adopted.outbox.store.check_adopted().await.expect("is content");
    let mut ids: Vec<Uuid> = Vec::new();
    for _ in 0..5 {
        ids.push(adopted.produce().await);
    }
    assert_eq!(adopted.import().await.rows, 5, "may take over");
    let claimed = adopted.claim().await;
    for (delivery, verdict) in claimed.iter().zip([
        Verdict::Delivered,
        retry(600),
        dead(),
        Verdict::Delete,
        retry(600),
    ]) {
        adopted.settle(delivery, verdict).await;
    }
    let said = async |id| adopted.row(id).await["status"].clone();
    assert_eq!(said(ids[0]).await, "SENT");
    assert_eq!(said(ids[1]).await, "NEW");
    assert_eq!(said(ids[2]).await, "FAILED");
    assert_eq!(said(ids[3]).await, "SENT");
    // One row is old, one was deleted in progress, one was reset.
    adopted
        .change(ids[0], "sent_at = sent_at - interval '2 days'")
        .await;
    let delete = format!("delete from {{schema}}.outbox where id = '{}'", ids[4]);
    adopted.run(&delete).await;
    adopted.change(ids[2], "status = 'NEW'").await;
    let imported = adopted.import().await;
    assert_eq!(
        (imported.rows, imported.dropped, imported.pruned),
        (1, 1, 1),
        "{imported:?}"
    );
    assert_eq!(adopted.row(ids[0]).await, Value::Null);
    let retried = adopted.outbox.store.retry(&OPERATOR, &[ids[1]]).await;
    assert_eq!(retried.expect("may retry"), [ids[1]]);
    adopted
        .outbox
        .store
        .adopted_tables(&OPERATOR)
        .await
        .expect("may count");
    adopted
        .outbox
        .store
        .stats(&OPERATOR, &Scope::All)
        .await
        .expect("may count");
    allowed.clean_up().await;
}

#[tokio::test]
async fn a_table_whose_rows_are_deleted_needs_the_permission_to_delete() {
    let allowed = Allowed::by(DEBEZIUM, &all()).await;
    allowed.adopt().await.expect("may see the table");
    let allowed = allowed.be().await;
    let id = allowed.adopted.produce().await;
    let delivery = allowed.adopted.take().await;
    allowed.adopted.settle(&delivery, Verdict::Delivered).await;
    assert_eq!(allowed.adopted.row(id).await, Value::Null);
    allowed.clean_up().await;
}

/// Leaves out each statement once, and `delete` alone. The error names the table and the missing grant.
#[tokio::test]
async fn a_missing_permission_is_reported_before_the_first_import() {
    let needed = [
        ("usage on schema {schema}", vec![0]),
        ("select, update, delete on {table}", vec![1]),
        ("usage on sequence {outbox}.outbox_seq", vec![2]),
        ("select, update, delete on {table}", vec![1, 2]),
    ];
    assert_eq!(all().len(), 3, "one case for each");
    for (expected, left_out) in needed {
        let grants = (0..).zip(all()).filter(|(n, _)| !left_out.contains(n));
        let grants: Vec<String> = grants.map(|(_, grant)| grant).collect();
        assert_refused(&grants, expected).await;
    }
    let grants: Vec<String> = grants().into_iter().map(str::to_owned).collect();
    assert_refused(&grants, "delete on {table}").await;
}

async fn assert_refused(grants: &[String], expected: &str) {
    let allowed = Allowed::by(ORDER_SERVICE, grants).await;
    let (schema, outbox) = (allowed.adopted.schema(), allowed.store.schema());
    let expected = expected
        .replace("{schema}", schema)
        .replace("{table}", &format!("{schema}.outbox"))
        .replace("{outbox}", outbox);
    let expected = format!("grant {expected} to {};", allowed.role);
    // Also without `usage` on its schema: a fault of one table must not stop the others.
    allowed.adopt().await.expect("may see the table");
    allowed.adopted.produce().await;
    let request = allowed.adopted.request();
    let importer = importer(&allowed.store);
    for refused in [
        allowed.store.check_adopted().await,
        importer.import(&request).await.map(drop),
    ] {
        let refused = refused.expect_err("a privilege is missing");
        assert!(matches!(refused, StoreError::Denied(_)), "{refused}");
        assert!(refused.to_string().contains(&expected), "{expected}: {refused}");
    }
    let stats = allowed.adopted.outbox.store.stats(&OPERATOR, &Scope::All).await;
    assert_eq!(stats.expect("counts").pending, 0, "nothing was taken over");
    allowed.be().await.clean_up().await;
}
