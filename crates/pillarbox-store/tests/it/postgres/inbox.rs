//! The inbox in its own schema and in others, beside the changes of a handler.

use pillarbox::inbox::{Handled, Inbox, Key, OnceError, Table};
use pillarbox_testkit::store_suite::Harness;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::harness::PostgresHarness;

const CONSUMER: &str = "notifications";

/// Handles an event by one row in `notified`.
async fn handle(
    harness: &PostgresHarness,
    inbox: &Inbox,
    key: impl Into<Key>,
) -> Result<Handled<()>, OnceError<sqlx::Error>> {
    let insert = harness.sql("insert into pillarbox.notified default values");
    let mut transaction = harness.pool.begin().await.expect("begins");
    let handled = inbox
        .once(&mut *transaction, CONSUMER, key, async |connection| {
            let done = sqlx::query(AssertSqlSafe(insert)).execute(connection).await;
            done.map(|_| ())
        })
        .await?;
    transaction.commit().await.expect("commits");
    Ok(handled)
}

async fn with_effects() -> PostgresHarness {
    let harness = PostgresHarness::direct().await;
    harness
        .execute("create table pillarbox.notified (at timestamptz default now())")
        .await;
    harness
}

async fn effects(harness: &PostgresHarness) -> i64 {
    let sql = harness.sql("select count(*) from pillarbox.notified");
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&harness.pool).await;
    row.expect("counts").get(0)
}

#[tokio::test]
async fn a_hundred_deliveries_at_once_have_one_effect() {
    let harness = std::sync::Arc::new(with_effects().await);
    let inbox = Inbox::in_schema(harness.store.schema()).expect("a sound name");
    let id = Uuid::now_v7();
    let deliveries: Vec<_> = (0..100)
        .map(|_| {
            let (harness, inbox) = (harness.clone(), inbox.clone());
            tokio::spawn(async move { handle(&harness, &inbox, id).await.expect("handled") })
        })
        .collect();
    let mut now = 0;
    for delivery in deliveries {
        now += usize::from(delivery.await.expect("no panic") == Handled::Now(()));
    }
    assert_eq!((now, effects(&harness).await), (1, 1));
    harness.clean_up().await;
}

#[tokio::test]
async fn a_handler_whose_statement_fails_leaves_the_event_unhandled() {
    let harness = with_effects().await;
    let inbox = Inbox::in_schema(harness.store.schema()).expect("a sound name");
    let id = Uuid::now_v7();
    let mut transaction = harness.pool.begin().await.expect("begins");
    let failed = inbox
        .once(&mut *transaction, CONSUMER, id, async |connection| {
            sqlx::query("select 1 / 0").execute(connection).await
        })
        .await;
    assert!(matches!(failed, Err(OnceError::Handler(_))), "{failed:?}");
    // PostgreSQL makes a rollback of it.
    transaction.commit().await.expect("answers");
    assert_eq!(
        handle(&harness, &inbox, id).await.expect("handled"),
        Handled::Now(())
    );
    assert_eq!(effects(&harness).await, 1);
    harness.clean_up().await;
}

#[tokio::test]
async fn araps_table_is_gone_on_with() {
    let harness = with_effects().await;
    let schema = harness.store.schema().to_owned();
    harness
        .execute(
            "create table pillarbox.processed_events (
               event_id UUID PRIMARY KEY,
               processed_at TIMESTAMP NOT NULL
             )",
        )
        .await;
    let (before, id) = (Uuid::now_v7(), Uuid::now_v7());
    harness
        .execute(&format!(
            "insert into pillarbox.processed_events values ('{before}', (now() at time zone 'utc') - interval '40 days')"
        ))
        .await;
    let table = Table::new(format!("{schema}.processed_events"))
        .handled_at("processed_at")
        .zone("UTC");
    let inbox = Inbox::adopting(table);
    for (event, expected) in [
        (before, Handled::Before),
        (id, Handled::Now(())),
        (id, Handled::Before),
    ] {
        let handled = handle(&harness, &inbox, event).await;
        assert_eq!(handled.expect("handled"), expected);
    }
    assert_eq!(effects(&harness).await, 1);

    // In UTC, wherever the session thinks that it is.
    let mut transaction = harness.pool.begin().await.expect("begins");
    sqlx::query("set local time zone 'Asia/Tokyo'")
        .execute(&mut *transaction)
        .await
        .expect("a zone");
    let abroad = Uuid::now_v7();
    assert!(
        inbox
            .mark(&mut transaction, CONSUMER, abroad)
            .await
            .expect("marks")
    );
    assert_eq!(
        inbox.prune(&mut transaction, CONSUMER).await.expect("prunes"),
        1,
        "what is 40 days old"
    );
    let sql = harness.sql(
        "select count(*) from pillarbox.processed_events
         where processed_at between (now() at time zone 'utc') - interval '1 minute' and now() at time zone 'utc'",
    );
    let recent = sqlx::query(AssertSqlSafe(sql))
        .fetch_one(&mut *transaction)
        .await
        .expect("counts");
    assert_eq!(recent.get::<i64, _>(0), 2);
    transaction.commit().await.expect("commits");
    harness.clean_up().await;
}

