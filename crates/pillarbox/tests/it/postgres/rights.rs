//! What a dispatcher and a producer need to be allowed, TLS and passwords.

use pillarbox::store::{Heartbeat, LaneRequest, Settlement, SweepRequest};
use pillarbox::stores::postgres::{Options, Postgres};
use pillarbox::{Event, Operate, Scope, Store, StoreError, Verdict};
use pillarbox_testkit::store_suite::Harness;
use std::time::Duration;
use uuid::Uuid;

use super::harness::{PostgresHarness, service};
use super::producer::request;

/// A role of its own with these rights, and the store as that role sees it.
pub(super) async fn as_role(harness: &PostgresHarness, grants: &str) -> (String, Postgres) {
    let role = format!("r_{}", Uuid::new_v4().simple());
    harness
        .execute(&format!(
            "create role {role} login; {}",
            grants.replace("ROLE", &role)
        ))
        .await;
    let url = service("PILLARBOX_TEST_POSTGRES_URL").replace("pillarbox@", &format!("{role}@"));
    let options = Options {
        schema: harness.store.schema().to_owned(),
        ..Options::default()
    };
    (role, Postgres::new(&url, options).expect("a URL"))
}

/// As docs/postgres.md gives them.
const DISPATCHER: &str = "grant usage on schema pillarbox.; \
    grant select, insert, update on pillarbox.outbox_events to ROLE; \
    grant select, insert, update, delete on pillarbox.lanes, pillarbox.workers to ROLE; \
    grant select, insert on pillarbox.destinations to ROLE; \
    grant select on pillarbox.migrations to ROLE";

fn schema_grant(harness: &PostgresHarness, grants: &str) -> String {
    grants.replace(
        "on schema pillarbox.",
        &format!("on schema {} to ROLE", harness.store.schema()),
    )
}

async fn drop_role(harness: &PostgresHarness, role: &str) {
    harness
        .execute(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

#[tokio::test]
async fn a_dispatcher_needs_what_the_manual_says_and_nothing_more() {
    let harness = PostgresHarness::direct().await;
    let events = [Event::new("shop", "orders"), Event::new("shop", "orders")];
    harness.enqueue(&events).await.expect("enqueues");
    let (role, store) = as_role(&harness, &schema_grant(&harness, DISPATCHER)).await;
    store.check().await.expect("may see the version");
    let look = store.look(&Scope::All, None, 10).await.expect("may look");
    assert_eq!(look.due.len(), 1);
    let request = request(10);
    let claimed = store.claim(&request).await.expect("may claim");
    assert_eq!(claimed.len(), 2);
    let settle = |id, verdict| Settlement {
        id,
        claim: request.claim,
        verdict,
        destination: Some("d".into()),
        max_attempts: Some(3),
        unordered: false,
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
        closed: Vec::new(),
    };
    store.sweep(&sweep).await.expect("may sweep");
    keep_lanes(&store, request.worker).await;
    assert_eq!(store.stats(&Scope::All).await.expect("may count").delivered, 1);
    let refused = store.delete(&[claimed[0].id]).await.expect_err("may not delete");
    assert!(matches!(refused, StoreError::Denied(_)), "{refused}");
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

/// Everything that a dispatcher says and asks beside its rows.
async fn keep_lanes(store: &Postgres, worker: Uuid) {
    let heartbeat = Heartbeat {
        worker,
        host: "here".into(),
        version: "1".into(),
        scope: Scope::All,
        ttl: Duration::from_secs(60),
        claimed: 0,
        delivered: 0,
        failed: 0,
    };
    store.beat(&heartbeat).await.expect("may say that it is alive");
    let lanes = |ranges| LaneRequest {
        worker,
        namespaces: vec!["shop".into()],
        ranges: Some(ranges),
        lease: Duration::from_secs(60),
        give_up: Vec::new(),
    };
    assert_eq!(
        store.share_lanes(&lanes(2)).await.expect("may take lanes").len(),
        2
    );
    store.leave(worker).await.expect("may leave");
    assert_eq!(store.share_lanes(&lanes(1)).await.expect("may divide").len(), 1);
    store.disable("chat", "410").await.expect("may pause");
}

#[tokio::test]
async fn a_role_without_rights_is_told_so() {
    let harness = PostgresHarness::direct().await;
    let (role, store) = as_role(&harness, "").await;
    let refused = store.claim(&request(10)).await.expect_err("may not even look");
    assert!(matches!(refused, StoreError::Denied(_)), "{refused}");
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

#[tokio::test]
async fn tls_and_a_password_work_and_an_unknown_authority_is_refused() {
    let url = service("PILLARBOX_TEST_POSTGRES_SCRAM_URL");
    let ca = service("PILLARBOX_TEST_CA_FILE");
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
        "nobody knows that authority"
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
