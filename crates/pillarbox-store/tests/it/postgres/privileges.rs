//! The privileges that each duty needs, TLS and passwords.

use pillarbox::inbox::Inbox;
use pillarbox::saga::{Saga, SagaError, Step};
use pillarbox::{EnqueueError, Event, Outbox, Recorded, StoreError};
use pillarbox_store::operate::Filter;
use pillarbox_store::store::{Backlog, Heartbeat, LaneRequest, Settlement, SweepRequest};
use pillarbox_store::stores::postgres::{Bounds, Duty, Options, Postgres};
use pillarbox_store::{Operate, OperateError, Scope, Store, Verdict};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::{AssertSqlSafe, PgConnection};
use std::time::Duration;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::producer::request;
use pillarbox_testkit::environment::variable;

/// A role of its own with these privileges, and the store as that role sees it.
pub(super) async fn as_role(harness: &PostgresHarness, grants: &str) -> (String, Postgres) {
    let role = format!("r_{}", Uuid::new_v4().simple());
    harness
        .execute(&format!(
            "create role {role} login; {}",
            grants.replace("ROLE", &role)
        ))
        .await;
    let url = variable("PILLARBOX_TEST_POSTGRES_URL").replace("pillarbox@", &format!("{role}@"));
    let options = Options {
        schema: harness.store.schema().to_owned(),
        ..Options::default()
    };
    (role, Postgres::new(&url, options).expect("a URL"))
}

/// A role of its own that is there for this, and the store as that role sees it.
pub(super) async fn on_duty(harness: &PostgresHarness, duty: Duty) -> (String, Postgres) {
    let bounds = match duty {
        Duty::Producer => Bounds::namespaces(["shop"]),
        Duty::Consumer => Bounds::names(["c"]),
        Duty::Orchestrator => Bounds::names(["order"]),
        Duty::Writer | Duty::Dispatcher | Duty::Api | Duty::ApiAnyTenant => Bounds::default(),
    };
    bound(harness, duty, &bounds).await
}

/// The same with these bounds.
pub(super) async fn bound(harness: &PostgresHarness, duty: Duty, bounds: &Bounds) -> (String, Postgres) {
    let (role, store) = as_role(harness, "").await;
    let created = harness.store.grant(&OPERATOR, duty, bounds, &role, true).await;
    assert!(!created.expect("grants"), "it was there");
    (role, store)
}

