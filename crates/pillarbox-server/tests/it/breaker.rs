//! Receivers that are down, fail or ask to wait: which events pay for it, and what operators see.

use std::net::{SocketAddr, TcpListener};

use pillarbox_testkit::wait::until_ok_blocking;
use serde_json::Value;

use crate::command::run_with_input;
use crate::fixture::{Fixture, on_both_stores};
use crate::receiver::{Behaviour, Receiver};

on_both_stores!(
    a_receiver_that_is_down_uses_no_attempts,
    a_receiver_that_answers_503_makes_no_event_dead,
    one_of_many_urls_concerns_its_own_events_only,
);

const THREE_ATTEMPTS: &str =
    "[dispatch]\nheartbeat = \"200ms\"\n[retry]\nbase = \"50ms\"\nmax = \"100ms\"\nmax_attempts = 3\n";

/// An address at which no server listens.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn enqueue_many(fixture: &Fixture, events: usize) {
    let lines: String = (0..events).map(|n| format!("{{\"payload\": {n}}}\n")).collect();
    run_with_input(fixture.path(), &["enqueue", "shop", "orders", "--ndjson"], &lines).success();
}

/// Waits until the only destination is in this state.
fn wait_for_state(fixture: &Fixture, state: &str) -> Value {
    until_ok_blocking(&format!("the destination is {state}"), || {
        let listed = fixture.json(&["destinations", "ls"]).remove(0);
        if listed["state"] == state {
            Ok(listed)
        } else {
            Err(listed.to_string())
        }
    })
}

fn attempts(fixture: &Fixture) -> Vec<u64> {
    let rows = fixture.json(&["events", "ls", "--limit", "1000"]);
    rows.iter().map(|row| row["attempts"].as_u64().unwrap()).collect()
}

fn a_receiver_that_is_down_uses_no_attempts(new: fn(&str) -> Fixture) {
    let address = free_address();
    let fixture = new(&format!(
        "{THREE_ATTEMPTS}[[destination]]\nname = \"partner\"\ntype = \"webhook\"\nurl = \"http://{address}/events\"\n"
    ));
    let daemon = fixture.ready();
    enqueue_many(&fixture, 100);
    let listed = wait_for_state(&fixture, "open");
    let reason = listed["breakers"][0]["reason"].as_str().unwrap();
    assert!(reason.to_lowercase().contains("refused"), "{listed}");
    assert!(listed["breakers"][0]["since"].is_string() && listed["breakers"][0]["worker"].is_string());
    let table = fixture.run(&["destinations", "ls"]).success();
    assert!(
        table.contains("open") && table.to_lowercase().contains("refused"),
        "{table}"
    );
    // The breaker's second health check: all that was in flight has been released.
    daemon.wait_for_stats("every event waits", |stats| stats["pending"] == 100);
    assert!(attempts(&fixture).iter().all(|attempts| *attempts == 0));

    let receiver = Receiver::start_at(address, Behaviour::Accepts);
    daemon.wait_for_stats("all are delivered", |stats| stats["delivered"] == 100);
    assert_eq!(receiver.accepted().len(), 100);
    assert!(attempts(&fixture).iter().all(|attempts| *attempts == 1));
    wait_for_state(&fixture, "closed");
    daemon.stop_blocking();
}

fn a_receiver_that_answers_503_makes_no_event_dead(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::IsUnavailable);
    let fixture = new(&format!("{THREE_ATTEMPTS}{}", receiver.destination("partner")));
    let daemon = fixture.ready();
    enqueue_many(&fixture, 100);
    let listed = wait_for_state(&fixture, "open");
    let reason = listed["breakers"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("several events in a row failed") && reason.contains("503"),
        "{reason}"
    );
    daemon.wait_for_stats("every event waits", |stats| stats["pending"] == 100);
    let sent = receiver.bodies().len();
    assert!((5..=40).contains(&sent), "{sent} requests before it opened");
    receiver.set_behaviour(Behaviour::Accepts);
    // After ten seconds a health check and one event close the breaker.
    daemon.wait_for_stats("all are delivered", |stats| stats["delivered"] == 100);
    let log = daemon.stop_blocking();
    assert!(
        log.contains("breaker opened") && log.contains("breaker half-open") && log.contains("breaker closed")
    );
}

fn one_of_many_urls_concerns_its_own_events_only(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::HasManyTenants);
    let fixture = new(&format!(
        "{THREE_ATTEMPTS}[[destination]]\nname = \"tenants\"\ntype = \"webhook\"\nurl = \"{}/{{topic}}\"\n",
        receiver.url()
    ));
    let daemon = fixture.ready();
    let gone = fixture.enqueue(&["shop", "gone", "1"]);
    daemon.wait_for_stats("one is rejected", |stats| stats["dead"] == 1);
    let busy = fixture.enqueue(&["shop", "busy", "2"]);
    until_ok_blocking("the other waits", || {
        let row = fixture.json(&["events", "show", &busy]).remove(0);
        match row["last_error"].as_str() {
            Some(error) if error.contains("429") && row["status"] == "pending" => Ok(()),
            _ => Err(row.to_string()),
        }
    });
    fixture.enqueue(&["shop", "well", "3"]);
    daemon.wait_for_stats("other events are delivered", |stats| stats["delivered"] == 1);
    let dead = fixture.json(&["events", "show", &gone]).remove(0);
    assert!(dead["last_error"].as_str().unwrap().contains("410"), "{dead}");
    let row = fixture.json(&["events", "show", &busy]).remove(0);
    assert_eq!(
        (&row["attempts"], &row["status"]),
        (&0.into(), &"pending".into()),
        "{row}"
    );
    assert_eq!(wait_for_state(&fixture, "closed")["paused"], Value::Null);
    daemon.stop_blocking();
}

#[test]
fn a_410_of_a_constant_url_disables_the_destination() {
    let receiver = Receiver::start(Behaviour::HasManyTenants);
    let fixture = Fixture::sqlite(&format!(
        "{THREE_ATTEMPTS}[[destination]]\nname = \"partner\"\ntype = \"webhook\"\nurl = \"{}/gone\"\n",
        receiver.url()
    ));
    let daemon = fixture.ready();
    fixture.enqueue(&["shop", "orders", "1"]);
    let listed = wait_for_state(&fixture, "disabled");
    assert!(
        listed["paused"]["reason"].as_str().unwrap().contains("410"),
        "{listed}"
    );
    assert_eq!((&listed["pending"], attempts(&fixture)), (&1.into(), vec![0]));
    daemon.stop_blocking();
}
