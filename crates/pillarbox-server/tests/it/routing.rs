//! Routes, families and unrouted events, with real webhooks.

use crate::fixture::{Fixture, on_both_stores};
use crate::receiver::{Behaviour, Receiver};
use pillarbox_testkit::wait::until_ok_blocking;

on_both_stores!(
    an_event_goes_to_every_place_that_a_route_leads_to,
    a_place_that_refuses_keeps_nothing_from_the_others,
    unrouted_events_are_held_until_a_route_matches,
    unrouted_events_may_be_dead_or_deleted,
    a_row_for_a_destination_that_is_no_longer_there_waits_for_it,
    a_scheduled_event_is_not_sent_before_its_time,
);

/// Waits until a receiver has accepted so many.
fn accepted(receiver: &Receiver, count: usize) -> Vec<String> {
    until_ok_blocking(&format!("{count} arrive"), || {
        let bodies = receiver.accepted();
        if bodies.len() >= count {
            Ok(bodies)
        } else {
            Err(format!("{bodies:?}"))
        }
    })
}

fn an_event_goes_to_every_place_that_a_route_leads_to(new: fn(&str) -> Fixture) {
    let (mail, chat) = (
        Receiver::start(Behaviour::Accepts),
        Receiver::start(Behaviour::Accepts),
    );
    let fixture = new(&format!(
        "{}{}[[route]]\ntopic = [\"orders.*\", \"carts\"]\nto = [\"mail\", \"chat\"]\n\
         [[route]]\nseverity = \"high\"\nto = \"chat\"\n",
        mail.destination("mail"),
        chat.destination("chat")
    ));
    let daemon = fixture.ready();
    let both = fixture.enqueue(&["shop", "orders.new", "1", "--severity", "high"]);
    let one = fixture.enqueue(&["shop", "parcels", "2", "--severity", "high"]);
    daemon.wait_for_stats("three rows delivered", |stats| stats["delivered"] == 3);
    let ids = |receiver: &Receiver| -> Vec<String> {
        let mut ids: Vec<String> = receiver.requests().iter().map(|it| it.id().to_owned()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&mail), [both.as_str()]);
    let mut expected = vec![both.clone(), one];
    expected.sort();
    assert_eq!(
        ids(&chat),
        expected,
        "each fixture once, and the same id everywhere"
    );
    daemon.stop_blocking();

    let rows = fixture.json(&["events", "ls", "--event", &both]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(fixture.json(&["events", "ls", "--destination", "mail"]).len(), 1);
    let shown = fixture.run(&["events", "show", &both]).success();
    assert!(
        shown.contains("the event goes to 2 destinations and is completed:"),
        "{shown}"
    );
    let sibling = rows
        .iter()
        .find(|row| row["id"] != both.as_str())
        .expect("a sibling");
    let shown = &fixture.json(&["events", "show", sibling["id"].as_str().unwrap()])[0];
    assert_eq!(shown["event_id"], both.as_str());
    assert_eq!(shown["family_status"], "completed");
    assert_eq!(shown["family"].as_array().map(Vec::len), Some(2));
}

fn a_place_that_refuses_keeps_nothing_from_the_others(new: fn(&str) -> Fixture) {
    let (good, bad) = (
        Receiver::start(Behaviour::Accepts),
        Receiver::start(Behaviour::IsUnavailable),
    );
    // However long the others take, the one that is refused is not given up on.
    let fixture = new(&format!(
        "[retry]\nbase = \"50ms\"\nmax = \"100ms\"\nmax_attempts = \"unlimited\"\n\
         {}{}[[route]]\nto = [\"bad\", \"good\"]\n",
        good.destination("good"),
        bad.destination("bad")
    ));
    let daemon = fixture.ready();
    let ids: Vec<String> = (0..10)
        .map(|n| fixture.enqueue(&["shop", "orders", &n.to_string(), "--key", &format!("k{}", n % 3)]))
        .collect();
    let mut bodies = accepted(&good, 10);
    bodies.sort();
    assert_eq!(bodies, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    let shown = until_ok_blocking("the first has failed at one fixture", || {
        let shown = fixture.json(&["events", "show", &ids[0]]).remove(0);
        match shown["family_status"].as_str() {
            Some("failed" | "processing") if bad.bodies().len() > 1 => Ok(shown),
            _ => Err(shown.to_string()),
        }
    });
    assert_eq!(shown["family"].as_array().map(Vec::len), Some(2), "{shown}");
    assert!(bad.accepted().is_empty());

    bad.set_behaviour(Behaviour::Accepts);
    daemon.wait_for_stats("all delivered", |stats| stats["delivered"] == 20);
    let of_key = |bodies: Vec<String>, key: u32| -> Vec<u32> {
        let numbers = bodies.iter().map(|body| body.parse().expect("a number"));
        numbers.filter(|n: &u32| n % 3 == key).collect()
    };
    for key in 0..3 {
        let expected: Vec<u32> = (0..10).filter(|n| n % 3 == key).collect();
        assert_eq!(of_key(good.accepted(), key), expected, "in order");
        assert_eq!(
            of_key(bad.accepted(), key),
            expected,
            "in order, after all failures"
        );
    }
    daemon.stop_blocking();
}

fn unrouted_events_are_held_until_a_route_matches(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::Accepts);
    let base = format!(
        "{}[[destination]]\nname = \"log\"\ntype = \"log\"\n[[route]]\ntopic = \"carts\"\nto = \"log\"\n",
        receiver.destination("hook")
    );
    let fixture = new(&base);
    let daemon = fixture.ready();
    let id = fixture.enqueue(&["shop", "orders", "1"]);
    let stats = daemon.wait_for_stats("one held", |stats| stats["unrouted"] == 1);
    let unrouted = stats["destinations"]
        .as_array()
        .unwrap()
        .iter()
        .find(|to| to["name"] == "unrouted");
    assert_eq!(unrouted.expect("it is listed")["pending"], 1, "{stats}");
    daemon.stop_blocking();
    let counted = fixture.run(&["stats"]).success();
    assert!(counted.contains("of the pending, 1 are unrouted"), "{counted}");
    let held = fixture
        .run(&["events", "ls", "--destination", "unrouted"])
        .success();
    assert!(held.contains(&id) && held.contains("no route matches"), "{held}");

    fixture.configure(&format!("{base}[[route]]\ntopic = \"orders\"\nto = \"hook\"\n"));
    let daemon = fixture.ready();
    daemon.wait_for_stats("delivered", |stats| {
        stats["delivered"] == 1 && stats["unrouted"] == 0
    });
    assert_eq!(receiver.accepted(), ["1"]);
    daemon.stop_blocking();
}

fn unrouted_events_may_be_dead_or_deleted(new: fn(&str) -> Fixture) {
    let config = |unrouted: &str| {
        format!(
            "[dispatch]\nunrouted = \"{unrouted}\"\n[[destination]]\nname = \"log\"\ntype = \"log\"\n\
             [[route]]\ntopic = \"carts\"\nto = \"log\"\n"
        )
    };
    let fixture = new(&config("dead"));
    let daemon = fixture.ready();
    let id = fixture.enqueue(&["shop", "orders", "1"]);
    daemon.wait_for_stats("one dead", |stats| stats["dead"] == 1);
    daemon.stop_blocking();
    let shown = fixture.run(&["events", "show", &id]).success();
    assert!(shown.contains("no route matches"), "{shown}");

    fixture.configure(&config("delete"));
    let daemon = fixture.ready();
    let id = fixture.enqueue(&["shop", "orders", "2"]);
    daemon.wait_for_stats("one deleted", |stats| stats["worker"]["deleted"] == 1);
    daemon.stop_blocking();
    fixture.run(&["events", "show", &id]).failure(1);
}

fn a_row_for_a_destination_that_is_no_longer_there_waits_for_it(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::Accepts);
    let log = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";
    let fixture = new(log);
    let daemon = fixture.ready();
    fixture.enqueue(&["shop", "orders", "1", "--destination", "old"]);
    fixture.enqueue(&["shop", "orders", "2"]);
    let stats = daemon.wait_for_stats("the other is delivered", |stats| stats["delivered"] == 1);
    let old = stats["destinations"]
        .as_array()
        .unwrap()
        .iter()
        .find(|to| to["name"] == "old");
    let old = old.expect("it is listed");
    assert_eq!((&old["pending"], &old["configured"]), (&1.into(), &false.into()));
    let listed = fixture.run(&["destinations", "ls"]).success();
    assert!(listed.contains("no longer configured; its rows wait"), "{listed}");
    daemon.stop_blocking();

    fixture.configure(&format!(
        "{log}{}[[route]]\nto = \"log\"\n",
        receiver.destination("old")
    ));
    let daemon = fixture.ready();
    daemon.wait_for_stats("both are delivered", |stats| stats["delivered"] == 2);
    assert_eq!(receiver.accepted(), ["1"]);
    daemon.stop_blocking();
}

