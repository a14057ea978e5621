//! Which roles the policies have, after grants, revocations and a new owner; and what row-level security switches on and off.

use pillarbox::{EnqueueError, StoreError};
use pillarbox_store::audit::AuditFilter;
use pillarbox_store::stores::postgres::{Bounds, Duty, grant_script, row_security_script};
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use pillarbox_testkit::wait::until;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::privileges::{as_role, drop_role, on_duty};
use super::super::producer::request;
use super::secured::{Secured, event};

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

#[tokio::test]
async fn a_dispatcher_from_which_rows_are_hidden_does_not_start() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    harness
        .store
        .set_row_security(&OPERATOR, true)
        .await
        .expect("switches on");
    store.check_dispatcher().await.expect("has its policy");
    // As after a restore without the policies, or by hand.
    harness
        .execute("drop policy every_tenant on pillarbox.outbox_events; drop policy every_tenant on pillarbox.leases")
        .await;
    let refused = store.check_dispatcher().await.expect_err("sees nothing");
    let text = refused.to_string();
    let hides = format!(
        "row-level security hides the rows of leases, outbox_events in the schema {}",
        store.schema()
    );
    assert!(text.contains(&hides) && text.contains(&role), "{text}");
    assert!(
        text.contains(&format!("run: pillarbox grant dispatcher {role}")),
        "{text}"
    );
    let granted = harness
        .store
        .grant(&OPERATOR, Duty::Dispatcher, &Bounds::default(), &role, false)
        .await;
    granted.expect("grants again");
    store.check_dispatcher().await.expect("has its policy again");
    // One that never had the duty, with privileges by hand.
    let (other, other_store) = as_role(&harness, "").await;
    let by_hand = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/stores/postgres/grants/dispatcher.sql"
    ))
    .replace("on schema pillarbox", &format!("on schema {}", store.schema()))
    .replace(" to dispatcher;", &format!(" to {other};"));
    harness.execute(&by_hand).await;
    let refused = other_store.check_dispatcher().await.expect_err("sees nothing");
    assert!(
        refused.to_string().contains("row-level security hides"),
        "{refused}"
    );
    for (role, store) in [(role, store), (other, other_store)] {
        store.close().await;
        drop_role(&harness, &role).await;
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn the_policies_follow_grants_revocations_and_the_owner() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    let roles = async |policy: &str| -> Vec<String> {
        scalar(
            harness,
            &format!(
                "select coalesce((select array(select r::regrole::text from unnest(polroles) as r order by 1) from pg_policy
                 where polrelid = 'pillarbox.outbox_events'::regclass and polname = '{policy}'), '{{}}')"
            ),
        )
        .await
    };
    let has = async |policy: &str, role: &str| roles(policy).await.iter().any(|it| it == role);
    let (writer, store) = &secured.writer;
    harness
        .store
        .revoke(&OPERATOR, Duty::Writer, writer)
        .await
        .expect("revokes");
    assert!(!has("every_tenant", writer).await);
    let mut connection = store.pool().acquire().await.expect("connects");
    let refused = store.outbox().enqueue(&mut *connection, &event()).await;
    assert!(
        matches!(refused, Err(EnqueueError::Store(StoreError::Denied(_)))),
        "{refused:?}"
    );
    drop(connection);
    harness
        .store
        .revoke(&OPERATOR, Duty::Api, &secured.api.0)
        .await
        .expect("revokes");
    assert_eq!(roles("own_tenant").await, [""; 0]);

    let owner = format!("o_{}", Uuid::new_v4().simple());
    harness.execute(&format!("create role {owner} nologin")).await;
    harness
        .store
        .migrate_for(&OPERATOR, &owner)
        .await
        .expect("gives it");
    assert!(has("every_tenant", &owner).await);
    assert!(!has("every_tenant", &secured.owner).await);
    // The functions run as the new owner.
    let (producer, of_producer) = on_duty(harness, Duty::Producer).await;
    for call in [
        "select id from pillarbox.enqueue('shop', 'orders', dedupe_key => 'a')",
        "select id from pillarbox.enqueue('shop', 'orders', dedupe_key => 'a')",
        r#"select id from pillarbox.enqueue_many('[{"namespace": "shop", "topic": "orders", "dedupe_key": "a"}]')"#,
    ] {
        let called = sqlx::raw_sql(AssertSqlSafe(harness.sql(call)))
            .fetch_all(&of_producer.pool())
            .await;
        assert_eq!(called.expect("enqueues").len(), 1);
    }
    let claimed = secured.dispatcher.1.claim(&request(10)).await;
    assert_eq!(claimed.expect("claims").len(), 1);
    of_producer.close().await;
    drop_role(harness, &producer).await;
    let first = secured.owner.clone();
    secured.clean_up().await;
    drop(first);
}