#[tokio::test]
async fn a_table_with_text_ids_and_a_consumer_of_its_own_words_is_gone_on_with() {
    let harness = with_effects().await;
    let schema = harness.store.schema().to_owned();
    harness
        .execute(r#"create table pillarbox."Seen" ("Who" text, "Event" text, primary key ("Who", "Event"))"#)
        .await;
    let table = Table::new(format!("{schema}.Seen"))
        .consumer("Who")
        .event_id("Event");
    let inbox = Inbox::adopting(table);
    let key = Key::dedupe("shop", "orders", "42");
    assert_eq!(
        handle(&harness, &inbox, key).await.expect("handled"),
        Handled::Now(())
    );
    assert_eq!(
        handle(&harness, &inbox, key).await.expect("handled"),
        Handled::Before
    );
    let mut connection = harness.pool.acquire().await.expect("a connection");
    inbox
        .unmark(&mut connection, CONSUMER, &[key])
        .await
        .expect("takes it back");
    assert_eq!(
        inbox.prune(&mut connection, CONSUMER).await.expect("answers"),
        0,
        "it cannot know"
    );
    assert_eq!(
        handle(&harness, &inbox, key).await.expect("handled"),
        Handled::Now(())
    );
    harness.clean_up().await;
}

#[tokio::test]
async fn prune_leaves_fresh_marks_in_other_partitions() {
    let harness = with_effects().await;
    let schema = harness.store.schema().to_owned();
    harness
        .execute(
            "create table pillarbox.seen (who text, event uuid, at timestamptz not null, primary key (who, event))
               partition by list (who);
             create table pillarbox.seen_here partition of pillarbox.seen for values in ('notifications');
             create table pillarbox.seen_there partition of pillarbox.seen default;
             insert into pillarbox.seen select 'notifications', gen_random_uuid(), now() - interval '40 days'
               from generate_series(1, 50);
             insert into pillarbox.seen select 'billing', gen_random_uuid(), now() - make_interval(days => n)
               from generate_series(1, 50) as n",
        )
        .await;
    let table = Table::new(format!("{schema}.seen"))
        .consumer("who")
        .event_id("event")
        .handled_at("at");
    let inbox = Inbox::adopting(table);
    let mut connection = harness.pool.acquire().await.expect("a connection");
    let pruned = inbox.prune(&mut connection, CONSUMER).await.expect("prunes");
    let sql = harness.sql("select count(*) from pillarbox.seen where who = 'billing'");
    let kept = sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut *connection).await;
    assert_eq!((pruned, kept.expect("counts").get::<i64, _>(0)), (50, 50));
    harness.clean_up().await;
}

#[tokio::test]
async fn a_table_that_is_not_there_is_said_so() {
    let harness = PostgresHarness::direct().await;
    let inbox = Inbox::adopting(Table::new(format!("{}.nowhere", harness.store.schema())));
    let mut connection = harness.pool.acquire().await.expect("a connection");
    let missing = inbox.mark(&mut connection, CONSUMER, Uuid::now_v7()).await;
    assert!(
        matches!(missing, Err(pillarbox::StoreError::Missing(_))),
        "{missing:?}"
    );
    harness.clean_up().await;
}