fn a_scheduled_event_is_not_sent_before_its_time(new: fn(&str) -> Fixture) {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = new(&receiver.destination("hook"));
    let daemon = fixture.ready();
    let wait = std::time::Duration::from_secs(3);
    // First, or on a busy machine it may take until the other one's time has come.
    fixture.enqueue(&["shop", "orders", "\"now\"", "--at", "2020-01-31T12:00:00Z"]);
    accepted(&receiver, 1);
    let before = std::time::Instant::now();
    fixture.enqueue(&["shop", "orders", "\"later\"", "--at", "+3s"]);
    accepted(&receiver, 2);
    let requests = receiver.requests();
    assert_eq!(
        (requests[0].body.as_str(), requests[1].body.as_str()),
        ("\"now\"", "\"later\"")
    );
    assert!(requests[1].at >= before + wait, "{:?}", requests[1].at - before);
    daemon.stop_blocking();

    let error = fixture
        .run(&["enqueue", "shop", "orders", "1", "--at", "+1m", "--key", "k"])
        .failure(1);
    assert!(
        error.contains("`deliver_at` and `ordering_key` exclude each other"),
        "{error}"
    );
    assert_eq!(
        fixture
            .run(&["enqueue", "shop", "orders", "1", "--at", "soon"])
            .code,
        2
    );
}

