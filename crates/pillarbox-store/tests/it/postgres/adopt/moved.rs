//! A name in the configuration that is moved to another table, whose ids have another type.

use std::sync::Arc;

use pillarbox_store::adopt::{Import, ImportRequest};
use pillarbox_store::store::StoreError;
use pillarbox_store::stores::postgres::Postgres;
use pillarbox_store::stores::postgres::adopt::{Layout, Table};
use pillarbox_store::{Store, Verdict};
use uuid::Uuid;

use super::harness::Adopted;
use super::odd::plain;
use super::seeds::ORDER_SERVICE;

/// The same table, and one whose ids are numbers, in the configuration of another worker. The old importer is gone.
async fn moved(adopted: &Adopted) -> Postgres {
    let table = |name: &str, table: &str| Table {
        name: name.to_owned(),
        layout: Layout {
            table: format!("{}.{table}", adopted.schema()),
            ..plain("")
        },
        ..adopted.table()
    };
    let columns = "(id bigint generated always as identity primary key, payload jsonb not null default '{}',
        status text not null default 'new', error text)";
    adopted
        .run(&format!(
            "create table {{schema}}.numbers {columns}; create table {{schema}}.others {columns};
             insert into {{schema}}.numbers default values; insert into {{schema}}.others default values"
        ))
        .await;
    adopted
        .outbox
        .execute("update pillarbox.importers set leased_until = now() - interval '1 hour'")
        .await;
    let store = adopted.outbox.beside();
    let tables = [table(adopted.seed.name, "numbers"), table("others", "others")];
    store.adopt(&tables).await.expect("both fit");
    store
}

fn importers(store: &Postgres) -> [Arc<dyn Import>; 2] {
    store.importers().try_into().ok().expect("two tables are adopted")
}

fn request(adopted: &Adopted, detect_changes: bool) -> ImportRequest {
    ImportRequest {
        worker: Uuid::from_u128(8),
        detect_changes,
        prune: detect_changes,
        ..adopted.request()
    }
}

#[tokio::test]
async fn a_name_with_rows_in_progress_in_another_table_is_rejected_with_what_to_do() {
    for verdict in [None, Some(super::harness::dead())] {
        let adopted = Adopted::new(ORDER_SERVICE).await;
        adopted.produce().await;
        let delivery = adopted.take().await;
        if let Some(verdict) = verdict {
            adopted.settle(&delivery, verdict).await;
        }
        let store = moved(&adopted).await;
        let [numbers, others] = importers(&store);
        // With and without the parts of a round that are not in every round.
        for detect_changes in [true, false] {
            let error = numbers
                .import(&request(&adopted, detect_changes))
                .await
                .expect_err("is rejected");
            let StoreError::Other(error) = error else {
                panic!("{error:?}");
            };
            for part in [
                "`order-service`",
                ".\"numbers\"",
                "22P02",
                "another `name`",
                "delete from",
            ] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        assert!(store.check_adopted().await.is_err(), "`config check` shows it");
        let imported = others.import(&request(&adopted, true)).await;
        assert_eq!(imported.expect("is another table").rows, 1);

        // What the error says to do.
        adopted.outbox.execute("delete from pillarbox.adopted").await;
        let imported = numbers.import(&request(&adopted, true)).await;
        assert_eq!(imported.expect("imports").rows, 1);
        store.close().await;
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn a_name_without_rows_in_progress_may_be_moved() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    // One that was delivered, and one that cannot be imported.
    let id = adopted.produce().await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    let taken = adopted.produce().await;
    adopted
        .outbox
        .execute(&format!(
            "insert into pillarbox.outbox_events (id, namespace, topic, payload)
               values ('{taken}', 'native', 'orders', '1')"
        ))
        .await;
    assert_eq!(adopted.import().await.failed, 1);
    assert_eq!(adopted.row(id).await["status"], "SENT");
    adopted
        .outbox
        .execute("update pillarbox.import_failures set next_attempt_at = now()")
        .await;
    let store = moved(&adopted).await;
    let [numbers, _] = importers(&store);
    let imported = numbers.import(&request(&adopted, true)).await;
    assert_eq!(imported.expect("imports").rows, 1);
    let left = super::failures::text(&adopted, "select row_id from pillarbox.import_failures").await;
    assert_eq!(left, None, "failures of the other table are over");
    store.close().await;
    adopted.clean_up().await;
}
