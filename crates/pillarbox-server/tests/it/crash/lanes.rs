//! Lanes move when workers start, stop and die.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use pillarbox_testkit::process::Signal;
use serde_json::Value;
use uuid::Uuid;

use super::fixture::{Fixture, Tuning};
use super::order_databases;
use super::shop::{self, Load, OrderDatabase};
use crate::daemon::Daemon;
use pillarbox_testkit::environment::authority;
use pillarbox_testkit::proxy::{Faults, Proxy};
use pillarbox_testkit::wait::{Load as MachineLoad, until, until_some, until_within};

/// Far longer than a handover takes: a key that continues well before its end was handed over.
const LONG_LEASE: Duration = Duration::from_secs(120);
/// Well before its end. On an idle machine it is a second or two.
const BEFORE_THE_LEASE: Duration = Duration::from_secs(60);
/// What a busy machine may need beyond the lease of a worker that was killed.
const MARGIN: Duration = Duration::from_secs(30);

fn tuning(lease: Duration) -> Tuning {
    Tuning {
        lease,
        more: "[[route]]\nto = \"broker\"\n".to_owned(),
        ..Tuning::short_leases()
    }
}

/// How many lanes each of these has, by `pillarbox workers ls`.
fn lanes(fixture: &Fixture, daemons: &[&Daemon]) -> Option<Vec<u64>> {
    let printed = crate::command::run(
        fixture.folder(),
        &["workers", "ls", "--json", "--database", &fixture.database.url],
    );
    let workers: Vec<Value> = printed
        .success()
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object per line"))
        .collect();
    let of = |worker: Uuid| {
        let found = workers.iter().find(|one| one["id"] == worker.to_string())?;
        found["lanes"].as_u64()
    };
    daemons.iter().map(|daemon| of(daemon.worker()?)).collect()
}

/// Waits until the lanes are shared evenly between these.
async fn until_shared_evenly(fixture: &Fixture, daemons: &[&Daemon], timeout: Duration) {
    let count = u64::try_from(daemons.len()).expect("a few");
    until_within(timeout, "the lanes are shared evenly", async || {
        let lanes = lanes(fixture, daemons).unwrap_or_default();
        // Each backlog has 4,096.
        let all: u64 = lanes.iter().sum();
        let part = all / count;
        all > 0 && all.is_multiple_of(4096) && lanes.iter().all(|lanes| lanes.abs_diff(part) <= part / 8)
    })
    .await;
}

/// Two idle workers with half of the lanes each.
async fn two_idle_workers(
    fixture: &Fixture,
    database: &order_databases::Postgres,
    tuning: &Tuning,
) -> [Daemon; 2] {
    let load = Load::start(database, 1);
    let daemons = [fixture.start(tuning), fixture.start(tuning)];
    until_shared_evenly(fixture, &[&daemons[0], &daemons[1]], Duration::from_secs(60)).await;
    load.stop().await;
    shop::until_done(database, Duration::from_secs(60)).await;
    daemons
}