/// Two workers of one outbox: both serve `common`, and one serves `large` too.
#[test]
fn an_event_goes_to_a_worker_that_serves_its_destination() {
    let tenant = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5a";
    let [large, common] = [(); 2].map(|()| Receiver::start(Behaviour::Accepts));
    let route = "[[route]]\nto = \"common\"\n";
    let fixture = Fixture::postgres(&format!("{}{route}", common.destination("common")));
    let without = fixture.ready();
    fixture.enqueue(&[
        "shop",
        "orders",
        "1",
        "--tenant",
        tenant,
        "--destination",
        "large",
    ]);
    for n in 2..30 {
        fixture.enqueue(&["shop", "orders", &n.to_string(), "--tenant", tenant]);
    }
    accepted(&common, 28);
    let waiting = fixture.json(&["events", "ls", "--destination", "large"]);
    assert_eq!(
        (&waiting[0]["status"], &waiting[0]["attempts"]),
        (&"pending".into(), &0.into())
    );
    fixture.configure(&format!(
        "{}{}{route}",
        common.destination("common"),
        large.destination("large")
    ));
    let with = fixture.ready();
    assert_eq!(accepted(&large, 1), ["1"]);
    with.stop_blocking();
    without.stop_blocking();
    assert_eq!(common.accepted().len(), 28);
}
