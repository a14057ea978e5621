//! Destinations that are paused, and the workers that know it.

use std::time::Duration;

use crate::fixture::{Fixture, on_both_stores};
use crate::receiver::{Behaviour, Receiver};
use pillarbox_testkit::wait::until_ok_blocking;

on_both_stores!(
    a_pause_survives_a_restart_and_delays_no_other_destination,
    a_pause_of_nothing_is_refused,
    a_worker_says_that_it_is_alive,
);

fn a_pause_survives_a_restart_and_delays_no_other_destination(new: fn(&str) -> Fixture) {
    let (paused, open) = (
        Receiver::start(Behaviour::Accepts),
        Receiver::start(Behaviour::Accepts),
    );
    let fixture = new(&format!(
        "{}{}[[route]]\nto = [\"partner\", \"open\"]\n",
        paused.destination("partner"),
        open.destination("open")
    ));
    let daemon = fixture.ready();
    let said = fixture
        .run(&["destinations", "pause", "partner", "--reason", "they migrate"])
        .success();
    assert_eq!(said, "partner paused: they migrate\n");
    // A worker learns of a pause with its next look; the first event may still be on its way.
    daemon.stop_blocking();
    for round in 1..=2 {
        let daemon = fixture.ready();
        fixture.enqueue(&["shop", "orders", &round.to_string()]);
        let stats = daemon.wait_for_stats("the other is served", |stats| stats["delivered"] == round);
        let listed = stats["destinations"].as_array().unwrap().iter();
        let partner = listed
            .clone()
            .find(|to| to["name"] == "partner")
            .expect("it is listed");
        assert_eq!(partner["paused"]["reason"], "they migrate", "{stats}");
        daemon.wait_for_stats("its own waits", |stats| stats["pending"] == round);
        daemon.stop_blocking();
    }
    assert!(paused.bodies().is_empty());
    let listed = fixture.run(&["destinations", "ls"]).success();
    assert!(
        listed.contains("paused") && listed.contains("they migrate"),
        "{listed}"
    );
    let rows = fixture.json(&["events", "ls", "--destination", "partner"]);
    assert!(
        rows.iter().all(|row| row["attempts"] == 0),
        "no attempt is burnt: {rows:?}"
    );

    let daemon = fixture.ready();
    assert_eq!(
        fixture.run(&["destinations", "resume", "partner"]).success(),
        "partner resumed\n"
    );
    daemon.wait_for_stats("all are delivered", |stats| stats["delivered"] == 4);
    let mut bodies = paused.accepted();
    bodies.sort();
    assert_eq!(bodies, ["1", "2"]);
    daemon.stop_blocking();
}

fn a_pause_of_nothing_is_refused(new: fn(&str) -> Fixture) {
    let fixture = new("[[destination]]\nname = \"partner\"\ntype = \"log\"\n");
    fixture.run(&["migrate"]).success();
    let error = fixture.run(&["destinations", "pause", "partnr"]).failure(1);
    assert!(
        error.contains("unknown destination `partnr` (did you mean `partner`?)"),
        "{error}"
    );
    fixture.run(&["destinations", "pause", "unrouted"]).failure(2);
    let error = fixture.run(&["destinations", "resume", "partner"]).failure(1);
    assert!(error.contains("`partner` is not paused"), "{error}");
    let listed = fixture.json(&["destinations", "ls"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        (&listed[0]["configured"], &listed[0]["paused"]),
        (&true.into(), &serde_json::Value::Null)
    );
    let paused = fixture.json(&["destinations", "pause", "partner"]);
    assert_eq!(paused[0]["reason"], "paused by an operator");
    assert_eq!(
        fixture.json(&["destinations", "resume", "partner"])[0]["resumed"],
        "partner"
    );
}

fn a_worker_says_that_it_is_alive(new: fn(&str) -> Fixture) {
    let fixture = new("[dispatch]\nheartbeat = \"200ms\"\n[[destination]]\nname = \"log\"\ntype = \"log\"\n");
    let daemon = fixture.ready();
    fixture.enqueue(&["shop", "orders", "1"]);
    let stats = daemon.wait_for_stats("it has counted one", |stats| {
        stats["workers"][0]["delivered"] == 1
    });
    // On a busy machine a heartbeat may be late: then the worker is not alive for a moment.
    let worker = until_ok_blocking("it is alive", || {
        let workers = fixture.json(&["workers", "ls"]);
        let alive = workers.iter().find(|worker| worker["alive"] == true);
        alive.cloned().ok_or_else(|| format!("{workers:?}"))
    });
    assert_eq!(worker["id"], stats["worker"]["id"]);
    assert_eq!(worker["claimed"], 1, "{worker}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(worker["host"], host.trim(), "{worker}");
    assert_eq!(worker["version"], env!("CARGO_PKG_VERSION"));
    let id = worker["id"].as_str().expect("an id");
    until_ok_blocking("the table says so too", || {
        let table = fixture.run(&["workers", "ls"]).success();
        if table.contains("alive") && table.contains(id) {
            Ok(())
        } else {
            Err(table)
        }
    });
    daemon.stop_blocking();
    let after = fixture.json(&["workers", "ls"]);
    assert!(after.iter().all(|worker| worker["alive"] == false), "{after:?}");
}

#[test]
fn no_more_attempts_begin_than_the_rate_allows() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::sqlite(&format!(
        "{}rate = \"5/s\"\nburst = 1\n",
        receiver.destination("hook")
    ));
    let daemon = fixture.ready();
    for n in 0..10 {
        fixture.enqueue(&["shop", "orders", &n.to_string()]);
    }
    daemon.wait_for_stats("all are delivered", |stats| stats["delivered"] == 10);
    let requests = receiver.requests();
    // Nine waits of 200 ms; half of that is left for a machine that was slow with the first.
    let took = requests[9].at - requests[0].at;
    assert!(took >= Duration::from_millis(900), "{took:?}");
    daemon.stop_blocking();
}

#[test]
fn a_route_may_be_less_patient_than_its_destination() {
    let receiver = Receiver::start(Behaviour::Hangs);
    let fixture = Fixture::sqlite(&format!(
        "{}[[route]]\nto = \"hook\"\ntimeout = \"200ms\"\n[route.retry]\nmax_attempts = 3\nsteps = [\"10ms\"]\n",
        receiver.destination("hook")
    ));
    let daemon = fixture.ready();
    let id = fixture.enqueue(&["shop", "orders", "1"]);
    daemon.wait_for_stats("it is given up on", |stats| stats["dead"] == 1);
    // On a busy machine the time of an attempt may be over before anything is sent.
    let sent = receiver.bodies().len();
    assert!((1..=3).contains(&sent), "{sent}: as often as the route says");
    let shown = fixture.run(&["events", "show", &id]).success();
    assert!(shown.contains("attempts        3 of 3"), "{shown}");
    daemon.stop_blocking();
    fixture.configure(&receiver.destination("hook"));
    assert_eq!(
        fixture
            .run(&["events", "retry", "--dead", "--destination", "other"])
            .success(),
        "0 retried\n"
    );
    assert_eq!(
        fixture
            .run(&["events", "retry", "--dead", "--destination", "hook"])
            .success(),
        "1 retried\n"
    );
}