#[tokio::test]
async fn a_role_that_sees_all_tenants_is_not_bound_to_one() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    let grant = async |duty, role: &str| {
        harness
            .store
            .grant(&OPERATOR, duty, &Bounds::default(), role, false)
            .await
    };
    for (duty, role) in [
        (Duty::Api, &secured.dispatcher.0),
        (Duty::Api, &secured.any_tenant.0),
        (Duty::Writer, &secured.api.0),
        (Duty::Dispatcher, &secured.api.0),
    ] {
        let refused = grant(duty, role).await.expect_err("is refused").to_string();
        assert!(
            refused.contains("cannot be bound to a tenant") && refused.contains("the rows of every tenant"),
            "{refused}"
        );
    }
    let beyond = async |role: &str| {
        harness
            .store
            .beyond(&OPERATOR, Duty::Api, role)
            .await
            .expect("asks")
    };
    assert_eq!(beyond(&secured.api.0).await, [""; 0]);
    // Nor may a role of which it is a member see them.
    let (group, of_group) = as_role(harness, "").await;
    harness
        .execute(&format!("grant {group} to {}", secured.api.0))
        .await;
    for duty in [Duty::Dispatcher, Duty::Writer, Duty::ApiAnyTenant] {
        let refused = grant(duty, &group).await.expect_err("is refused").to_string();
        assert!(
            refused.contains(&format!("role {:?} cannot be bound to a tenant", secured.api.0)),
            "{refused}"
        );
    }
    of_group.close().await;
    drop_role(harness, &group).await;
    // A membership is another way, which a check finds.
    let (api, dispatcher) = (&secured.api.0, &secured.dispatcher.0);
    harness.execute(&format!("grant {dispatcher} to {api}")).await;
    let found = beyond(api).await;
    assert!(
        found.iter().any(|it| it == "the rows of every tenant"),
        "{found:?}"
    );
    harness
        .execute(&format!(
            "revoke {dispatcher} from {api}; alter role {api} bypassrls"
        ))
        .await;
    let found = beyond(api).await;
    assert_eq!(found, ["the rows of others: it bypasses row-level security"]);
    let any = harness
        .store
        .beyond(&OPERATOR, Duty::ApiAnyTenant, &secured.any_tenant.0)
        .await;
    assert_eq!(any.expect("asks"), [""; 0]);
    secured.clean_up().await;
}

