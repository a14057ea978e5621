//! For whom an adopted table may speak, and what its error column says.

use std::time::Duration;

use pillarbox_store::Verdict;
use pillarbox_store::stores::postgres::adopt::{
    AdoptError, ErrorText, EventId, LayoutError, SpeaksFor, Table,
};
use serde_json::json;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::failures::{record, text};
use super::harness::{Adopted, dead, retry};
use super::seeds::{MODKIT, ORDER_SERVICE};

const TENANT: &str = "01990000-0000-7000-8000-000000000001";

async fn adopted(namespaces: &[&str], tenants: &[&str]) -> Adopted {
    Adopted::with(MODKIT, |table| Table {
        speaks_for: SpeaksFor {
            namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            tenants: tenants.iter().map(|id| id.parse().expect("a UUID")).collect(),
        },
        ..table
    })
    .await
}

/// Inserts a row that names this namespace and tenant.
async fn produce(adopted: &Adopted, namespace: &str, tenant: Option<&str>) -> Uuid {
    let id = adopted.produce().await;
    let tenant = tenant.map_or_else(|| "null".to_owned(), |tenant| format!("'{tenant}'"));
    adopted
        .change(id, &format!("namespace = '{namespace}', tenant_id = {tenant}"))
        .await;
    id
}

async fn error(adopted: &Adopted, id: Uuid) -> Option<String> {
    text(
        adopted,
        &format!("select error from pillarbox.import_failures where event_id = '{id}'"),
    )
    .await
}

#[tokio::test]
async fn a_row_of_another_namespace_is_not_imported_and_stops_no_other() {
    let adopted = adopted(&["shop", "carts.*"], &[]).await;
    let outside = [
        produce(&adopted, "bank", None).await,
        produce(&adopted, "shop2", None).await,
        produce(&adopted, "carts", None).await,
        produce(&adopted, "SHOP", None).await,
    ];
    for namespace in ["shop", "carts.eu", "", "modkit"] {
        produce(&adopted, namespace, Some(TENANT)).await;
    }
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (4, 4));
    let namespaces = text(
        &adopted,
        "select string_agg(namespace, ' ' order by namespace collate \"C\") from pillarbox.outbox_events",
    );
    assert_eq!(
        namespaces.await.as_deref(),
        Some("carts.eu modkit modkit shop"),
        "without one, it has the table's name"
    );
    assert_eq!(record(&adopted).await.not_imported, 4, "it is shown");
    assert_eq!(
        error(&adopted, outside[0]).await.as_deref(),
        Some("its namespace `bank` is not in `namespaces`")
    );
    assert_eq!(
        adopted.row(outside[0]).await["status"],
        "pending",
        "it keeps its state"
    );
    let again = adopted.import().await;
    assert_eq!((again.rows, again.failed), (0, 0), "it is left alone");

    // Once it is corrected, it is imported.
    adopted.change(outside[0], "namespace = 'shop'").await;
    assert_eq!(adopted.import().await.rows, 1);
    adopted.import().await;
    assert_eq!(record(&adopted).await.not_imported, 3);
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_that_is_too_large_is_not_imported_and_stops_no_other() {
    let adopted = adopted(&["*"], &[]).await;
    let old = "created_at = now() - interval '1 hour'";
    let large = "payload = to_jsonb(repeat('x', 16777216))";
    let [topic, payload, reset] = [
        produce(&adopted, "shop", None).await,
        produce(&adopted, "shop", None).await,
        produce(&adopted, "shop", None).await,
    ];
    adopted
        .change(topic, &format!("{old}, topic = repeat('t', 1025)"))
        .await;
    adopted.change(payload, &format!("{old}, {large}")).await;
    adopted.change(reset, old).await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (1, 2));
    for (id, constraint) in [
        (topic, "names_have_at_most_1024_bytes"),
        (payload, "payload_is_within_max_payload"),
    ] {
        let error = error(&adopted, id).await.expect("is recorded");
        assert!(error.contains(constraint), "{error}");
    }

    // Nor when it grows after it was delivered, and is sent again.
    let delivery = adopted.take().await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    adopted
        .change(reset, &format!("{large}, status = 'pending'"))
        .await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (0, 1));
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_of_another_tenant_or_of_none_is_not_imported() {
    let adopted = adopted(&["*"], &[TENANT]).await;
    let other = produce(&adopted, "shop", Some("01990000-0000-7000-8000-000000000002")).await;
    let none = produce(&adopted, "shop", None).await;
    produce(&adopted, "anything", Some(TENANT)).await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (1, 2));
    assert_eq!(
        error(&adopted, other).await.as_deref(),
        Some("its tenant 01990000-0000-7000-8000-000000000002 is not in `tenants`")
    );
    assert_eq!(error(&adopted, none).await.as_deref(), Some("it has no tenant"));
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_row_that_changes_sides_is_not_imported_again() {
    let adopted = adopted(&["shop"], &[]).await;
    let id = produce(&adopted, "shop", None).await;
    let delivery = adopted.take().await;
    adopted.settle(&delivery, Verdict::Delivered).await;
    adopted.change(id, "namespace = 'bank', status = 'pending'").await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (0, 1));
    let event = "select namespace || ' ' || status from pillarbox.outbox_events";
    assert_eq!(text(&adopted, event).await.as_deref(), Some("shop delivered"));
    adopted.clean_up().await;
}

