//! Which tables a duty may lock by hand, and how strongly.

use pillarbox_store::stores::postgres::Duty;
use pillarbox_testkit::store_suite::Harness;

use super::super::harness::PostgresHarness;
use super::super::privileges::on_duty;
use super::{code, leave};

/// The modes by which one role could stop another's reads, inserts or updates.
const BLOCKING: [&str; 4] = ["share", "share row exclusive", "exclusive", "access exclusive"];

#[tokio::test]
async fn only_those_who_delete_events_may_lock_a_table_against_others() {
    let harness = PostgresHarness::direct().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = $1::text::regnamespace and relkind = 'r' order by 1",
    )
    .bind(harness.store.schema())
    .fetch_all(&harness.pool)
    .await
    .expect("lists");
    assert!(tables.len() > 10, "{tables:?}");
    for duty in Duty::ALL {
        let (role, store) = on_duty(&harness, duty).await;
        for table in &tables {
            for mode in BLOCKING {
                let lock = format!("lock table pillarbox.{table} in {mode} mode");
                let locked = code(&harness, &store, &lock).await;
                if duty == Duty::Dispatcher && table == "outbox_events" {
                    assert_eq!(locked, None, "{lock}");
                } else if matches!(duty, Duty::Api | Duty::ApiAnyTenant)
                    && ["outbox_events", "destinations"].contains(&table.as_str())
                {
                    // An operator deletes events, and resumes destinations.
                    let may = table == "outbox_events" || duty == Duty::ApiAnyTenant;
                    assert_eq!(locked.is_none(), may, "{duty:?} {lock}");
                } else if duty != Duty::Dispatcher {
                    assert_eq!(locked.as_deref(), Some("42501"), "{duty:?} {lock}");
                }
            }
        }
        leave(&harness, &role, store).await;
    }
    harness.clean_up().await;
}