#[tokio::test]
async fn it_is_switched_off_when_no_role_needs_it() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    let refused = harness.store.set_row_security(&OPERATOR, false).await;
    let refused = refused.expect_err("is refused").to_string();
    assert!(
        refused.contains(&secured.api.0) && refused.contains("pillarbox revoke api ROLE"),
        "{refused}"
    );
    for (duty, role) in [
        (Duty::Api, &secured.api.0),
        (Duty::ApiAnyTenant, &secured.any_tenant.0),
    ] {
        harness
            .store
            .revoke(&OPERATOR, duty, role)
            .await
            .expect("revokes");
    }
    for was_on in [true, false] {
        let switched = harness.store.set_row_security(&OPERATOR, false).await;
        assert_eq!(switched.expect("switches off"), was_on);
    }
    let left: i64 = scalar(
        harness,
        "select (select count(*) from pg_policy where polrelid = 'pillarbox.outbox_events'::regclass)
           + (select count(*) from pg_class where relname like '%of_tenant' and relnamespace = rtrim('pillarbox.', '.')::regnamespace)
           + (select count(*) from pg_class where (relrowsecurity or relforcerowsecurity)
              and relnamespace = rtrim('pillarbox.', '.')::regnamespace)",
    )
    .await;
    assert_eq!(left, 0);
    secured.enqueue(&[event()]).await.expect("enqueues");
    let lines = harness
        .store
        .audit(
            &OPERATOR,
            &AuditFilter {
                action: Some("migrate".to_owned()),
                ..AuditFilter::default()
            },
        )
        .await;
    let switched: Vec<_> = lines
        .expect("lists")
        .into_iter()
        .filter_map(|line| line.after?.get("row_security")?.as_bool())
        .collect();
    assert_eq!(switched, [false, true]);
    secured.clean_up().await;
}