/// Commits one order for each key, and expects that all are delivered in time.
async fn every_key_continues(database: &order_databases::Postgres, since: Instant, limit: Duration) {
    shop::commit_each_key(database).await;
    shop::until_done(database, Duration::from_secs(120)).await;
    let took = since.elapsed();
    assert!(took <= limit, "the keys continued after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_killed_worker_continue_after_its_lease() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let proxy = Proxy::start_with(authority(fixture.amqp()), Faults::default()).await;
    let tuning = Tuning {
        amqp: Some(proxy.url(fixture.amqp())),
        ..tuning(Tuning::short_leases().lease)
    };
    let [victim, other] = two_idle_workers(&fixture, &database, &tuning).await;
    let worker = victim.worker().expect("it has lanes");
    proxy.mute();
    shop::commit_each_key(&database).await;
    until("the victim has rows in flight", async || {
        // A frozen worker settles nothing between this query and the kill.
        victim.signal(Signal::STOP);
        let is_busy = database.in_flight_of(worker).await > 0;
        if !is_busy {
            victim.signal(Signal::CONT);
        }
        is_busy
    })
    .await;
    let killed = Instant::now();
    victim.kill();
    assert!(
        database.in_flight_of(worker).await > 0,
        "nothing had to be taken over"
    );
    proxy.restore().await;
    every_key_continues(&database, killed, tuning.lease + MARGIN).await;
    other.stop().await;
    fixture.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_stopped_worker_continue_at_once() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let [victim, other] = two_idle_workers(&fixture, &database, &tuning(LONG_LEASE)).await;
    victim.stop().await;
    let stopped = Instant::now();
    every_key_continues(&database, stopped, BEFORE_THE_LEASE).await;
    other.stop().await;
    fixture.remove().await;
}

/// Under load: a range is handed over when none of its rows is in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_joins_has_half_of_the_lanes_within_seconds() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let database = order_databases::Postgres::open(fixture.pool.clone()).await;
    let tuning = tuning(LONG_LEASE);
    let load = Load::start(&database, 2);
    let first = fixture.start(&tuning);
    until_shared_evenly(&fixture, &[&first], Duration::from_secs(60)).await;
    let second = fixture.start(&tuning);
    until_some("the second worker has started", async || second.worker()).await;
    until_shared_evenly(&fixture, &[&first, &second], BEFORE_THE_LEASE).await;
    load.stop().await;
    shop::until_done(&database, Duration::from_secs(60)).await;
    first.stop().await;
    second.stop().await;
    let broker: Vec<Uuid> = fixture
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    assert!(!broker.is_empty(), "there was no load");
    fixture.remove().await;
}

/// Enqueues this many events for each of a hundred keys, with the number of the event of its key as the payload.
async fn enqueue(fixture: &Fixture, destination: Option<&str>, each: i32) {
    sqlx::query(
        "select pillarbox.enqueue(namespace => 'shop', topic => 'orders', ordering_key => 'key-' || k,
           payload => jsonb_build_object('key', k, 'n', n), destination => $1)
         from generate_series(1, $2) as n, generate_series(1, 100) as k order by n, k",
    )
    .bind(destination)
    .bind(each)
    .execute(&fixture.pool)
    .await
    .expect("enqueues");
}

async fn until_delivered(fixture: &Fixture, rows: i64, timeout: Duration) {
    until_within(timeout, "all events are delivered", async || {
        fixture.count("delivered").await == rows
    })
    .await;
}

