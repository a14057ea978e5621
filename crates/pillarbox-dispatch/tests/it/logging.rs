//! An event that fails, ends or blocks others is in the log, and a flood of failures is not.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox::Outcome;
use pillarbox_store::store::Settlement;
use pillarbox_store::{Operate, Store, Verdict};
use pillarbox_testkit::CapturedLogs;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::captured_logs::Line;
use pillarbox_testkit::fakes::FakeSink;
use tokio::time::Instant;
use tracing::Level;

use crate::fixture::{Fixture, destination, event, keyed, ms, policy, route, s, until};
use crate::suspects::{lone_suspects, taking};

/// The fields of a line, without those that differ from run to run.
fn fields(line: &Line) -> BTreeMap<&str, &str> {
    let fields = line.fields.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_str()));
    fields.filter(|(name, _)| *name != "event_id").collect()
}

#[tokio::test(start_paused = true)]
async fn every_failed_attempt_is_a_warning_and_a_dead_event_an_error() {
    let fixture = Fixture::new();
    let log = CapturedLogs::start();
    let sink = FakeSink::answering(|_| Outcome::retry("server\0error"));
    let worker = fixture.start_with(vec![destination("there", &sink).policy(policy(3))], vec![]);
    let id = fixture.enqueue(event());
    fixture.until(1, "dead").await;
    worker.stop().await;

    let failed = log.with("delivery failed, will retry");
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed.iter().all(|line| line.level == Level::WARN));
    assert!(
        failed
            .iter()
            .all(|line| line.fields["event_id"] == id.to_string())
    );
    assert_eq!(
        fields(&failed[1]),
        BTreeMap::from([
            ("destination", "there"),
            ("attempt", "2"),
            ("max_attempts", "3"),
            ("error", "server\u{FFFD}error"),
            ("retry_in", "2s"),
        ])
    );
    let dead = log.with("event is dead");
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(
        (dead[0].level, &dead[0].fields["attempt"]),
        (Level::ERROR, &"3".to_owned())
    );
    assert_eq!(dead[0].fields["event_id"], id.to_string());
    assert!(log.with("ordering key blocked").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_blocked_key_is_an_error_with_its_name() {
    let fixture = Fixture::new();
    let log = CapturedLogs::start();
    let sink = FakeSink::answering(|_| Outcome::reject("bad request"));
    let worker = fixture.start(&sink);
    let id = fixture.enqueue(keyed("order-7"));
    fixture.until(1, "dead").await;
    worker.stop().await;
    let blocked = log.with("ordering key blocked");
    assert_eq!(blocked.len(), 1, "{blocked:?}");
    assert_eq!(
        (blocked[0].level, blocked[0].fields["event_id"].as_str()),
        (Level::ERROR, id.to_string().as_str())
    );
    assert_eq!(
        fields(&blocked[0]),
        BTreeMap::from([
            ("destination", "there"),
            ("namespace", "shop"),
            ("ordering_key", "order-7")
        ])
    );
    assert_eq!(log.with("event is dead").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_dead_events_is_ten_lines_a_second_and_a_count() {
    let fixture = Fixture::new();
    let log = CapturedLogs::start();
    let sink = FakeSink::answering(|_| Outcome::reject("bad request"));
    fixture.enqueue_many(2_000);
    let worker = fixture.start(&sink);
    fixture.until(2_000, "dead").await;
    tokio::time::sleep(s(2)).await;
    worker.stop().await;
    let dead = log.with("event is dead");
    assert!((10..=40).contains(&dead.len()), "{} lines", dead.len());
    let counted = dead
        .iter()
        .chain(&log.with("log lines suppressed"))
        .fold(0, |sum, line| {
            let suppressed = line
                .fields
                .get("suppressed")
                .map_or(0, |n| n.parse().expect("a number"));
            sum + suppressed
        });
    assert_eq!(dead.len() + counted, 2_000, "every line is logged or counted");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_ends() {
    let fixture = Fixture::new();
    let log = CapturedLogs::start();
    let own: std::sync::Arc<std::sync::OnceLock<FakeSink>> = std::sync::Arc::default();
    let inner = std::sync::Arc::clone(&own);
    let sink = FakeSink::answering(move |_| match inner.get().is_some_and(FakeSink::is_away) {
        true => Outcome::unavailable("connection refused"),
        false => Outcome::Delivered,
    });
    assert!(own.set(sink.clone()).is_ok());
    sink.set_away(true);
    let worker = fixture.start(&sink);
    fixture.enqueue_many(100);
    tokio::time::sleep(s(610)).await;
    assert_eq!(log.with("breaker opened").len(), 1);
    let reminders = log.with("breaker still open");
    assert_eq!(reminders.len(), 10, "{reminders:?}");
    assert_eq!(reminders[0].fields["reason"], "connection refused");
    assert!(
        log.with("delivery failed, will retry").is_empty(),
        "no event is to blame"
    );
    sink.set_away(false);
    fixture.until(100, "delivered").await;
    until("it is logged", || log.with("breaker closed").len() == 1).await;
    assert_eq!(log.with("event delivered").len(), 100);
    assert!(
        log.with("event delivered")
            .iter()
            .all(|line| line.level == Level::DEBUG)
    );
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_logged_once_a_minute_if_there_was_something_to_do() {
    let fixture = Fixture::new();
    let log = CapturedLogs::start();
    let sink = FakeSink::answering(|delivery| match delivery.event.headers.is_empty() {
        true => Outcome::Delivered,
        false => Outcome::reject("bad request"),
    });
    let worker = fixture.start(&sink);
    fixture.enqueue_many(30);
    fixture.enqueue(event().header("bad", "yes"));
    fixture.enqueue(event().deliver_at(crate::fixture::EPOCH + time::Duration::hours(9)));
    tokio::time::sleep(s(3600)).await;
    worker.stop().await;
    let lines = log.with("events processed");
    assert_eq!(lines.len(), 1, "an hour with nothing to do is silent: {lines:?}");
    let counts: Vec<&str> = ["processed", "failed", "pending"]
        .iter()
        .map(|name| lines[0].fields[*name].as_str())
        .collect();
    assert_eq!((lines[0].level, counts), (Level::INFO, vec!["30", "1", "1"]));
    let claimed = log.with("batch claimed");
    assert!(claimed.iter().all(|line| line.level == Level::DEBUG));
    let rows: usize = claimed
        .iter()
        .map(|line| line.fields["batch_size"].parse::<usize>().expect("a number"))
        .sum();
    assert_eq!(rows, 31);
}

#[tokio::test(start_paused = true)]
async fn rows_that_name_an_unknown_destination_are_logged_once_an_hour() {
    let fixture = Fixture::new();
    let log = CapturedLogs::start();
    let worker = fixture.start(&FakeSink::willing());
    for n in 0..150 {
        fixture.enqueue(event().destination("misspelt"));
        fixture.enqueue(event().destination(format!("tenant-{n}")));
    }
    tokio::time::sleep(s(30)).await;
    let lines = log.with("events wait for a destination that is not configured");
    assert_eq!(lines.len(), 100, "bounded");
    let of = |name: &str| {
        lines
            .iter()
            .filter(|line| line.fields["destination"] == name)
            .count()
    };
    assert_eq!(of("misspelt"), 1);
    assert!(
        lines
            .iter()
            .all(|line| line.level == Level::WARN && line.fields["namespace"] == "shop")
    );
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_of_a_dead_worker_and_unrouted_dead_events_are_logged() {
    let mut fixture = Fixture::new();
    let log = CapturedLogs::start();
    let hanging = FakeSink::hanging();
    let worker = fixture.start(&hanging);
    fixture.enqueue_many(3);
    until("they are being sent", || hanging.running() == 3).await;
    worker.kill().await;
    let worker = fixture.start(&FakeSink::willing());
    fixture.until(3, "delivered").await;
    worker.stop().await;
    let reclaimed = log.with("expired leases reclaimed");
    let rows: usize = reclaimed
        .iter()
        .map(|line| line.fields["rows"].parse::<usize>().expect("a number"))
        .sum();
    assert_eq!((rows, reclaimed[0].level), (3, Level::INFO));

    fixture.settings.unrouted = pillarbox_dispatch::Unrouted::Dead;
    let sink = FakeSink::willing();
    let worker = fixture.start_with(
        vec![destination("there", &sink)],
        vec![crate::fixture::route("carts", "there")],
    );
    let id = fixture.enqueue(event());
    fixture.until(1, "dead").await;
    worker.stop().await;
    let dead = log.with("event is dead");
    assert_eq!((dead.len(), dead[0].level), (1, Level::ERROR));
    assert_eq!(dead[0].fields["event_id"], id.to_string());
}

/// Checks that these lines were logged for this many times, at most ten in a second.
fn are_limited(lines: &[Line], times: usize, elapsed: Duration) {
    let most = 10 * (usize::try_from(elapsed.as_secs()).expect("a small number") + 1);
    assert!(times > 2 * most, "{times} in {elapsed:?} need a limit");
    assert!(
        (10..=most).contains(&lines.len()),
        "{} lines in {elapsed:?}",
        lines.len()
    );
    let suppressed = lines.iter().filter_map(|line| line.field("suppressed"));
    let suppressed: usize = suppressed
        .map(|count| count.parse::<usize>().expect("a number"))
        .sum();
    assert!(
        (1..=times - lines.len()).contains(&suppressed),
        "{suppressed} suppressed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_reclaimed_rows_is_ten_lines_a_second() {
    let fixture = Fixture::new();
    lone_suspects(&fixture, "there", 1_000).await;
    let log = CapturedLogs::start();
    let sink = taking(ms(5));
    let worker = fixture.start(&sink);
    until("the first is tried", || !sink.ledger().is_empty()).await;
    let began = Instant::now();
    fixture.until(1_000, "delivered").await;
    worker.stop().await;
    are_limited(&log.with("expired leases reclaimed"), 1_000, began.elapsed());
}

/// Every row is settled behind the worker's back, as after a lease that expired, and at another time than the others.
#[tokio::test(start_paused = true)]
async fn a_flood_of_lost_leases_is_ten_lines_a_second() {
    const ROWS: u64 = 200;
    let fixture = Fixture::new();
    let outbox = fixture.outbox.clone();
    let sink = FakeSink::scripted(move |delivery| {
        let outbox = outbox.clone();
        async move {
            tokio::time::sleep(ms(15) * u32::try_from(delivery.seq).expect("a small number")).await;
            let row = outbox.show(&OPERATOR, delivery.id).await.expect("memory store");
            let worker = row.and_then(|row| row.locked_by).expect("a claimed row");
            let settlement = Settlement {
                id: delivery.id,
                claim: delivery.claim,
                verdict: Verdict::Delivered,
                destination: None,
                max_attempts: None,
                unordered: false,
                keep: true,
            };
            let settled = outbox.settle(worker, &[settlement]).await;
            assert!(settled.expect("memory store").is_empty());
            Outcome::Delivered
        }
    });
    for _ in 0..ROWS {
        fixture.enqueue(event());
    }
    let log = CapturedLogs::start();
    let there = destination("there", &sink).concurrency(1_000);
    let worker = fixture.start_with(vec![there], vec![]);
    let began = Instant::now();
    until("all are lost", || worker.counters.snapshot().lost == ROWS).await;
    worker.stop().await;
    let lines = log.with("lease lost before settling, events may be sent again");
    are_limited(
        &lines,
        log.with("rows lost before settling").len(),
        began.elapsed(),
    );
}

#[tokio::test(start_paused = true)]
async fn a_row_that_a_sweep_makes_dead_is_logged_and_so_is_its_key() {
    let mut fixture = Fixture::new();
    fixture.settings.max_attempts = 1;
    let log = CapturedLogs::start();
    let hanging = FakeSink::hanging();
    let worker = fixture.start(&hanging);
    let id = fixture.enqueue(keyed("order-7"));
    until("it is being sent", || hanging.running() == 1).await;
    worker.kill().await;
    let worker = fixture.start(&FakeSink::willing());
    fixture.until(1, "dead").await;
    worker.stop().await;
    for message in ["event is dead", "ordering key blocked"] {
        let lines = log.with(message);
        assert_eq!((lines.len(), lines[0].level), (1, Level::ERROR), "{lines:?}");
        assert_eq!(lines[0].fields["event_id"], id.to_string());
    }
    assert_eq!(
        log.with("ordering key blocked")[0].fields["ordering_key"],
        "order-7"
    );
}

/// Rediver's `success_count`. One line for the event, after its last row has ended.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_dead_at_some_destinations_is_logged_once_all_have_ended() {
    let fixture = Fixture::new();
    let log = CapturedLogs::start();
    let slow = FakeSink::answering(|delivery| match delivery.attempts {
        1 => Outcome::retry("not yet"),
        _ => Outcome::Delivered,
    });
    let rejecting = FakeSink::answering(|_| Outcome::reject("no\0such channel"));
    let destinations = vec![
        destination("chat", &rejecting),
        destination("mail", &FakeSink::willing()),
        destination("sms", &slow),
    ];
    let topic = event().topic.clone();
    let routes = ["chat", "mail", "sms"].map(|name| route(&topic, name)).to_vec();
    let worker = fixture.start_with(destinations, routes);
    let id = fixture.enqueue(event());
    fixture.until(1, "dead").await;
    let message = "event is dead at some destinations";
    assert!(log.with(message).is_empty(), "one row is retried");
    fixture.until(2, "delivered").await;
    until("it is logged", || !log.with(message).is_empty()).await;
    worker.stop().await;
    let lines = log.with(message);
    assert_eq!((lines.len(), lines[0].level), (1, Level::WARN));
    assert_eq!(lines[0].fields["event_id"], id.to_string());
    assert_eq!(
        fields(&lines[0]),
        BTreeMap::from([
            ("success_count", "2"),
            ("dead_count", "1"),
            ("errors", "[\"chat: no\u{FFFD}such channel\"]"),
        ])
    );
}
