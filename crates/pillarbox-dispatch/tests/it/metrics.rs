//! What a worker exports, as the recorder of an application sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pillarbox::Outcome;
use pillarbox_store::Operate;
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::Recorder;
use pillarbox_testkit::fakes::{FakeSink, Fault};

use crate::fixture::{Fixture, destination, event, keyed, route, s, until};
use crate::leases::{slow, steal, suspendable};

/// The values of all metrics, by name and labels.
fn values(recorder: &Recorder) -> BTreeMap<String, f64> {
    let all = recorder.values().into_iter();
    all.map(|(name, value)| {
        let name = name.replace("database=\"default\"", "").replace("pillarbox_", "");
        let words: Vec<&str> = name
            .split(['{', '}', ',', '"'])
            .filter(|word| !word.is_empty() && !word.ends_with('='))
            .collect();
        (words.join(" "), value)
    })
    .collect()
}

fn are(values: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        assert_eq!(values.get(*name), Some(value), "{name}: {values:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_of_the_application_sees_what_became_of_each_attempt() {
    let recorder = Recorder::default();
    let fixture = Fixture::new();
    let sink = FakeSink::answering(|delivery| match delivery.event.topic.as_str() {
        "rejected" => Outcome::reject("no such order"),
        "retried" if delivery.attempts < 3 => Outcome::retry("busy"),
        _ => Outcome::Delivered,
    });
    let worker = metrics::with_local_recorder(&recorder, || {
        let routes = ["orders", "rejected", "retried"].map(|topic| route(topic, "there"));
        fixture.start_with(vec![destination("there", &sink)], routes.into())
    });
    fixture.enqueue_many(4);
    let dead = fixture.enqueue(pillarbox::Event::new("shop", "rejected").ordering_key("k"));
    fixture.enqueue(pillarbox::Event::new("shop", "rejected").ordering_key("k"));
    fixture.enqueue(pillarbox::Event::new("shop", "retried"));
    fixture.enqueue(pillarbox::Event::new("shop", "no route"));
    fixture.until(5, "delivered").await;
    let retried = fixture
        .outbox
        .retry(&OPERATOR, &[dead])
        .await
        .expect("memory store");
    assert_eq!(retried, [dead]);
    until("it is dead again", || worker.counters.snapshot().dead == 2).await;
    tokio::time::sleep(s(20)).await;
    let values = values(&recorder);
    are(
        &values,
        &[
            ("attempts_total there delivered", 5.0),
            ("attempts_total there rejected", 2.0),
            ("attempts_total there retry", 2.0),
            ("retries_total there", 2.0),
            ("dead_total there", 2.0),
            ("unrouted_total", 1.0),
            ("lag_seconds there", 5.0),
            ("processing_seconds there", 9.0),
            ("manual_retries_total", 1.0),
            ("lost_leases_total", 0.0),
            ("store_errors_total", 0.0),
            ("database_up", 1.0),
            ("destination_up there", 1.0),
            ("breaker_state there", 0.0),
            // What the table holds.
            ("events there dead", 1.0),
            ("events there pending", 1.0),
            ("events unrouted pending", 1.0),
            ("events other pending", 0.0),
            ("blocked_keys", 1.0),
            ("workers_alive", 1.0),
        ],
    );
    assert!(
        values["claim_rows"] >= 1.0 && values["settle_seconds"] >= 1.0,
        "{values:#?}"
    );
    assert!(values["sample_age_seconds"] < 16.0, "{values:#?}");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_destination_and_of_the_database_shows() {
    let is_down = Arc::new(AtomicBool::new(false));
    let plan = Arc::clone(&is_down);
    let fixture = Fixture::failing(move |_| match plan.load(Ordering::SeqCst) {
        true => Fault::Before,
        false => Fault::None,
    });
    let recorder = Recorder::default();
    let sink = FakeSink::answering(|_| Outcome::unavailable("connection refused"));
    sink.set_away(true);
    let worker = metrics::with_local_recorder(&recorder, || fixture.start(&sink));
    fixture.enqueue(keyed("a"));
    until("the breaker is open", || {
        values(&recorder)["breaker_state there"] == 2.0
    })
    .await;
    are(
        &values(&recorder),
        &[("destination_up there", 0.0), ("database_up", 1.0)],
    );
    tokio::time::sleep(s(20)).await;
    is_down.store(true, Ordering::SeqCst);
    until("statements fail", || values(&recorder)["database_up"] == 0.0).await;
    // The sample ages although nothing answers.
    until("the sample is old", || {
        values(&recorder)["sample_age_seconds"] > 60.0
    })
    .await;
    assert!(values(&recorder)["store_errors_total"] > 0.0);
    is_down.store(false, Ordering::SeqCst);
    until("the database is back", || values(&recorder)["database_up"] == 1.0).await;
    until("the sample is new", || {
        values(&recorder)["sample_age_seconds"] < 16.0
    })
    .await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_counted() {
    let recorder = Recorder::default();
    let (fixture, clock) = suspendable();
    fixture.enqueue(event());
    let sink = slow(5);
    let worker = metrics::with_local_recorder(&recorder, || fixture.start(&sink));
    until("it is being sent", || sink.running() == 1).await;
    clock.jump(s(61));
    assert_eq!(steal(&fixture).await.len(), 1);
    until("the loss is counted", || worker.counters.snapshot().lost == 1).await;
    are(
        &values(&recorder),
        &[
            ("lost_leases_total", 1.0),
            ("attempts_total there lost", 1.0),
            ("dead_total there", 0.0),
        ],
    );
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn names_that_are_not_configured_are_one_label() {
    let recorder = Recorder::default();
    let fixture = Fixture::new();
    for n in 0..1000 {
        fixture.enqueue(event().destination(format!("foreign-{n}")));
    }
    let sink = FakeSink::willing();
    let worker = metrics::with_local_recorder(&recorder, || fixture.start(&sink));
    tokio::time::sleep(s(1)).await;
    let names = recorder.values();
    let destinations: BTreeSet<&str> = names
        .keys()
        .filter_map(|name| name.split("destination=\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(
        destinations,
        BTreeSet::from(["there", "other", "none", "unrouted"])
    );
    are(&values(&recorder), &[("events other pending", 1000.0)]);
    worker.stop().await;
}