/// The keys that `pillarbox keys ls` lists, with the reasons.
fn listed_keys(fixture: &Fixture) -> Vec<(String, String)> {
    let arguments = [
        "keys",
        "ls",
        "--json",
        "--limit",
        "1000",
        "--database",
        &fixture.database.url,
    ];
    let printed = crate::command::run(fixture.folder(), &arguments);
    let lines = printed.success();
    let key = |line: &str| {
        let key: Value = serde_json::from_str(line).expect("one JSON object per line");
        let text = |field: &str| key[field].as_str().unwrap_or_default().to_owned();
        (text("ordering_key"), text("reason"))
    };
    lines.lines().map(key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_with_one_destination_each_deliver_all_keys() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let tuning = |destination| Tuning {
        destination,
        ..Tuning::long_leases()
    };
    let mailer = fixture.start(&tuning("mailer"));
    until_some("it has started", async || mailer.worker()).await;
    enqueue(&fixture, Some("broker"), 1).await;
    enqueue(&fixture, Some("mailer"), 1).await;
    until_delivered(&fixture, 100, Duration::from_secs(60)).await;
    let listed = listed_keys(&fixture);
    assert_eq!(listed.len(), 100);
    let reason = "no live worker serves the destination `broker`";
    assert!(listed.iter().all(|(_, why)| why.contains(reason)), "{listed:?}");
    let broker = fixture.start(&tuning("broker"));
    until_delivered(&fixture, 200, Duration::from_secs(60)).await;
    assert_eq!(listed_keys(&fixture), []);
    mailer.stop().await;
    broker.stop().await;
    fixture.remove().await;
}

/// It reaches the database, and so it lives. Only its way to the broker is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_daemon_that_cannot_reach_the_broker_are_delivered_by_others() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let proxy = Proxy::start_with(authority(fixture.amqp()), Faults::default()).await;
    let tuning = tuning(LONG_LEASE);
    let cut_off = Tuning {
        amqp: Some(proxy.url(fixture.amqp())),
        ..tuning.clone()
    };
    let daemons = [fixture.start(&cut_off), fixture.start(&tuning)];
    enqueue(&fixture, Some("broker"), 2).await;
    until_delivered(&fixture, 200, Duration::from_secs(60)).await;
    until_shared_evenly(&fixture, &[&daemons[0], &daemons[1]], BEFORE_THE_LEASE).await;
    proxy.refuse().await;
    enqueue(&fixture, Some("broker"), 3).await;
    enqueue(&fixture, None, 3).await;
    until_delivered(&fixture, 800, BEFORE_THE_LEASE).await;
    for daemon in daemons {
        daemon.stop().await;
    }
    // First deliveries only: what was in flight when the proxy closed may have arrived twice.
    let mut last: HashMap<i64, (usize, i64)> = HashMap::new();
    let mut seen = HashSet::new();
    for message in fixture.queue.read().await {
        if !seen.insert(message.id) {
            continue;
        }
        let number = |field: &str| message.payload[field].as_i64().expect("a number");
        let (key, n) = (number("key"), number("n"));
        // Three calls: 1 and 2, then 1 to 3 twice.
        let (count, before) = last.get(&key).copied().unwrap_or_default();
        let restarts = [2, 5].contains(&count) && n == 1;
        assert!(n == before + 1 || restarts, "{key}: {n} after {before}");
        last.insert(key, (count + 1, n));
    }
    assert_eq!((last.len(), seen.len()), (100, 800));
    fixture.remove().await;
}

/// Rows of `lane_ranges` that statements read and wrote so far.
async fn work_on_lane_ranges(fixture: &Fixture) -> (i64, i64) {
    sqlx::query_as(
        "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0), n_tup_ins + n_tup_upd + n_tup_del
         from pg_stat_user_tables where schemaname = 'pillarbox' and relname = 'lane_ranges'",
    )
    .fetch_one(&fixture.pool)
    .await
    .expect("statistics")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_namespaces_are_delivered_and_then_cost_nothing() {
    let fixture = Fixture::new(MachineLoad::Heavy).await;
    let tuning = Tuning {
        in_flight: 2_000,
        batch: 1_000,
        ..tuning(Duration::from_secs(15))
    };
    let daemons = [fixture.start(&tuning), fixture.start(&tuning)];
    until_some("both have started", async || {
        daemons[0].worker().zip(daemons[1].worker())
    })
    .await;
    let began = Instant::now();
    sqlx::query(
        "select pillarbox.enqueue(namespace => 'tenant-' || n, topic => 'orders', ordering_key => 'k',
           payload => '{}')
         from generate_series(1, 10000) as n",
    )
    .execute(&fixture.pool)
    .await
    .expect("enqueues");
    until_delivered(&fixture, 10_000, Duration::from_secs(180)).await;
    let took = began.elapsed();
    let (read, written) = work_on_lane_ranges(&fixture).await;
    println!("10,000 namespaces: {took:?}, {read} lane ranges read and {written} written");
    // Four ranges a namespace, each inserted, leased and perhaps renewed a few times.
    assert!(written < 200_000, "{written} lane ranges were written");
    until_within(
        Duration::from_secs(120),
        "no namespace has lane ranges",
        async || {
            let ranges: i64 = sqlx::query_scalar("select count(*) from pillarbox.lane_ranges")
                .fetch_one(&fixture.pool)
                .await
                .expect("the database answers");
            ranges == 0
        },
    )
    .await;
    let quiet = async || {
        let before = work_on_lane_ranges(&fixture).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        before == work_on_lane_ranges(&fixture).await
    };
    until_within(Duration::from_secs(60), "five seconds pass without any", quiet).await;
    for daemon in daemons {
        daemon.stop().await;
    }
    fixture.remove().await;
}
