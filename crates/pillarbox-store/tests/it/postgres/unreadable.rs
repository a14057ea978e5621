//! Rows that cannot be read: the table's constraints reject them, and without constraints they stop no other row.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_store::operate::Filter;
use pillarbox_store::store::{ClaimRequest, LaneRequest, Parked, Share, SweepRequest, Take};
use pillarbox_store::stores::postgres::Duty;
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::harness::PostgresHarness;
use super::privileges::{drop_role, on_duty};
use super::producer::{request, share};

/// 75 kB of JSON that are more than 1 GB of text. The database fails after some seconds.
const HUGE: &str = "('[' || repeat('1e131071,', 8300) || '1]')::jsonb";

const NO_ROWS: [Uuid; 0] = [];

async fn put(harness: &PostgresHarness, events: impl IntoIterator<Item = Event>) -> Vec<Uuid> {
    let events: Vec<Event> = events.into_iter().collect();
    harness.enqueue(&events).await.expect("enqueues");
    events.iter().map(|event| event.id).collect()
}

fn event() -> Event {
    Event::new("shop", "orders")
}

async fn corrupt(harness: &PostgresHarness, id: Uuid, set: &str) {
    harness.drop_constraints().await;
    let update = format!("update pillarbox.outbox_events set {set} where id = '{id}'");
    assert_eq!(harness.execute(&update).await, 1);
}

async fn claim(harness: &PostgresHarness, request: &ClaimRequest) -> Vec<Uuid> {
    let claimed = harness.store.claim(request).await.expect("claims");
    claimed.iter().map(|delivery| delivery.id).collect()
}

/// The status and the error of a row.
async fn state(harness: &PostgresHarness, id: Uuid) -> (String, Option<String>) {
    let row = harness
        .store
        .show(&OPERATOR, id)
        .await
        .expect("shows")
        .expect("is there");
    (row.status, row.last_error)
}

fn dead(code: &str) -> (String, Option<String>) {
    ("dead".to_owned(), Some(format!("unreadable: {code}")))
}

#[tokio::test]
async fn a_plain_insert_with_an_unreadable_value_is_rejected() {
    let harness = PostgresHarness::direct().await;
    let values = [
        ("created_at", "'infinity'"),
        ("created_at", "'-infinity'"),
        ("created_at", "'10000-01-01 00:00:00+00'"),
        ("created_at", "'0001-12-31 23:59:59+00 BC'"),
        ("next_attempt_at", "'infinity'"),
        ("next_attempt_at", "'-infinity'"),
        ("locked_until", "'infinity'"),
        ("updated_at", "'-infinity'"),
        ("delivered_at", "'20000-01-01'"),
        ("attempts", "-1"),
        ("ordering_key", "''"),
        ("destination", "''"),
    ];
    for (column, value) in values {
        let insert = harness.sql(&format!(
            "insert into pillarbox.outbox_events (namespace, topic, payload, {column}) values ('shop', 'a', '{{}}', {value})"
        ));
        let refused = sqlx::raw_sql(AssertSqlSafe(insert)).execute(&harness.pool).await;
        let error = refused.expect_err(column);
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(|code| code.into_owned()));
        assert_eq!(code.as_deref(), Some("23514"), "{column} = {value}: {error}");
    }
    harness.clean_up().await;
}

/// The JSON is measured before it is read, and is compressed in the table.
#[tokio::test]
async fn a_row_that_is_more_text_than_the_database_can_write_becomes_dead() {
    let harness = PostgresHarness::direct().await;
    let ids = put(&harness, (0..1000).map(|_| event())).await;
    corrupt(&harness, ids[500], &format!("payload = {HUGE}")).await;
    let claimed = claim(&harness, &request(1000)).await;
    assert_eq!(claimed.len(), 999);
    assert!(!claimed.contains(&ids[500]));
    assert_eq!(state(&harness, ids[500]).await, dead("54000"));
    let filter = Filter {
        limit: 1000,
        ..Filter::default()
    };
    assert_eq!(
        harness.store.list(&OPERATOR, &filter).await.expect("lists").len(),
        1000
    );
    harness.clean_up().await;
}

