//! Ordering keys that do not go on, and what a person does about it.

use crate::binary::{Daemon, eventually};
use crate::place::{Place, on_both_stores};
use crate::receiver::{Mood, Receiver};

on_both_stores!(
    a_dead_head_blocks_its_key_and_nothing_else_until_it_is_skipped,
    a_blocked_key_goes_on_in_order_when_its_head_is_retried,
    a_key_may_go_on_without_its_dead,
    a_key_that_is_blocked_at_two_places_is_mended_one_by_one,
    an_event_is_skipped_by_its_id,
);

/// Three events of one key, of which the first is poison, and one of another key.
fn enqueue(place: &Place) -> String {
    let head = place.enqueue(&["shop", "orders", "\"poison\"", "--key", "k"]);
    place.enqueue(&["shop", "orders", "2", "--key", "k"]);
    place.enqueue(&["shop", "orders", "3", "--key", "k"]);
    place.enqueue(&["shop", "orders", "\"other\"", "--key", "other"]);
    head
}

/// Waits until the key is blocked by a dead head with two behind it, and the other key is done.
fn wait_until_blocked(place: &Place, daemon: &Daemon) -> serde_json::Value {
    daemon.wait_for_stats("the other key is done", |stats| {
        stats["delivered"] == 1 && stats["dead"] == 1 && stats["pending"] == 2
    });
    let mut keys = place.json(&["keys", "ls"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

fn a_dead_head_blocks_its_key_and_nothing_else_until_it_is_skipped(new: fn(&str) -> Place) {
    let receiver = Receiver::start(Mood::RejectsPoison);
    let place = new(&receiver.destination("hook"));
    let daemon = place.ready();
    let head = enqueue(&place);
    let blocked = wait_until_blocked(&place, &daemon);
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
    let table = place.run(&["keys", "ls", "--namespace", "shop"]).good();
    assert!(
        table.contains("BEHIND") && table.contains(&head) && table.contains("422"),
        "{table}"
    );
    assert_eq!(
        place.run(&["keys", "ls", "--namespace", "bank"]).good(),
        "no blocked keys\n"
    );

    let said = place.run(&["keys", "skip", "shop", "k"]).good();
    assert_eq!(
        said,
        format!("{head} skipped: it blocked the key k of shop (hook), 2 behind it\n")
    );
    daemon.wait_for_stats("the others go on", |stats| stats["delivered"] == 3);
    assert_eq!(receiver.accepted(), ["\"other\"", "2", "3"]);
    assert_eq!(place.run(&["keys", "ls"]).good(), "no blocked keys\n");
    let error = place.run(&["keys", "skip", "shop", "k"]).failed(1);
    assert!(error.contains("key `k` of `shop` is not blocked"), "{error}");
    let shown = place.run(&["events", "show", &head]).good();
    assert!(
        shown.contains("dead") && shown.contains("neither waits for its key nor blocks it"),
        "{shown}"
    );
    daemon.stop();
}

fn a_blocked_key_goes_on_in_order_when_its_head_is_retried(new: fn(&str) -> Place) {
    let receiver = Receiver::start(Mood::RejectsPoison);
    let place = new(&receiver.destination("hook"));
    let daemon = place.ready();
    let head = enqueue(&place);
    wait_until_blocked(&place, &daemon);
    receiver.becomes(Mood::Answers);
    let mended = place.json(&["keys", "retry", "shop", "k", "--destination", "hook"]);
    assert_eq!(mended[0]["retried"]["head"], head.as_str(), "{mended:?}");
    daemon.wait_for_stats("all go on", |stats| stats["delivered"] == 4);
    assert_eq!(receiver.accepted(), ["\"other\"", "\"poison\"", "2", "3"]);
    daemon.stop();
}

fn a_key_may_go_on_without_its_dead(new: fn(&str) -> Place) {
    let receiver = Receiver::start(Mood::RejectsPoison);
    let place = new(&format!(
        "{}on_dead = \"continue\"\n",
        receiver.destination("hook")
    ));
    let daemon = place.ready();
    enqueue(&place);
    daemon.wait_for_stats("one dead, the rest delivered", |stats| {
        stats["dead"] == 1 && stats["delivered"] == 3
    });
    let mut of_key = receiver.accepted();
    of_key.retain(|body| body != "\"other\"");
    assert_eq!(of_key, ["2", "3"]);
    assert_eq!(place.run(&["keys", "ls"]).good(), "no blocked keys\n");
    daemon.stop();
}

fn a_key_that_is_blocked_at_two_places_is_mended_one_by_one(new: fn(&str) -> Place) {
    let (one, two) = (
        Receiver::start(Mood::RejectsPoison),
        Receiver::start(Mood::RejectsPoison),
    );
    let place = new(&format!(
        "{}{}[[route]]\nto = [\"one\", \"two\"]\n",
        one.destination("one"),
        two.destination("two")
    ));
    let daemon = place.ready();
    place.enqueue(&["shop", "orders", "\"poison\"", "--key", "k"]);
    place.enqueue(&["shop", "orders", "2", "--key", "k"]);
    daemon.wait_for_stats("dead at both", |stats| stats["dead"] == 2);
    let error = place.run(&["keys", "skip", "shop", "k"]).failed(2);
    assert!(
        error.contains("blocked at several destinations (choose one with --destination"),
        "{error}"
    );
    place
        .run(&["keys", "skip", "shop", "k", "--destination", "one"])
        .good();
    daemon.wait_for_stats("one goes on", |stats| stats["delivered"] == 1);
    assert_eq!((one.accepted(), two.accepted()), (vec!["2".to_owned()], vec![]));
    place.run(&["keys", "skip", "shop", "k"]).good();
    daemon.wait_for_stats("both go on", |stats| stats["delivered"] == 2);
    assert_eq!(two.accepted(), ["2"]);
    daemon.stop();
}

fn an_event_is_skipped_by_its_id(new: fn(&str) -> Place) {
    let receiver = Receiver::start(Mood::Answers);
    let place = new(&receiver.destination("hook"));
    place.run(&["migrate"]).good();
    let head = place.enqueue(&["shop", "orders", "1", "--key", "k"]);
    place.enqueue(&["shop", "orders", "2", "--key", "k"]);
    assert_eq!(
        place.run(&["events", "skip", &head]).good(),
        format!("{head} skipped\n")
    );
    let shown = &place.json(&["events", "show", &head])[0];
    assert_eq!(
        (&shown["status"], &shown["unordered"]),
        (&"dead".into(), &true.into())
    );
    assert_eq!(shown["last_error"], "skipped by an operator");
    let error = place.run(&["events", "skip", &head]).failed(1);
    assert!(error.contains(&format!("not skipped: {head}")), "{error}");
    let daemon = place.ready();
    eventually("the other goes on", || match receiver.accepted().as_slice() {
        [one] if one == "2" => Ok(()),
        others => Err(format!("{others:?}")),
    });
    daemon.stop();
}
