//! Who owns an outbox, and who may create in its schema.

use pillarbox::StoreError;
use pillarbox_store::Store;
use pillarbox_store::stores::postgres::{Bounds, Duty, Postgres};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::harness::{PostgresHarness, unmigrated};
use super::super::privileges::{as_role, drop_role};

async fn scalar<T>(harness: &PostgresHarness, sql: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    let sql = AssertSqlSafe(harness.sql(sql));
    sqlx::query_scalar(sql)
        .fetch_one(&harness.pool)
        .await
        .expect("reads")
}

/// The owners of everything in the schema.
async fn owners(harness: &PostgresHarness) -> Vec<String> {
    scalar(
        harness,
        "select array_agg(distinct owner::regrole::text) from (
           select relowner as owner from pg_class where relnamespace = to_regnamespace(rtrim('pillarbox.', '.'))
           union all select proowner from pg_proc where pronamespace = to_regnamespace(rtrim('pillarbox.', '.'))
           union all select typowner from pg_type where typnamespace = to_regnamespace(rtrim('pillarbox.', '.'))
           union all select nspowner from pg_namespace where oid = to_regnamespace(rtrim('pillarbox.', '.'))) as all_of_it",
    )
    .await
}

#[tokio::test]
async fn a_schema_in_which_others_may_create_is_refused_with_the_statement_that_mends_it() {
    let harness = PostgresHarness::direct().await;
    let schema = harness.store.schema().to_owned();
    let (role, store) = as_role(&harness, "").await;
    harness
        .execute(&format!("grant create on schema {schema} to {role}, public"))
        .await;
    let mend = format!("revoke create on schema \"{schema}\" from public, {role}");
    for refused in [
        harness.store.migrate().await.map(|_| ()).expect_err("is refused"),
        harness.store.check().await.expect_err("is refused"),
    ] {
        assert!(matches!(refused, StoreError::Unsafe(_)), "{refused}");
        assert!(refused.to_string().contains(&mend), "{refused}");
    }
    harness.execute(&mend).await;
    harness.store.migrate().await.expect("is mended");
    harness.store.check().await.expect("is mended");
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_schema_without_an_outbox_that_is_not_empty_is_refused() {
    let store = unmigrated(&variable("PILLARBOX_TEST_POSTGRES_URL"));
    let pool = sqlx::PgPool::connect_lazy(&variable("PILLARBOX_TEST_POSTGRES_URL")).expect("a URL");
    let harness = PostgresHarness { store, pool };
    let (schema, owner) = (harness.store.schema(), format!("o_{}", Uuid::new_v4().simple()));
    harness
        .execute(&format!("create role {owner} nologin; create schema {schema}"))
        .await;
    let trapped = "create table pillarbox.ran (who name);
         create table pillarbox.migrations (version int primary key, name text, applied_at timestamptz default now());
         create function pillarbox.trap() returns trigger language plpgsql as
           $$ begin insert into pillarbox.ran values (current_user); return new; end $$;
         create trigger trap before insert on pillarbox.migrations for each row execute function pillarbox.trap()";
    for (planted, named) in [
        (trapped, "migrations"),
        ("create table pillarbox.t ()", "table"),
        (
            "create function pillarbox.f() returns int language sql return 1",
            "f()",
        ),
        ("create type pillarbox.enqueued as (id int)", "type"),
        ("create domain pillarbox.d as int", "type"),
        ("create sequence pillarbox.outbox_seq", "outbox_seq"),
    ] {
        harness.execute(planted).await;
        for refused in [
            harness.store.migrate().await,
            harness.store.migrate_for(&OPERATOR, &owner).await,
        ] {
            let refused = refused.expect_err("is refused");
            assert!(matches!(refused, StoreError::Unsafe(_)), "{refused}");
            let text = refused.to_string();
            assert!(
                text.contains(named) && text.contains("a schema of its own"),
                "{text}"
            );
        }
        if planted == trapped {
            let ran: i64 = scalar(&harness, "select count(*) from pillarbox.ran").await;
            assert_eq!(ran, 0);
        }
        harness
            .execute(&format!("drop schema {schema} cascade; create schema {schema}"))
            .await;
    }
    harness.store.migrate().await.expect("an empty schema will do");
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}

#[tokio::test]
async fn everything_belongs_to_the_owner_of_the_schema_whoever_migrates() {
    let store = unmigrated(&variable("PILLARBOX_TEST_POSTGRES_URL"));
    let pool = sqlx::PgPool::connect_lazy(&variable("PILLARBOX_TEST_POSTGRES_URL")).expect("a URL");
    let harness = PostgresHarness { store, pool };
    let (role, of_role) = as_role(&harness, "").await;
    let schema = harness.store.schema().to_owned();
    harness
        .execute(&format!("create schema {schema} authorization {role}"))
        .await;
    harness.store.migrate().await.expect("a superuser migrates");
    assert_eq!(owners(&harness).await, std::slice::from_ref(&role));
    of_role.migrate().await.expect("the owner migrates");

    let (other, of_other) = as_role(&harness, "").await;
    let denied = of_other.migrate().await.expect_err("is not the owner");
    assert!(
        denied
            .to_string()
            .contains(&format!("belongs to the role \"{role}\"")),
        "{denied}"
    );
    of_other.close().await;
    drop_role(&harness, &other).await;
    harness.clean_up().await;
    of_role.close().await;
    drop_role(&harness, &role).await;
}

#[tokio::test]
async fn an_outbox_is_given_to_a_role_that_cannot_log_in() {
    let harness = PostgresHarness::direct().await;
    let owner = format!("o_{}", Uuid::new_v4().simple());
    let missing = harness
        .store
        .migrate_for(&OPERATOR, &owner)
        .await
        .expect_err("is not there");
    assert!(
        missing
            .to_string()
            .contains(&format!("create role \"{owner}\" nologin")),
        "{missing}"
    );
    harness.execute(&format!("create role {owner} login")).await;
    let can_log_in = harness
        .store
        .migrate_for(&OPERATOR, &owner)
        .await
        .expect_err("may log in");
    assert!(
        can_log_in
            .to_string()
            .contains(&format!("alter role \"{owner}\" nologin")),
        "{can_log_in}"
    );
    harness.execute(&format!("alter role {owner} nologin")).await;
    // A duty that was granted before stays.
    let (role, store) = super::shop(&harness).await;
    harness
        .store
        .migrate_for(&OPERATOR, &owner)
        .await
        .expect("gives it");
    assert_eq!(owners(&harness).await, std::slice::from_ref(&owner));
    harness.store.migrate().await.expect("it stays the owner's");
    assert_eq!(owners(&harness).await, std::slice::from_ref(&owner));
    let call = format!(
        "select pillarbox.enqueue('shop', 'orders', tenant_id => '{}')",
        super::TENANT
    );
    assert_eq!(super::code(&harness, &store, &call).await, None);

    // A member of it, which may create in the database, does what an owner does.
    let database: String = scalar(&harness, "select quote_ident(current_database())").await;
    harness
        .execute(&format!("grant create on database {database} to {owner}"))
        .await;
    let (deployer, of_deployer) = as_role(&harness, &format!("grant {owner} to ROLE")).await;
    of_deployer.migrate().await.expect("a member migrates");
    let bounds = Bounds::namespaces(["billing"]);
    let granted = of_deployer
        .grant(&OPERATOR, Duty::Producer, &bounds, &role, false)
        .await;
    granted.expect("a member grants");
    let fresh = as_deployer(&deployer);
    fresh
        .migrate_for(&OPERATOR, &owner)
        .await
        .expect("a member creates it");
    let fresh = PostgresHarness {
        store: fresh,
        pool: harness.pool.clone(),
    };
    assert_eq!(owners(&fresh).await, std::slice::from_ref(&owner));
    fresh.clean_up().await;
    of_deployer.close().await;
    drop_role(&harness, &deployer).await;
    super::leave(&harness, &role, store).await;
    harness.clean_up().await;
    drop_role(&harness, &owner).await;
}

/// A store on a schema that does not exist, as this role.
fn as_deployer(role: &str) -> Postgres {
    unmigrated(&variable("PILLARBOX_TEST_POSTGRES_URL").replace("pillarbox@", &format!("{role}@")))
}
