//! `/metrics` of a real daemon: what it shows agrees with the table, and the page lists it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pillarbox_store::Store;
use pillarbox_store::sample::SampleRequest;
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_testkit::wait::until_ok_blocking;
use sqlx::{AssertSqlSafe, Connection, Row};
use uuid::Uuid;

use crate::daemon::Daemon;
use crate::fixture::{Fixture, postgres_url};
use crate::http::request;
use crate::receiver::{Behaviour, Receiver};

const PAGE: &str = include_str!("../../../../docs/operations/metrics.md");

/// A scrape: the value of each series.
type Series = BTreeMap<String, f64>;

fn scrape(daemon: &Daemon) -> (Series, String) {
    let response = daemon.get("/metrics");
    assert_eq!(response.status, 200, "{response:?}");
    assert!(
        response.head.contains("content-type: text/plain; version=0.0.4"),
        "{response:?}"
    );
    let lines = response
        .body
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let series = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    (series.collect(), response.body)
}

/// Waits until the metrics satisfy the condition.
fn wait_for(daemon: &Daemon, what: &str, condition: impl Fn(&Series) -> bool) -> Series {
    until_ok_blocking(what, || {
        let (series, body) = scrape(daemon);
        if condition(&series) { Ok(series) } else { Err(body) }
    })
}

fn value(series: &Series, name: &str) -> f64 {
    *series
        .get(name)
        .unwrap_or_else(|| panic!("no {name} in {series:#?}"))
}

/// The metrics by name: their type and their labels.
fn families(body: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut families: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for line in body.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').expect("a type");
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
            continue;
        }
        let Some((name, rest)) = line.split_once('{') else {
            continue;
        };
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end).filter(|name| families.contains_key(*name)))
            .unwrap_or(name);
        let labels = rest
            .split("=\"")
            .filter_map(|part| part.rsplit(['"', ',', '{']).next());
        let labels = labels.filter(|label| !label.is_empty() && !label.starts_with('}') && *label != "le");
        let family = families
            .get_mut(name)
            .unwrap_or_else(|| panic!("no type of {name}"));
        family.1.extend(labels.map(str::to_owned));
    }
    families
}

/// What the page lists of the daemon's metrics: `| `name` | type | labels | …`.
fn listed() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `pillarbox_"));
    let metrics = rows.map(|line| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells[0].trim_start_matches("| ").trim_matches('`').to_owned();
        let labels = cells[2]
            .split(',')
            .map(|label| label.trim().trim_matches('`').to_owned());
        (
            name,
            (
                cells[1].to_owned(),
                labels.filter(|label| !label.is_empty()).collect(),
            ),
        )
    });
    let of_applications =
        |name: &String| name.starts_with("pillarbox_consumer_") || name == "pillarbox_saga_steps_total";
    metrics.filter(|(name, _)| !of_applications(name)).collect()
}

/// Rows of a query: names and a number.
fn query(fixture: &Fixture, sql: &str) -> Vec<(String, String, i64)> {
    let sql = sql.replace("SCHEMA", fixture.schema());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut connection = sqlx::PgConnection::connect(&postgres_url()).await.unwrap();
        let rows = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        rows.iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect()
    })
}

const ROWS: &str = "
insert into SCHEMA.outbox_events (namespace, topic, payload, destination, ordering_key, status, tenant_id)
  select 'secret_namespace', 't', to_jsonb(case when n = 6 then 'poison' else 'fine' end),
    case when n <= 8 then 'good' when n <= 11 then 'down' when n <= 15 then 'paused' when n = 16 then 'good' end,
    case when n between 6 and 8 then 'secret_key' end,
    case when n = 16 then 'odd' else 'pending' end, 'dddddddd-0000-4000-8000-000000000001'
  from generate_series(1, 18) as n;
insert into SCHEMA.outbox_events (namespace, topic, payload, destination)
  select 'n', 't', '1', 'foreign-' || n from generate_series(1, 1000) as n;
