//! Blocked ordering keys, and how an operator unblocks them.

use crate::daemon::Daemon;
use crate::fixture::{Fixture, on_both_stores};
use crate::receiver::{Behaviour, Receiver};
use pillarbox_testkit::wait::until_ok_blocking;

on_both_stores!(
    a_dead_head_blocks_its_key_and_nothing_else_until_it_is_skipped,
    a_blocked_key_goes_on_in_order_when_its_head_is_retried,
    a_key_may_go_on_without_its_dead,
    a_key_that_is_blocked_at_two_places_is_mended_one_by_one,
    an_event_is_skipped_by_its_id,
);

/// Three events of one key, of which the first is poison, and one of another key.
fn enqueue(fixture: &Fixture) -> String {
    let head = fixture.enqueue(&["shop", "orders", "\"poison\"", "--key", "k"]);
    fixture.enqueue(&["shop", "orders", "2", "--key", "k"]);
    fixture.enqueue(&["shop", "orders", "3", "--key", "k"]);
    fixture.enqueue(&["shop", "orders", "\"other\"", "--key", "other"]);
    head
}

/// Waits until the key is blocked by a dead head with two behind it, and the other key is done.
fn wait_until_blocked(fixture: &Fixture, daemon: &Daemon) -> serde_json::Value {
    daemon.wait_for_stats("the other key is done", |stats| {
        stats["delivered"] == 1 && stats["dead"] == 1 && stats["pending"] == 2
    });
    let mut keys = fixture.json(&["keys", "ls"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

fn a_dead_head_blocks_its_key_and_nothing_else_until_it_is_skipped(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::RejectsPoison);
    let fixture = new(&receiver.destination("hook"));
    let daemon = fixture.ready();
    let head = enqueue(&fixture);
    let blocked = wait_until_blocked(&fixture, &daemon);
    assert_eq!(receiver.accepted(), ["\"other\""]);
    for (field, expected) in [
        ("namespace", "shop"),
        ("ordering_key", "k"),
        ("destination", "hook"),
        ("head", &head),
        ("status", "dead"),
    ] {
        assert_eq!(blocked[field], expected, "{blocked}");
    }
    assert_eq!((&blocked["attempts"], &blocked["behind"]), (&1.into(), &2.into()));
    assert!(blocked["reason"].as_str().unwrap().contains("422"), "{blocked}");
    let table = fixture.run(&["keys", "ls", "--namespace", "shop"]).success();
    assert!(
        table.contains("BEHIND") && table.contains(&head) && table.contains("422"),
        "{table}"
    );
    assert_eq!(
        fixture.run(&["keys", "ls", "--namespace", "bank"]).success(),
        "no blocked keys\n"
    );

    let said = fixture.run(&["keys", "skip", "shop", "k"]).success();
    assert_eq!(
        said,
        format!("{head} skipped: it blocked the key k of shop (hook), 2 behind it\n")
    );
    daemon.wait_for_stats("the others go on", |stats| stats["delivered"] == 3);
    assert_eq!(receiver.accepted(), ["\"other\"", "2", "3"]);
    assert_eq!(fixture.run(&["keys", "ls"]).success(), "no blocked keys\n");
    let error = fixture.run(&["keys", "skip", "shop", "k"]).failure(1);
    assert!(error.contains("key `k` of `shop` is not blocked"), "{error}");
    let shown = fixture.run(&["events", "show", &head]).success();
    assert!(
        shown.contains("dead") && shown.contains("neither waits for its key nor blocks it"),
        "{shown}"
    );
    daemon.stop_blocking();
}

fn a_blocked_key_goes_on_in_order_when_its_head_is_retried(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::RejectsPoison);
    let fixture = new(&receiver.destination("hook"));
    let daemon = fixture.ready();
    let head = enqueue(&fixture);
    wait_until_blocked(&fixture, &daemon);
    receiver.set_behaviour(Behaviour::Accepts);
    let mended = fixture.json(&["keys", "retry", "shop", "k", "--destination", "hook"]);
    assert_eq!(mended[0]["retried"]["head"], head.as_str(), "{mended:?}");
    daemon.wait_for_stats("all go on", |stats| stats["delivered"] == 4);
    assert_eq!(receiver.accepted(), ["\"other\"", "\"poison\"", "2", "3"]);
    daemon.stop_blocking();
}

fn a_key_may_go_on_without_its_dead(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::RejectsPoison);
    let fixture = new(&format!(
        "{}on_dead = \"continue\"\n",
        receiver.destination("hook")
    ));
    let daemon = fixture.ready();
    enqueue(&fixture);
    daemon.wait_for_stats("one dead, the rest delivered", |stats| {
        stats["dead"] == 1 && stats["delivered"] == 3
    });
    let mut of_key = receiver.accepted();
    of_key.retain(|body| body != "\"other\"");
    assert_eq!(of_key, ["2", "3"]);
    assert_eq!(fixture.run(&["keys", "ls"]).success(), "no blocked keys\n");
    daemon.stop_blocking();
}

fn a_key_that_is_blocked_at_two_places_is_mended_one_by_one(new: fn(&str) -> Fixture) {
    let (one, two) = (
        Receiver::start(Behaviour::RejectsPoison),
        Receiver::start(Behaviour::RejectsPoison),
    );
    let fixture = new(&format!(
        "{}{}[[route]]\nto = [\"one\", \"two\"]\n",
        one.destination("one"),
        two.destination("two")
    ));
    let daemon = fixture.ready();
    fixture.enqueue(&["shop", "orders", "\"poison\"", "--key", "k"]);
    fixture.enqueue(&["shop", "orders", "2", "--key", "k"]);
    daemon.wait_for_stats("dead at both", |stats| stats["dead"] == 2);
    let error = fixture.run(&["keys", "skip", "shop", "k"]).failure(2);
    assert!(
        error.contains("blocked at several destinations (choose one with --destination"),
        "{error}"
    );
    fixture
        .run(&["keys", "skip", "shop", "k", "--destination", "one"])
        .success();
    daemon.wait_for_stats("one goes on", |stats| stats["delivered"] == 1);
    assert_eq!((one.accepted(), two.accepted()), (vec!["2".to_owned()], vec![]));
    fixture.run(&["keys", "skip", "shop", "k"]).success();
    daemon.wait_for_stats("both go on", |stats| stats["delivered"] == 2);
    assert_eq!(two.accepted(), ["2"]);
    daemon.stop_blocking();
}

fn an_event_is_skipped_by_its_id(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = new(&receiver.destination("hook"));
    fixture.run(&["migrate"]).success();
    let head = fixture.enqueue(&["shop", "orders", "1", "--key", "k"]);
    fixture.enqueue(&["shop", "orders", "2", "--key", "k"]);
    assert_eq!(
        fixture.run(&["events", "skip", &head]).success(),
        format!("{head} skipped\n")
    );
    let shown = &fixture.json(&["events", "show", &head])[0];
    assert_eq!(
        (&shown["status"], &shown["unordered"]),
        (&"dead".into(), &true.into())
    );
    assert_eq!(shown["last_error"], "skipped by an operator");
    let error = fixture.run(&["events", "skip", &head]).failure(1);
    assert!(error.contains(&format!("not skipped: {head}")), "{error}");
    let daemon = fixture.ready();
    until_ok_blocking("the other goes on", || match receiver.accepted().as_slice() {
        [one] if one == "2" => Ok(()),
        others => Err(format!("{others:?}")),
    });
    daemon.stop_blocking();
}