#[tokio::test]
async fn the_printed_sql_does_the_same() {
    let harness = PostgresHarness::direct().await;
    let schema = harness.store.schema().to_owned();
    let (role, store) = as_role(&harness, "").await;
    let run = async |script: String| {
        // As psql does: statement by statement, each for itself unless the script begins a transaction.
        let mut connection = harness.pool.acquire().await.expect("a connection");
        for statement in script.split_inclusive(";\n").filter(|it| !it.trim().is_empty()) {
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
                .execute(&mut *connection)
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    };
    run(row_security_script(&schema, true).expect("a sound name")).await;
    run(grant_script(Duty::Api, &Bounds::default(), &schema, &role, false, None).expect("sound names")).await;
    assert!(harness.store.has_row_security().await.expect("asks"));
    harness
        .enqueue(&[event().tenant(super::secured::TENANT)])
        .await
        .expect("enqueues");
    let count = async |tenant| {
        let actor = pillarbox_testkit::operator_of(tenant);
        store.stats(&actor, &Scope::All).await.expect("counts").pending
    };
    assert_eq!(count(super::secured::TENANT).await, 1);
    assert_eq!(count(super::secured::OTHER_TENANT).await, 0);
    store.close().await;
    harness
        .store
        .revoke(&OPERATOR, Duty::Api, &role)
        .await
        .expect("revokes");
    run(row_security_script(&schema, false).expect("a sound name")).await;
    assert!(!harness.store.has_row_security().await.expect("asks"));
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn the_printed_sql_grants_nothing_if_a_statement_of_it_fails() {
    let harness = PostgresHarness::direct().await;
    let schema = harness.store.schema().to_owned();
    let (role, store) = as_role(&harness, "").await;
    let script =
        grant_script(Duty::Api, &Bounds::default(), &schema, &role, false, None).expect("sound names");
    // The tables cannot be locked.
    let mut reader = harness.pool.begin().await.expect("begins");
    sqlx::raw_sql(AssertSqlSafe(
        harness.sql("select count(*) from pillarbox.role_bounds"),
    ))
    .execute(&mut *reader)
    .await
    .expect("reads");
    let mut connection = harness.pool.acquire().await.expect("connects");
    let indexes = script.find("begin;").expect("a transaction");
    let mut failed = 0;
    // As psql does by default: it goes on after an error.
    let bounded = format!("set lock_timeout = '200ms';\n{}", &script[indexes..]);
    for statement in bounded.split_inclusive(";\n") {
        let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut *connection)
            .await;
        failed += usize::from(done.is_err());
    }
    assert!(failed > 0, "the tables are locked");
    reader.rollback().await.expect("rolls back");
    drop(connection);
    let reads: bool = scalar(
        &harness,
        &format!("select has_any_column_privilege('{role}', 'pillarbox.outbox_events', 'select')"),
    )
    .await;
    assert!(!reads, "it would see the rows of all tenants");
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn the_indexes_are_there_although_it_was_switched_off_meanwhile() {
    let harness = PostgresHarness::direct().await;
    let schema = harness.store.schema().to_owned();
    let (role, api) = as_role(&harness, "").await;
    let script = row_security_script(&schema, true).expect("a sound name");
    for is_grant in [false, true] {
        for create in script
            .split_inclusive(";\n")
            .filter(|it| it.contains("create index"))
        {
            let created = sqlx::raw_sql(AssertSqlSafe(create.to_owned()))
                .execute(&harness.pool)
                .await;
            created.expect("creates");
        }
        // Another change has its turn.
        let mut other = harness.pool.begin().await.expect("begins");
        sqlx::raw_sql("select pg_advisory_xact_lock(x'70696C6C6172626F'::bigint)")
            .execute(&mut *other)
            .await
            .expect("locks");
        let (store, of_api) = (harness.store.clone(), role.clone());
        let switching = tokio::spawn(async move {
            if is_grant {
                let bounds = Bounds::default();
                let granted = store.grant(&OPERATOR, Duty::Api, &bounds, &of_api, false).await;
                granted.expect("grants");
            } else {
                store
                    .set_row_security(&OPERATOR, true)
                    .await
                    .expect("switches on");
            }
        });
        let exist = "select count(*) = 2 from pg_index i join pg_class c on c.oid = i.indexrelid
             where relname like '%of_tenant' and indrelid = 'pillarbox.outbox_events'::regclass and indisvalid";
        let waits = "select exists (select from pg_locks l where locktype = 'advisory' and not granted
               and classid = x'70696C6C'::int and objid = x'6172626F'::int)";
        until("the switch waits", async || scalar::<bool>(&harness, waits).await).await;
        let off = row_security_script(&schema, false).expect("a sound name");
        sqlx::raw_sql(AssertSqlSafe(off))
            .execute(&mut *other)
            .await
            .expect("switches off");
        other.commit().await.expect("commits");
        switching.await.expect("ends");
        assert!(
            scalar::<bool>(&harness, exist).await,
            "the pages of tenants have their indexes"
        );
        if is_grant {
            let revoked = harness.store.revoke(&OPERATOR, Duty::Api, &role).await;
            revoked.expect("revokes");
        }
        let off = harness.store.set_row_security(&OPERATOR, false).await;
        off.expect("switches off");
    }
    api.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_grant_waits_for_a_transaction_and_holds_up_no_producer() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    let (role, store) = as_role(harness, "").await;
    let mut open = harness.pool.begin().await.expect("begins");
    sqlx::raw_sql(AssertSqlSafe(
        harness.sql("select count(*) from pillarbox.outbox_events"),
    ))
    .execute(&mut *open)
    .await
    .expect("reads");
    let owner = harness.store.clone();
    let granting = {
        let role = role.clone();
        tokio::spawn(async move {
            owner
                .grant(&OPERATOR, Duty::Dispatcher, &Bounds::default(), &role, false)
                .await
        })
    };
    // Longer than a lock is waited for at a time.
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_secs(4) {
        secured.enqueue(&[event()]).await.expect("a producer goes on");
    }
    assert!(!granting.is_finished());
    open.rollback().await.expect("rolls back");
    granting.await.expect("ends").expect("grants");
    store.check_dispatcher().await.expect("has its policy");
    store.close().await;
    drop_role(harness, &role).await;
    secured.clean_up().await;
}

#[tokio::test]
async fn copy_into_the_outbox_needs_inserts_instead() {
    let secured = Secured::open().await;
    let mut connection = secured.writer.1.pool().acquire().await.expect("connects");
    let copy = secured
        .harness
        .sql("copy pillarbox.outbox_events (namespace, topic, payload) from stdin");
    let refused = connection.copy_in_raw(&copy).await.err().expect("is refused");
    assert!(
        refused
            .to_string()
            .contains("COPY FROM not supported with row-level security"),
        "{refused}"
    );
    drop(connection);
    secured.enqueue(&[event(), event()]).await.expect("inserts");
    secured.clean_up().await;
}