insert into SCHEMA.outbox_events (namespace, topic, payload, destination, status, attempts, locked_until, created_at, updated_at)
  select 'n', 't', '1', 'far', 'processing', 1, now() + interval '1 hour', now() - interval '30 minutes', now() - interval '20 minutes'
  from generate_series(1, 2);
insert into SCHEMA.destinations (name, reason, disabled) values ('paused', 'secret_reason', false);
insert into SCHEMA.importers (adopted_table, owner, leased_until) values ('legacy', gen_random_uuid(), now());
insert into SCHEMA.adopted (adopted_table, row_id, event_id, fingerprint, write_back_pending, rejected)
  select 'legacy', n::text, gen_random_uuid(), 'f', n > 3, n = 5 from generate_series(1, 5) as n;
insert into SCHEMA.sagas (name, id, namespace, topic, status, path, attempt, tries, in_doubt, data, attempt_secret, own_token)
  select 'booking', n::text, 'n', 't', case when n < 3 then 'running' else 'compensating' end, '[]', 1, 1, false, '{}', 's', 's'
  from generate_series(1, 3) as n;";

#[test]
fn each_metric_has_the_value_that_the_table_has_and_the_page_lists_it() {
    let receiver = Receiver::start(Behaviour::RejectsPoison);
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let fixture = Fixture::postgres(&format!(
        "{}[[destination]]\nname = \"down\"\ntype = \"webhook\"\nurl = \"http://{closed}/\"\n\
         [[destination]]\nname = \"paused\"\ntype = \"webhook\"\nurl = \"http://{closed}/\"\n\
         [[route]]\ntopic = \"never\"\nto = \"good\"\n[http]\nops_listen = \"127.0.0.1:0\"\n",
        receiver.destination("good"),
    ));
    fixture.run(&["migrate"]).success();
    fixture.sql(ROWS);
    let daemon = fixture.ready();
    wait_for(&daemon, "the poison is dead", |series| {
        series.get("pillarbox_dead_total{database=\"default\",destination=\"good\"}") == Some(&1.0)
    });
    let dead = query(
        &fixture,
        "select id::text, '', 0::bigint from SCHEMA.outbox_events where status = 'dead'",
    )
    .remove(0)
    .0;
    fixture.run(&["events", "retry", &dead]).success();
    let series = wait_for(
        &daemon,
        "the sample has the manual retry, and the retried row is dead again",
        |series| {
            series.get("pillarbox_manual_retries_total{database=\"default\"}") == Some(&1.0)
                && series.get("pillarbox_dead_total{database=\"default\",destination=\"good\"}") == Some(&2.0)
                && series.get("pillarbox_events{database=\"default\",destination=\"good\",status=\"dead\"}")
                    == Some(&1.0)
                && series.get("pillarbox_breaker_state{database=\"default\",destination=\"down\"}")
                    == Some(&2.0)
                && series
                    .get("pillarbox_events{database=\"default\",destination=\"down\",status=\"pending\"}")
                    == Some(&3.0)
        },
    );
    let counted = query(
        &fixture,
        "select case when destination in ('good', 'down', 'paused', 'unrouted') then destination
             when destination is null then 'none' else 'other' end, case when status = 'odd' then 'unknown' else status end, count(*)
         from SCHEMA.outbox_events where status <> 'delivered' group by 1, 2",
    );
    let total: i64 = counted.iter().map(|(_, _, count)| count).sum();
    for (destination, status, count) in &counted {
        let name = format!(
            "pillarbox_events{{database=\"default\",destination=\"{destination}\",status=\"{status}\"}}"
        );
        assert_eq!(value(&series, &name), *count as f64, "{name}");
    }
    let shown: f64 = series
        .iter()
        .filter(|(name, _)| name.starts_with("pillarbox_events{"))
        .map(|(_, value)| value)
        .sum();
    assert_eq!(shown, total as f64, "and nothing else: {series:#?}");
    for (name, expected) in [
        (
            "attempts_total{database=\"default\",destination=\"good\",outcome=\"delivered\"}",
            5.0,
        ),
        (
            "attempts_total{database=\"default\",destination=\"good\",outcome=\"rejected\"}",
            2.0,
        ),
        ("dead_total{database=\"default\",destination=\"good\"}", 2.0),
        ("destination_up{database=\"default\",destination=\"good\"}", 1.0),
        ("destination_up{database=\"default\",destination=\"down\"}", 0.0),
        ("breaker_state{database=\"default\",destination=\"good\"}", 0.0),
        (
            "destination_paused{database=\"default\",destination=\"paused\",by=\"operator\"}",
            1.0,
        ),
        (
            "destination_paused{database=\"default\",destination=\"paused\",by=\"receiver\"}",
            0.0,
        ),
        ("blocked_keys{database=\"default\"}", 1.0),
        ("stale_processing{database=\"default\"}", 2.0),
        ("workers_alive{database=\"default\"}", 1.0),
        (
            "adopted_rows{database=\"default\",table=\"other\",state=\"in_progress\"}",
            4.0,
        ),
        (
            "adopted_rows{database=\"default\",table=\"other\",state=\"write_back_pending\"}",
            1.0,
        ),
        (
            "adopted_rows{database=\"default\",table=\"other\",state=\"write_back_rejected\"}",
            1.0,
        ),
        (
            "sagas{database=\"default\",saga=\"booking\",status=\"running\"}",
            2.0,
        ),
        (
            "sagas{database=\"default\",saga=\"booking\",status=\"compensating\"}",
            1.0,
        ),
        ("unrouted_total{database=\"default\"}", 2.0),
        ("lost_leases_total{database=\"default\"}", 0.0),
        ("database_up{database=\"default\"}", 1.0),
        (
            "lag_seconds_count{database=\"default\",destination=\"good\"}",
            5.0,
        ),
        (
            "processing_seconds_count{database=\"default\",destination=\"good\"}",
            7.0,
        ),
    ] {
        assert_eq!(value(&series, &format!("pillarbox_{name}")), expected, "{name}");
    }
    let attempts =
        "pillarbox_attempts_total{database=\"default\",destination=\"down\",outcome=\"unavailable\"}";
    assert!(value(&series, attempts) >= 1.0);
    let oldest = value(
        &series,
        "pillarbox_oldest_processing_seconds{database=\"default\"}",
    );
    assert!((1200.0..1300.0).contains(&oldest), "{oldest}");
    let oldest = value(
        &series,
        "pillarbox_oldest_pending_seconds{database=\"default\",destination=\"other\"}",
    );
    assert!((0.1..300.0).contains(&oldest), "{oldest}");
    assert!(value(&series, "pillarbox_sample_age_seconds{database=\"default\"}") < 20.0);

    let (_, body) = scrape(&daemon);
    for secret in [
        "secret",
        "poison",
        "dddddddd",
        "foreign",
        "legacy",
        &dead,
        fixture.schema(),
    ] {
        assert!(!body.contains(secret), "{secret}: {body}");
    }
    assert_eq!(
        families(&body),
        listed(),
        "docs/operations/metrics.md lists what the daemon exports"
    );

    daemon.wait_for_log("answering probes");
    let log = daemon.log();
    let ops = log
        .split("answering probes")
        .nth(1)
        .and_then(|rest| rest.split("http://").nth(1))
        .unwrap();
    let ops: String = ops
        .chars()
        .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
        .collect();
    assert_eq!(families(&request(&ops, "GET", "/metrics").body), listed());

    // Another worker shows the same sample, and takes none of its own.
    let taken = || {
        query(
            &fixture,
            "select worker::text, sample::text, 0::bigint from SCHEMA.samples",
        )
        .remove(0)
    };
    let other = fixture.ready();
    let series = wait_for(&other, "it shows the sample", |series| {
        series.get("pillarbox_events{database=\"default\",destination=\"down\",status=\"pending\"}")
            == Some(&3.0)
    });
    assert_eq!(
        value(&series, "pillarbox_manual_retries_total{database=\"default\"}"),
        1.0
    );
    assert!([daemon.worker(), other.worker()].contains(&taken().0.parse().ok()));
    wait_for(&other, "a later sample has both workers", |series| {
        series.get("pillarbox_workers_alive{database=\"default\"}") == Some(&2.0)
    });
    let began = Instant::now();
    let (_, body) = scrape(&daemon);
    assert!(began.elapsed() < Duration::from_secs(1) && body.len() < 100_000);
    daemon.stop_blocking();
    other.stop_blocking();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_workers_one_takes_a_sample() {
    let schema = pillarbox_testkit::environment::unique_identifier("samples");
    let options = Options {
        schema: schema.clone(),
        ..Options::default()
    };
    let store = Postgres::new(&postgres_url(), options).unwrap();
    store.migrate().await.unwrap();
    let ask = || {
        let request = SampleRequest {
            worker: Uuid::new_v4(),
            destinations: vec!["a".to_owned()],
        };
        let store = store.clone();
        async move { store.sample(&request).await.unwrap().unwrap() }
    };
    let first = join_all((0..8).map(|_| ask())).await;
    let takers = first.iter().filter(|sampled| sampled.sample.is_some()).count();
    assert!(takers >= 1, "{first:?}");
    let later = join_all((0..8).map(|_| ask())).await;
    let due: Vec<Duration> = later.iter().map(|sampled| sampled.due_in).collect();
    let spread = due
        .iter()
        .max()
        .unwrap()
        .saturating_sub(*due.iter().min().unwrap());
    assert!(
        spread < Duration::from_secs(2),
        "all show the same sample: {later:?}"
    );
    assert!(
        later
            .iter()
            .all(|sampled| sampled.sample == later[0].sample && sampled.sample.is_some())
    );
    assert!(later.iter().all(|sampled| sampled.age < Duration::from_secs(10)));
    let mut connection = sqlx::PgConnection::connect(&postgres_url()).await.unwrap();
    let drop = AssertSqlSafe(format!("drop schema {schema} cascade"));
    sqlx::raw_sql(drop).execute(&mut connection).await.unwrap();
}

#[test]
fn a_database_that_cannot_be_reached_is_down() {
    let fixture = Fixture::sqlite("");
    fixture.write(
        "[database]\nurl = \"postgres://nobody@127.0.0.1:1/none\"\n[[destination]]\nname = \"log\"\ntype = \"log\"\n[[route]]\nto = \"log\"\n",
    );
    let daemon = fixture.daemon(&[]);
    daemon.wait_for_log("database unavailable");
    let (series, _) = scrape(&daemon);
    assert_eq!(value(&series, "pillarbox_database_up{database=\"default\"}"), 0.0);
    daemon.stop_blocking();
}

#[test]
fn a_file_has_the_same_metrics() {
    let fixture = Fixture::sqlite(
        "[[destination]]\nname = \"log\"\ntype = \"log\"\n[[route]]\ntopic = \"orders\"\nto = \"log\"\n",
    );
    fixture.run(&["migrate"]).success();
    fixture.enqueue(&["shop", "orders", "1"]);
    fixture.enqueue(&["shop", "unknown", "1"]);
    let daemon = fixture.ready();
    let series = wait_for(&daemon, "the sample shows the unrouted row", |series| {
        series.get("pillarbox_events{database=\"default\",destination=\"unrouted\",status=\"pending\"}")
            == Some(&1.0)
            && series.get("pillarbox_workers_alive{database=\"default\"}") == Some(&1.0)
    });
    assert_eq!(
        value(
            &series,
            "pillarbox_attempts_total{database=\"default\",destination=\"log\",outcome=\"delivered\"}"
        ),
        1.0
    );
    assert_eq!(
        value(
            &series,
            "pillarbox_events{database=\"default\",destination=\"log\",status=\"pending\"}"
        ),
        0.0
    );
    let (_, body) = scrape(&daemon);
    let listed: BTreeSet<String> = listed().into_keys().collect();
    let mut shown: BTreeSet<String> = families(&body).into_keys().collect();
    shown.insert("pillarbox_sagas".to_owned()); // only where there are some
    assert_eq!(shown, listed);
    daemon.stop_blocking();
}