#[tokio::test]
async fn a_table_that_names_namespaces_must_say_which() {
    for (namespaces, tenants, seed, says) in [
        (
            &[][..],
            &[][..],
            MODKIT,
            "say which ones they may name with `namespaces`",
        ),
        (&["shop"], &[], ORDER_SERVICE, "remove `namespaces`"),
        (
            &[],
            &[TENANT],
            ORDER_SERVICE,
            "`tenants` needs a column with the tenant",
        ),
    ] {
        let adopted = Adopted::new(seed).await;
        let store = adopted.outbox.beside();
        let table = Table {
            speaks_for: SpeaksFor {
                namespaces: namespaces.iter().map(|&name: &&str| name.to_owned()).collect(),
                tenants: tenants
                    .iter()
                    .map(|id: &&str| id.parse().expect("a UUID"))
                    .collect(),
            },
            ..adopted.table()
        };
        let refused = store.adopt(&[table]).await.expect_err("it does not fit");
        let AdoptError::Layout {
            error: LayoutError::Impossible(text),
            ..
        } = refused
        else {
            panic!("{refused}");
        };
        assert!(text.contains(says), "{text}");
        adopted.clean_up().await;
    }
}

#[tokio::test]
async fn no_other_event_can_have_the_derived_id_of_a_row() {
    let adopted = Adopted::with(ORDER_SERVICE, |mut table| {
        table.layout.event_id = EventId::Derived;
        table
    })
    .await;
    let id = adopted.produce().await;
    adopted
        .outbox
        .execute(&format!(
            "insert into pillarbox.outbox_events (id, namespace, topic, payload) values ('{id}', 'native', 'orders', '1')"
        ))
        .await;
    let derived = format!(
        "overlay(overlay(md5('order-service' || E'\\x1f' || '{id}') placing '8' from 13) placing '8' from 17)::uuid"
    );
    let taken = sqlx::query(AssertSqlSafe(adopted.outbox.sql(&format!(
        "insert into pillarbox.outbox_events (id, namespace, topic, payload) values ({derived}, 'native', 'orders', '1')"
    ))));
    let taken = taken
        .execute(&adopted.outbox.pool)
        .await
        .expect_err("is reserved");
    assert!(
        taken.to_string().contains("ids_of_version_8_are_derived"),
        "{taken}"
    );
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (1, 0));
    let is_derived = format!(
        "select (id = {derived})::text from pillarbox.outbox_events where namespace = 'order-service'"
    );
    assert_eq!(text(&adopted, &is_derived).await.as_deref(), Some("true"));
    adopted.clean_up().await;
}

/// It could be that of a row of another table, or the mark of another event's dedupe key in an inbox.
#[tokio::test]
async fn a_row_cannot_choose_an_id_that_pillarbox_derives() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    let chosen = "0198c2a4-8f4e-8c3a-9d51-0f2b6d1c7e5a";
    let id = adopted.produce().await;
    adopted.change(id, &format!("id = '{chosen}'")).await;
    let imported = adopted.import().await;
    assert_eq!((imported.rows, imported.failed), (1, 0));
    let derived = format!(
        "select (id = overlay(overlay(md5('order-service' || E'\\x1f' || '{chosen}') placing '8' from 13) placing '8' from 17)::uuid)::text
         from pillarbox.outbox_events"
    );
    assert_eq!(text(&adopted, &derived).await.as_deref(), Some("true"));
    adopted.clean_up().await;
}

#[tokio::test]
async fn the_error_column_shows_a_status_and_no_answer() {
    let answered =
        |status: u16| format!("the receiver answered {status} Service Unavailable: host db7 says: secret");
    let failed = |reason: String| Verdict::Retry {
        after: Duration::from_secs(60),
        reason,
    };
    let released = Verdict::Release {
        after: Duration::from_secs(60),
        reason: Some("connection refused (10.0.0.7:5672)".to_owned()),
    };
    let full = answered(503);
    for (error_text, verdict, expected) in [
        (
            ErrorText::Status,
            failed(answered(503)),
            json!("failed, status 503"),
        ),
        (ErrorText::Status, retry(60), json!("failed")),
        (ErrorText::Status, dead(), json!("given up")),
        (ErrorText::Status, released, json!("waiting")),
        (ErrorText::Full, failed(full.clone()), json!(full)),
    ] {
        let adopted = Adopted::with(ORDER_SERVICE, |table| Table { error_text, ..table }).await;
        let id = adopted.produce().await;
        let delivery = adopted.take().await;
        adopted.settle(&delivery, verdict).await;
        assert_eq!(adopted.row(id).await["error_message"], expected);
        adopted.clean_up().await;
    }
}
