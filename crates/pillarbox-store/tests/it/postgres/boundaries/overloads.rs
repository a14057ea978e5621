//! The functions run as the owner of the outbox. What others can create must not run with them.

use pillarbox_store::stores::postgres::{Bounds, Duty, Postgres};
use pillarbox_testkit::store_suite::Harness;
use sqlx::{AssertSqlSafe, Row};

use super::super::harness::PostgresHarness;
use super::super::privileges::{bound, on_duty};
use super::{code, leave};

/// Every call that producers, consumers and orchestrators cause.
const CALLS: [&str; 9] = [
    "select pillarbox.enqueue('shop', 'orders')",
    "select pillarbox.enqueue('shop', 'orders', dedupe_key => 'a', ordering_key => 'k', headers => '{\"a\": \"b\"}', serialised => true)",
    "select pillarbox.enqueue('', 'orders')",
    "select pillarbox.enqueue('shop', 'orders', headers => jsonb_build_object('a', repeat('x', 70000)))",
    "select pillarbox.enqueue('billing', 'orders')",
    "select pillarbox.enqueue_many('[{\"namespace\": \"shop\", \"topic\": \"orders\"}, {\"namespace\": \"shop\", \"topic\": \"orders\", \"dedupe_key\": \"a\"}]')",
    "select pillarbox.enqueue_many('{}')",
    "select pillarbox.enqueue_many('[{\"x\": 1}]')",
    "select pillarbox.ids_taken(array[gen_random_uuid()])",
];

/// Types that PostgreSQL could prefer to those of our functions.
const TYPES: [&str; 12] = [
    "text",
    "varchar",
    "name",
    "int",
    "bigint",
    "numeric",
    "json",
    "jsonb",
    "uuid",
    "anyelement",
    "\"any\"",
    "timestamp",
];

/// Overloads of all functions, each with another type in one place. The calls themselves stay unambiguous: an overload of what
/// a producer calls has a type that its call does not have.
async fn plant(harness: &PostgresHarness) -> usize {
    let inside = "select p.proname::text as name, array(select given::regtype::text from unnest(p.proargtypes) as given) as types
        from pg_proc p where p.pronamespace = to_regnamespace($1) and p.prokind = 'f'
          and p.proname not in ('enqueue', 'enqueue_many', 'ids_taken')";
    let functions = sqlx::query(inside)
        .bind(harness.store.schema())
        .fetch_all(&harness.pool)
        .await
        .expect("looks");
    let mut planted = 0;
    for function in functions {
        let (name, types): (String, Vec<String>) = (function.get("name"), function.get("types"));
        for place in 0..types.len() {
            for other in TYPES {
                let mut types = types.clone();
                other.clone_into(&mut types[place]);
                let trap = format!(
                    "create function pillarbox.{name}({}) returns text language plpgsql as $$ begin raise 'trapped' using errcode = 'XX999'; end $$",
                    types.join(", ")
                );
                // Those that are there already, and a few that PostgreSQL does not allow.
                let created = sqlx::raw_sql(AssertSqlSafe(harness.sql(&trap)))
                    .execute(&harness.pool)
                    .await;
                planted += usize::from(created.is_ok());
            }
        }
    }
    planted
}

async fn answers(harness: &PostgresHarness, store: &Postgres) -> Vec<Option<String>> {
    let mut answers = Vec::new();
    for call in CALLS {
        answers.push(code(harness, store, call).await);
    }
    answers
}

#[tokio::test]
async fn an_overload_that_the_owner_of_the_schema_plants_is_not_called() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let (consumer, consumer_store) = bound(&harness, Duty::Consumer, &Bounds::names(["c"])).await;
    let before = answers(&harness, &store).await;
    assert!(
        before.iter().filter(|code| code.is_none()).count() >= 4,
        "{before:?}"
    );
    assert!(plant(&harness).await > 200);
    // New connections, so that no plan is older than the overloads.
    store.pool().close().await;
    let again = Postgres::new(
        &pillarbox_testkit::environment::variable("PILLARBOX_TEST_POSTGRES_URL")
            .replace("pillarbox@", &format!("{role}@")),
        pillarbox_store::stores::postgres::Options {
            schema: harness.store.schema().to_owned(),
            ..Default::default()
        },
    )
    .expect("a URL");
    assert_eq!(answers(&harness, &again).await, before);
    let mark = "insert into pillarbox.inbox (consumer, event_id) values ('c', gen_random_uuid())";
    for own in [
        mark,
        "select pillarbox.unmark('c'::text, '{}'::uuid[])",
        "select pillarbox.prune_inbox('c'::text, '0'::interval, 1::int)",
    ] {
        assert_eq!(code(&harness, &consumer_store, own).await, None, "{own}");
    }
    leave(&harness, &consumer, consumer_store).await;
    leave(&harness, &role, again).await;
    harness.clean_up().await;
}

/// A lane that the caller chooses would let two workers deliver one key.
#[tokio::test]
async fn a_search_path_of_the_caller_changes_no_lane_and_no_id() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Writer).await;
    let evil = format!("evil_{role}");
    harness
        .execute(&format!(
            "create schema {evil} authorization {role};
             create function {evil}.md5(text) returns text language sql immutable as 'select ''fff''::text';
             create function {evil}.uuid_send(uuid) returns bytea language sql as 'select ''''::bytea'"
        ))
        .await;
    let forged = format!(
        "set local search_path = {evil}, pg_catalog;
         insert into pillarbox.outbox_events (namespace, topic, payload, ordering_key) values ('shop', 'orders', '{{}}', 'k');
         reset role"
    );
    let mut transaction = store.pool().begin().await.expect("begins");
    let inserted = sqlx::raw_sql(AssertSqlSafe(harness.sql(&forged)))
        .execute(&mut *transaction)
        .await;
    inserted.expect("inserts");
    transaction.commit().await.expect("commits");
    let lane: i16 = sqlx::query_scalar(AssertSqlSafe(
        harness.sql("select lane from pillarbox.outbox_events"),
    ))
    .fetch_one(&harness.pool)
    .await
    .expect("reads");
    assert_eq!(lane, 2254);
    harness.execute(&format!("drop schema {evil} cascade")).await;
    leave(&harness, &role, store).await;
    harness.clean_up().await;
}