/// 400 bytes of JSON that are 5 MB of text: together they fit neither into memory nor into the time of a statement.
#[tokio::test]
async fn rows_that_are_far_more_text_than_they_are_stored_as_are_claimed_few_at_a_time() {
    let harness = PostgresHarness::direct().await;
    let mut ids = put(&harness, (0..20).map(|_| event())).await;
    let longer =
        "update pillarbox.outbox_events set payload = ('[' || repeat('1e131071,', 40) || '1]')::jsonb";
    assert_eq!(harness.execute(longer).await, 20);
    let mut claimed = Vec::new();
    for _ in 0..100 {
        let asked = ClaimRequest {
            max_bytes: 1024 * 1024,
            ..request(1000)
        };
        let some = claim(&harness, &asked).await;
        assert!(some.len() <= 4, "{} rows of 5 MB", some.len());
        claimed.extend(some);
    }
    claimed.sort();
    ids.sort();
    assert_eq!(claimed, ids);
    harness.clean_up().await;
}

#[tokio::test]
async fn many_unreadable_rows_become_dead_together() {
    for harness in [
        PostgresHarness::direct().await,
        PostgresHarness::behind_pgbouncer().await,
    ] {
        let ids = put(&harness, (0..100).map(|_| event())).await;
        let times = ["'infinity'", "'-infinity'", "'20000-01-01'", "'4000-01-01 BC'"];
        for (id, time) in ids.iter().skip(10).step_by(10).zip(times) {
            corrupt(&harness, *id, &format!("created_at = {time}")).await;
        }
        corrupt(
            &harness,
            ids[60],
            "next_attempt_at = '-infinity', updated_at = 'infinity', delivered_at = 'infinity'",
        )
        .await;
        let stats = harness.store.stats(&OPERATOR, &Scope::All).await.expect("stats");
        assert_eq!(stats.pending, 100);
        assert!(
            stats.oldest_pending_seconds.is_some_and(|age| age < 3600.0),
            "{stats:?}"
        );
        let claimed = claim(&harness, &request(1000)).await;
        assert_eq!(claimed.len(), 96);
        assert!(
            claimed.contains(&ids[60]),
            "what a claim does not read harms nothing"
        );
        for n in [10, 20, 30, 40] {
            assert_eq!(state(&harness, ids[n]).await, dead("22008"));
        }
        assert_eq!(
            harness
                .store
                .stats(&OPERATOR, &Scope::All)
                .await
                .expect("stats")
                .dead,
            4
        );
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn the_run_of_a_key_ends_at_an_unreadable_row() {
    let harness = PostgresHarness::direct().await;
    let keyed = |key: &str| event().ordering_key(key);
    let ids = put(&harness, [keyed("a"), keyed("a"), keyed("a"), keyed("b")]).await;
    corrupt(&harness, ids[1], "created_at = 'infinity'").await;
    let mine = ClaimRequest {
        take: Take::Keyed(vec![share(100)]),
        ..request(0)
    };
    let lanes = LaneRequest {
        worker: mine.worker,
        backlogs: vec![share(1).backlog],
        ranges: 32,
        new_ranges: 32,
        lease: Duration::from_secs(60),
        release: Vec::new(),
    };
    harness.store.lease_lanes(&lanes).await.expect("lanes");
    assert_eq!(claim(&harness, &mine).await, [ids[0], ids[3]]);
    assert_eq!(state(&harness, ids[1]).await, dead("22008"));
    harness
        .execute("update pillarbox.outbox_events set status = 'delivered' where status = 'processing'")
        .await;
    assert_eq!(claim(&harness, &mine).await, NO_ROWS, "the key is blocked");
    assert!(harness.store.take_unreadable(), "the dispatcher learns of it");
    assert!(!harness.store.take_unreadable(), "once");
    let blocked = harness
        .store
        .blocked(&OPERATOR, &Scope::All, 10)
        .await
        .expect("blocked keys");
    let [key] = &blocked[..] else {
        panic!("{blocked:?}")
    };
    assert_eq!(
        (key.head, key.reason.as_deref(), key.behind),
        (ids[1], Some("unreadable: 22008"), 1)
    );
    // What `on_dead = "continue"` does.
    let stubs = harness
        .store
        .parked(Parked::Blocking, &Scope::All, None, 10)
        .await
        .expect("parked");
    assert_eq!(stubs.iter().map(|stub| stub.id).collect::<Vec<_>>(), [ids[1]]);
    harness
        .store
        .unpark(Parked::Blocking, &[ids[1]])
        .await
        .expect("unparks");
    assert_eq!(claim(&harness, &mine).await, [ids[2]]);
    harness.clean_up().await;
}

/// A claim of rows with a key reads several times, and a few rows of each bucket of lanes.
#[tokio::test]
async fn an_unreadable_row_in_another_bucket_than_the_first_ends_no_claim() {
    let harness = PostgresHarness::direct().await;
    put(
        &harness,
        (0..1000).map(|n| event().ordering_key(format!("key-{n}"))),
    )
    .await;
    let first = harness.sql(
        "select id from pillarbox.outbox_events
         where lane >> 7 in (1, 2, 5) and seq in (
           select min(seq) from pillarbox.outbox_events group by lane >> 7)",
    );
    let unreadable: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(first))
        .fetch_all(&harness.pool)
        .await
        .expect("looks");
    assert_eq!(unreadable.len(), 3);
    for id in &unreadable {
        corrupt(&harness, *id, "created_at = 'infinity'").await;
    }
    let mut mine = ClaimRequest {
        take: Take::Keyed(vec![share(20)]),
        ..request(0)
    };
    let lanes = LaneRequest {
        worker: mine.worker,
        backlogs: vec![share(1).backlog],
        ranges: 32,
        new_ranges: 32,
        lease: Duration::from_secs(60),
        release: Vec::new(),
    };
    harness.store.lease_lanes(&lanes).await.expect("lanes");
    for _ in 0..4 {
        mine.claim = Uuid::new_v4();
        assert_eq!(claim(&harness, &mine).await.len(), 20);
    }
    for id in unreadable {
        assert_eq!(state(&harness, id).await, dead("22008"));
    }
    harness.clean_up().await;
}

/// Only rows that have waited, fair shares and suspects have statements of their own.
#[tokio::test]
async fn every_kind_of_claim_ends_unreadable_rows() {
    let harness = PostgresHarness::direct().await;
    let ids = put(&harness, (0..4).map(|_| event())).await;
    corrupt(&harness, ids[1], "created_at = 'infinity'").await;
    let fair = ClaimRequest {
        take: Take::Free(vec![Share {
            fair: true,
            ..share(2)
        }]),
        ..request(0)
    };
    // By the time since they wait; the unreadable one counts as fresh.
    let claimed = claim(&harness, &fair).await;
    assert_eq!(claimed, [ids[0], ids[2]]);
    assert_eq!(state(&harness, ids[1]).await, dead("22008"));

    corrupt(
        &harness,
        ids[2],
        "created_at = '-infinity', own_lease = true, locked_until = now() - interval '1 hour'",
    )
    .await;
    corrupt(&harness, ids[0], "own_lease = true, locked_until = '-infinity'").await;
    let sweep = SweepRequest {
        worker: fair.worker,
        scope: Scope::All,
        max_attempts: 25,
        grace: Duration::ZERO,
        excluded: Vec::new(),
    };
    assert!(harness.store.sweep(&sweep).await.expect("sweeps").suspects);
    let suspects = ClaimRequest {
        take: Take::Suspects(10),
        ..request(0)
    };
    assert_eq!(claim(&harness, &suspects).await, [ids[0]]);
    assert_eq!(state(&harness, ids[2]).await, dead("22008"));

    corrupt(
        &harness,
        ids[0],
        "created_at = 'infinity', own_lease = true, locked_until = '-infinity', attempts = 2",
    )
    .await;
    let alone = ClaimRequest {
        take: Take::LoneSuspect,
        ..request(0)
    };
    assert_eq!(claim(&harness, &alone).await, NO_ROWS);
    assert_eq!(state(&harness, ids[0]).await, dead("22008"));
    harness.clean_up().await;
}

#[tokio::test]
async fn operators_see_a_row_with_unreadable_headers() {
    let harness = PostgresHarness::direct().await;
    let ids = put(
        &harness,
        (0..3).map(|_| event().header("a", "b").ordering_key("k")),
    )
    .await;
    let headers = format!("headers = jsonb_build_object('huge', {HUGE})");
    corrupt(&harness, ids[1], &format!("{headers}, status = 'dead'")).await;
    let rows = harness
        .store
        .list(&OPERATOR, &Filter::default())
        .await
        .expect("lists");
    let seen: Vec<(Uuid, usize)> = rows.iter().map(|row| (row.id, row.event.headers.len())).collect();
    assert_eq!(seen, [(ids[2], 1), (ids[1], 0), (ids[0], 1)]);
    assert_eq!(
        harness
            .store
            .show(&OPERATOR, ids[1])
            .await
            .expect("shows")
            .expect("is there")
            .id,
        ids[1]
    );
    let parked = harness
        .store
        .parked(Parked::Blocking, &Scope::All, None, 10)
        .await
        .expect("parked");
    assert_eq!(parked.len(), 1);
    harness.clean_up().await;
}

/// JSON that this program cannot parse is sent as it stands.
#[tokio::test]
async fn a_number_that_no_float_holds_is_sent_and_shown_without_payload() {
    let harness = PostgresHarness::direct().await;
    let ids = put(&harness, [event()]).await;
    corrupt(&harness, ids[0], "payload = '[1e400]'").await;
    assert_eq!(claim(&harness, &request(1)).await, ids);
    assert_eq!(
        harness
            .store
            .show(&OPERATOR, ids[0])
            .await
            .expect("shows")
            .expect("is there")
            .payload,
        None
    );
    harness.clean_up().await;
}

/// The database fails one claim, and then one read of its row, as it does for a moment while others change the schema.
#[tokio::test]
async fn a_failure_of_the_moment_ends_no_row() {
    let harness = PostgresHarness::direct().await;
    let ids = put(&harness, [event()]).await;
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    harness
        .execute(
            "create sequence pillarbox.claims; create sequence pillarbox.reads;
            create function pillarbox.fail_once() returns boolean language plpgsql security definer as $$
            begin
              if current_query() like '%given (wanted, position)%' then
                if nextval('pillarbox.reads') = 1 then raise 'for a moment' using errcode = 'XX000'; end if;
              elsif current_query() like '%as contested%' then
                if nextval('pillarbox.claims') = 1 then raise 'for a moment' using errcode = 'XX000'; end if;
              end if;
              return true;
            end $$;
            create policy momentary on pillarbox.outbox_events using (pillarbox.fail_once());
            alter table pillarbox.outbox_events enable row level security",
        )
        .await;
    let claimed = store.claim(&request(10)).await.expect("claims");
    assert_eq!(claimed.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
    let tried: (i64, i64) =
        sqlx::query_as(AssertSqlSafe(harness.sql(
            "select (select last_value from pillarbox.claims), (select last_value from pillarbox.reads)",
        )))
        .fetch_one(&harness.pool)
        .await
        .expect("counts");
    assert!(tried.0 > 1 && tried.1 > 1, "both failed once: {tried:?}");
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}