pub(super) async fn drop_role(harness: &PostgresHarness, role: &str) {
    harness
        .execute(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

/// Everything goes, the role too.
async fn clean_up(harness: PostgresHarness, role: &str, store: Postgres) {
    store.close().await;
    drop_role(&harness, role).await;
    harness.clean_up().await;
}

async fn assert_cannot_enqueue(outbox: &Outbox, connection: &mut PgConnection) {
    let refused = outbox.enqueue(connection, &Event::new("shop", "orders")).await;
    assert!(
        matches!(refused, Err(EnqueueError::Store(StoreError::Denied(_)))),
        "{refused:?}"
    );
}

/// As a tool does that sets all roles up at once. PostgreSQL ends one of two changes of a table's grants that run at once.
#[tokio::test]
async fn roles_are_granted_and_revoked_at_the_same_time() {
    let harness = PostgresHarness::direct().await;
    let mut roles = Vec::new();
    for _ in 0..4 {
        roles.push(as_role(&harness, "").await.0);
    }
    let change = async |role: &String| {
        let bounds = Bounds::default();
        for _ in 0..5 {
            let granted = harness
                .store
                .grant(&OPERATOR, Duty::Producer, &bounds, role, false)
                .await;
            granted.expect("grants");
            let revoked = harness.store.revoke(&OPERATOR, Duty::Producer, role).await;
            revoked.expect("revokes");
        }
    };
    tokio::join!(
        change(&roles[0]),
        change(&roles[1]),
        change(&roles[2]),
        change(&roles[3])
    );
    for role in &roles {
        drop_role(&harness, role).await;
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn a_dispatcher_needs_what_the_manual_says_and_nothing_more() {
    let harness = PostgresHarness::direct().await;
    let events = [Event::new("shop", "orders"), Event::new("shop", "orders")];
    harness.enqueue(&events).await.expect("enqueues");
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    store.check().await.expect("may see the version");
    let look = store.find(&Scope::All, None, None, 10).await.expect("may look");
    assert_eq!(look.due.len(), 1);
    let request = request(10);
    let claimed = store.claim(&request).await.expect("may claim");
    assert_eq!(claimed.len(), 2);
    // Operators use the configuration of the daemon.
    let listed = store.list(&OPERATOR, &Filter::default()).await.expect("may list");
    assert_eq!(listed.len(), 2);
    let shown = store.show(&OPERATOR, claimed[0].id).await.expect("may show");
    assert!(shown.is_some_and(|row| row.locked_until.is_some()));
    let settle = |id, verdict| Settlement {
        id,
        claim: request.claim,
        verdict,
        destination: Some("d".into()),
        max_attempts: Some(3),
        unordered: false,
        keep: true,
    };
    let retry = Verdict::Retry {
        after: Duration::from_secs(1),
        reason: "no".into(),
    };
    let settlements = [
        settle(claimed[0].id, Verdict::Delivered),
        settle(claimed[1].id, retry),
    ];
    let held = [(claimed[0].id, request.claim)];
    let lost = store
        .renew(request.worker, &held, request.lease)
        .await
        .expect("may renew");
    assert!(lost.is_empty());
    let lost = store
        .settle(request.worker, &settlements)
        .await
        .expect("may settle");
    assert!(lost.is_empty());
    let sweep = SweepRequest {
        worker: request.worker,
        scope: Scope::All,
        max_attempts: 25,
        grace: Duration::ZERO,
        excluded: Vec::new(),
    };
    store.sweep(&sweep).await.expect("may sweep");
    let watch = store.watch().await.expect("may watch");
    assert!(watch.is_some());
    keep_lanes(&store, request.worker).await;
    assert_eq!(
        store
            .stats(&OPERATOR, &Scope::All)
            .await
            .expect("may count")
            .delivered,
        1
    );
    let deleted = store
        .delete(&OPERATOR, &[claimed[0].id])
        .await
        .expect("may delete, as retention does");
    assert_eq!(deleted, [claimed[0].id]);
    let refused = store.resume(&OPERATOR, "d").await.expect_err("may not resume");
    assert!(
        matches!(refused, OperateError::Store(StoreError::Denied(_))),
        "{refused}"
    );
    clean_up(harness, &role, store).await;
}

/// Everything that a dispatcher says and asks beside its rows.
async fn keep_lanes(store: &Postgres, worker: Uuid) {
    let heartbeat = Heartbeat {
        worker,
        host: "here".into(),
        version: "1".into(),
        scope: Scope::All,
        ttl: Duration::from_secs(60),
        ..Heartbeat::default()
    };
    store
        .heartbeat(&heartbeat)
        .await
        .expect("may say that it is alive");
    let lanes = |ranges| LaneRequest {
        worker,
        backlogs: vec![Backlog {
            destination: None,
            namespace: "shop".into(),
        }],
        ranges,
        new_ranges: ranges,
        lease: Duration::from_secs(60),
        release: Vec::new(),
    };
    assert_eq!(
        store.lease_lanes(&lanes(2)).await.expect("may take lanes").len(),
        2
    );
    store.deregister(worker).await.expect("may leave");
    assert_eq!(store.lease_lanes(&lanes(1)).await.expect("may divide").len(), 1);
    store.deregister(worker).await.expect("may leave");
    assert_eq!(store.prune_lanes().await.expect("may prune"), 1);
    store
        .disable(Uuid::nil(), "chat", "410")
        .await
        .expect("may pause");
}

/// Runs these calls and the library, twice: what rolls back leaves the next round as it was, and the last one commits.
async fn enqueue_each_way(harness: &PostgresHarness, store: &Postgres, outbox: Outbox, calls: &[&str]) {
    let event = || Event::new("shop", "orders").dedupe_key("a").ordering_key("k");
    let outbox = outbox.serialised();
    for rounds_left in (0..2).rev() {
        let mut transaction = store.pool().begin().await.expect("begins");
        for call in calls {
            let call = sqlx::raw_sql(AssertSqlSafe(harness.sql(call)));
            call.execute(&mut *transaction).await.expect("may enqueue");
        }
        let one = outbox.enqueue(&mut transaction, &event()).await;
        assert!(!one.expect("may enqueue").is_new());
        let free = Event::new("shop", "orders").bytes(vec![0, 255], "image/png");
        let many = outbox.enqueue_all(&mut transaction, &[event(), free]).await;
        assert!(many.expect("may enqueue")[1].is_new());
        if rounds_left == 0 {
            transaction.commit().await.expect("commits");
        } else {
            transaction.rollback().await.expect("rolls back");
        }
    }
    assert_eq!(
        harness
            .store
            .stats(&OPERATOR, &Scope::All)
            .await
            .expect("counts")
            .pending,
        2
    );
}

#[tokio::test]
async fn a_producer_enqueues_by_both_functions_and_by_the_library() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let calls = [
        "select id from pillarbox.enqueue('shop', 'orders', dedupe_key => 'a')",
        "select id from pillarbox.enqueue('shop', 'orders', dedupe_key => 'a', ordering_key => 'k', serialised => true)",
        r#"select id from pillarbox.enqueue_many('[{"namespace": "shop", "topic": "orders", "dedupe_key": "a"}]')"#,
    ];
    enqueue_each_way(&harness, &store, store.outbox().by_function(), &calls).await;
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn a_writer_enqueues_by_hand_and_by_the_library() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Writer).await;
    let call = "insert into pillarbox.outbox_events (namespace, topic, dedupe_key, payload) values ('shop', 'orders', 'a', '{}')
         on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing returning id, seq";
    enqueue_each_way(&harness, &store, store.outbox(), &[call]).await;
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn an_enqueue_that_is_denied_names_both_duties() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let mut connection = store.pool().acquire().await.expect("connects");
    for (outbox, event) in [
        (store.outbox(), Event::new("shop", "orders")),
        (store.outbox().by_function(), Event::new("billing", "orders")),
    ] {
        let denied = outbox.enqueue(&mut *connection, &event).await;
        let denied = denied.expect_err("is denied").to_string();
        for way in [
            "`pillarbox grant writer ROLE`",
            "`Outbox::by_function()`",
            "grant producer",
            "42501",
        ] {
            assert!(denied.contains(way), "{denied}");
        }
    }
    drop(connection);
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn a_role_that_may_enqueue_may_look_up_what_it_committed_unheard() {
    for duty in [Duty::Producer, Duty::Writer] {
        let harness = PostgresHarness::direct().await;
        let (role, store) = on_duty(&harness, duty).await;
        let outbox = match duty {
            Duty::Producer => store.outbox().by_function(),
            _ => store.outbox(),
        };
        let mut recorded = Recorded::default();
        recorded.record(&Event::new("shop", "orders"));
        let mut fates = Vec::new();
        for _ in 0..2 {
            let mut transaction = store.pool().begin().await.expect("begins");
            let enqueued = outbox
                .enqueue_recorded(&mut transaction, &mut [&mut recorded])
                .await
                .expect("may look and enqueue");
            fates.push(enqueued[0].is_new());
            transaction.commit().await.expect("commits"); // and nothing is cleared
        }
        assert_eq!(fates, [true, false]);
        clean_up(harness, &role, store).await;
    }
}

#[tokio::test]
async fn a_role_that_enqueues_sees_no_content_and_changes_nothing_that_is_there() {
    let harness = PostgresHarness::direct().await;
    let event = Event::new("shop", "orders");
    harness.enqueue(&[event]).await.expect("enqueues");
    let beyond_a_producer = [
        "select id from pillarbox.outbox_events",
        "select dedupe_key from pillarbox.outbox_events",
        "insert into pillarbox.outbox_events (namespace, topic, payload) values ('shop', 'orders', '{}')",
        "select nextval('pillarbox.outbox_seq')",
        "select pillarbox.own_names('producer', current_user)",
    ];
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    assert_denied(&harness, &store, &beyond_a_producer).await;
    assert_denied(&harness, &store, &BEYOND_A_WRITER).await;
    store.close().await;
    drop_role(&harness, &role).await;

    let (role, store) = on_duty(&harness, Duty::Writer).await;
    let beyond = [
        "select pillarbox.enqueue('shop', 'orders')",
        "select pillarbox.ids_taken('{}')",
    ];
    assert_denied(&harness, &store, &beyond).await;
    assert_denied(&harness, &store, &BEYOND_A_WRITER).await;
    clean_up(harness, &role, store).await;
}

async fn assert_denied(harness: &PostgresHarness, store: &Postgres, statements: &[&str]) {
    for statement in statements {
        let denied = sqlx::raw_sql(AssertSqlSafe(harness.sql(statement)))
            .execute(&store.pool())
            .await;
        let denied = denied.expect_err(statement);
        let code = denied.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {denied}");
    }
}

const BEYOND_A_WRITER: [&str; 26] = [
    "select payload from pillarbox.outbox_events",
    "select headers, body from pillarbox.outbox_events",
    "select tenant_id, status from pillarbox.outbox_events",
    "select * from pillarbox.outbox_events",
    "update pillarbox.outbox_events set status = 'delivered'",
    "update pillarbox.outbox_events set dedupe_key = 'x'",
    "delete from pillarbox.outbox_events",
    "truncate pillarbox.outbox_events",
    "select id from pillarbox.outbox_events for update",
    "insert into pillarbox.outbox_events (namespace, topic, payload, status) values ('a', 'b', '{}', 'dead')",
    "insert into pillarbox.outbox_events (namespace, topic, payload, attempts) values ('a', 'b', '{}', 9)",
    "insert into pillarbox.outbox_events (namespace, topic, payload, parent_id) values ('a', 'b', '{}', null)",
    "insert into pillarbox.outbox_events (namespace, topic, payload) values ('a', 'b', '{}') returning payload",
    "insert into pillarbox.destinations (name, reason) values ('broker', 'no')",
    "select * from pillarbox.workers",
    "update pillarbox.migrations set version = 999",
    "select setval('pillarbox.outbox_seq', 1)",
    "select pillarbox.trace()",
    "create or replace function pillarbox.vanished() returns void language sql as ''",
    "drop function pillarbox.enqueue_many",
    "alter function pillarbox.enqueue_many security invoker",
    "create table pillarbox.mine (id int)",
    "select * from pillarbox.role_bounds",
    "insert into pillarbox.role_bounds (role, duty) values (10, 'producer')",
    "update pillarbox.role_bounds set namespaces = null",
    "select pillarbox.authorise('shop', null, null)",
];

/// The functions run with the privileges of the owner; what the caller gives them must not.
#[tokio::test]
async fn a_producer_cannot_slip_its_own_functions_and_tables_under_ours() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Producer).await;
    let evil = format!("evil_{role}");
    harness
        .execute(&format!("create schema {evil} authorization {role}"))
        .await;
    let mut connection = store.pool().acquire().await.expect("connects");
    let trap = format!(
        "create function {evil}.octet_length(text) returns int language plpgsql as $$begin raise 'trapped'; end$$;
         create function {evil}.nextval(regclass) returns bigint language plpgsql as $$begin raise 'trapped'; end$$;
         create function {evil}.refuse(boolean, boolean) returns boolean language plpgsql as $$begin raise 'trapped'; end$$;
         create operator {evil}.= (function = {evil}.refuse, leftarg = boolean, rightarg = boolean);
         create temp table outbox_events (id uuid);
         set search_path = {evil}, pg_temp, pg_catalog"
    );
    sqlx::raw_sql(AssertSqlSafe(trap))
        .execute(&mut *connection)
        .await
        .expect("sets the trap");
    let sprung = sqlx::raw_sql("select octet_length('a')")
        .execute(&mut *connection)
        .await;
    assert!(
        sprung
            .expect_err("the trap is set")
            .to_string()
            .contains("trapped")
    );
    for call in [
        "select id from pillarbox.enqueue('shop', 'orders')",
        r#"select id from pillarbox.enqueue_many('[{"namespace": "shop", "topic": "orders"}]')"#,
    ] {
        let call = sqlx::raw_sql(AssertSqlSafe(harness.sql(call)));
        call.execute(&mut *connection).await.expect("is not trapped");
    }
    drop(connection);
    assert_eq!(
        harness
            .store
            .stats(&OPERATOR, &Scope::All)
            .await
            .expect("counts")
            .pending,
        2
    );
    harness.execute(&format!("drop schema {evil} cascade")).await;
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn a_dispatcher_is_no_producer_and_only_the_owner_grants() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    let call = harness.sql("select id from pillarbox.enqueue('shop', 'orders')");
    let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(&store.pool()).await;
    let refused = refused.expect_err("may not call").to_string();
    assert!(
        refused.contains("permission denied for function enqueue"),
        "{refused}"
    );
    let refused = store
        .grant(&OPERATOR, Duty::Producer, &Bounds::default(), &role, false)
        .await
        .expect_err("may not grant");
    assert!(matches!(refused, StoreError::Denied(_)), "{refused}");
    let unknown = harness
        .store
        .grant(&OPERATOR, Duty::Writer, &Bounds::default(), "no_such_role", false)
        .await;
    assert!(
        unknown
            .expect_err("is not there")
            .to_string()
            .contains("does not exist")
    );
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn a_role_is_created_once_whatever_its_name() {
    let harness = PostgresHarness::direct().await;
    let role = format!("Odd \"{}\"", Uuid::new_v4().simple());
    for is_new in [true, false] {
        let created = harness
            .store
            .grant(&OPERATOR, Duty::Producer, &Bounds::default(), &role, true)
            .await;
        assert_eq!(created.expect("grants"), is_new);
    }
    drop_role(&harness, &format!("\"{}\"", role.replace('"', "\"\""))).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn a_role_without_privileges_cannot_enqueue() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = as_role(&harness, "").await;
    let mut connection = store.pool().acquire().await.expect("connects");
    assert_cannot_enqueue(&store.outbox(), &mut connection).await;
    drop(connection);
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn an_orchestrator_that_is_a_producer_too_needs_nothing_more_to_run_sagas() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Orchestrator).await;
    let step = Step::new("payment", |_: &u32| Event::new("shop", "payments"));
    let saga = Saga::define("order")
        .step(step)
        .build(&harness.outbox().by_function());
    let saga = saga.expect("sound");
    let begin = async || store.pool().begin().await.expect("begins");

    let mut transaction = begin().await;
    let refused = saga
        .start(&mut transaction, 1, &1)
        .await
        .expect_err("no producer");
    assert!(
        matches!(refused, SagaError::Store(StoreError::Denied(_))),
        "{refused}"
    );
    transaction.rollback().await.expect("rolls back");

    let bounds = Bounds::namespaces(["shop", "sagas"]);
    let granted = harness
        .store
        .grant(&OPERATOR, Duty::Producer, &bounds, &role, false)
        .await;
    granted.expect("grants");
    let mut transaction = begin().await;
    saga.start(&mut transaction, 1, &1).await.expect("may start");
    saga.compensate(&mut transaction, 1)
        .await
        .expect("may go on, and note it");
    transaction.commit().await.expect("commits");
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn a_consumer_needs_what_the_manual_says_and_sees_no_event() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = on_duty(&harness, Duty::Consumer).await;
    let inbox = Inbox::in_schema(store.schema()).expect("a sound name");
    let mut connection = store.pool().acquire().await.expect("connects");
    let id = Uuid::now_v7();
    assert!(inbox.mark(&mut connection, "c", id).await.expect("may mark"));
    inbox
        .unmark(&mut connection, "c", &[id.into()])
        .await
        .expect("may take it back");
    assert_eq!(inbox.prune(&mut connection, "c").await.expect("may prune"), 0);
    assert_cannot_enqueue(&harness.outbox(), &mut connection).await;
    drop(connection);
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn a_role_without_privileges_gets_a_clear_error() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = as_role(&harness, "").await;
    let refused = store.claim(&request(10)).await.expect_err("may not even look");
    assert!(matches!(refused, StoreError::Denied(_)), "{refused}");
    clean_up(harness, &role, store).await;
}

#[tokio::test]
async fn tls_and_a_password_work_and_an_unknown_authority_is_refused() {
    let url = variable("PILLARBOX_TEST_POSTGRES_SCRAM_URL");
    let ca = variable("PILLARBOX_TEST_CA_FILE");
    let asked = |url: String| async move {
        let store = Postgres::new(&url, Options::default()).expect("a URL");
        let answer =
            sqlx::query_scalar::<_, bool>("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
                .fetch_one(&store.pool())
                .await;
        store.close().await;
        answer
    };
    let trusted = asked(format!("{url}?sslmode=verify-full&sslrootcert={ca}")).await;
    assert!(trusted.expect("connects"), "the connection is encrypted");
    assert!(
        asked(format!("{url}?sslmode=verify-full")).await.is_err(),
        "the authority is unknown"
    );
    let wrong = url.replace("secret", "wrong");
    let refused = Postgres::new(&wrong, Options::default())
        .expect("a URL")
        .check()
        .await
        .expect_err("refused");
    assert!(
        refused.to_string().contains("password authentication failed"),
        "{refused}"
    );
    assert!(!refused.to_string().contains("wrong"), "{refused}");
}
