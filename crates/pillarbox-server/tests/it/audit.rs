//! `pillarbox audit`: who changed what, and why.

use serde_json::{Value, json};

use crate::fixture::{Fixture, on_both_stores};

on_both_stores!(
    a_change_is_listed_with_its_user_and_its_reason,
    lines_are_filtered_paged_and_exported,
);

fn destinations(names: &[&str]) -> String {
    let destination = |name: &&str| format!("[[destination]]\nname = \"{name}\"\ntype = \"log\"\n");
    names.iter().map(destination).collect()
}

fn a_change_is_listed_with_its_user_and_its_reason(new: fn(&str) -> Fixture) {
    let fixture = new(&destinations(&["log"]));
    fixture.run(&["migrate", "--reason", "release 7"]).success();
    let ids = [0, 1].map(|_| fixture.enqueue(&["shop", "orders", "{}"]));
    for command in [
        vec![
            "events",
            "retry",
            &ids[0],
            &ids[1],
            "--reason",
            "the partner is back",
        ],
        vec!["events", "delete", &ids[0], "--yes"],
        vec!["destinations", "pause", "log", "--reason", "too loud"],
        vec!["destinations", "resume", "log", "--reason", "quiet again"],
    ] {
        fixture.run(&command).success();
    }
    let lines = fixture.json(&["audit", "ls"]);
    let seen: Vec<Value> = lines
        .iter()
        .map(|line| json!([line["action"], line["count"], line["reason"]]))
        .collect();
    assert_eq!(
        json!(seen),
        json!([
            ["destinations.resume", 1, "quiet again"],
            ["destinations.pause", 1, "too loud"],
            ["events.delete", 1, null],
            ["events.retry", 2, "the partner is back"],
            ["migrate", 1, "release 7"],
        ])
    );
    for line in &lines {
        assert_eq!(line["kind"], "operator");
        let actor = line["subject"].as_str().unwrap();
        let (user, host) = actor.split_once('@').expect(actor);
        assert!(!user.is_empty() && !host.is_empty(), "{actor}");
        assert_eq!(line["role"].is_string(), fixture.is_postgres(), "{line}");
    }
    let printed = fixture
        .run(&["audit", "ls", "--action", "events.retry"])
        .success();
    for text in ["SEQ", "ACTOR", "the partner is back", "pending 2"] {
        assert!(printed.contains(text), "{text}: {printed}");
    }
}

fn lines_are_filtered_paged_and_exported(new: fn(&str) -> Fixture) {
    let names = ["a", "b", "c"];
    let fixture = new(&destinations(&names));
    fixture.run(&["migrate"]).success();
    for name in names {
        fixture.run(&["destinations", "pause", name]).success();
    }
    let pauses = |more: &[&str]| -> Vec<Value> {
        let all = ["audit", "ls", "--action", "destinations.pause"];
        fixture.json(&[&all, more].concat())
    };
    let names = |lines: Vec<Value>| -> Vec<String> {
        let first = |line: &Value| line["objects"][0].as_str().unwrap().to_owned();
        lines.iter().map(first).collect()
    };
    assert_eq!(names(pauses(&[])), ["c", "b", "a"]);
    assert_eq!(names(pauses(&["--object", "b"])), ["b"]);
    let page = pauses(&["--limit", "2"]);
    let last = page[1]["seq"].to_string();
    assert_eq!(names(pauses(&["--before", &last])), ["a"]);
    assert_eq!(pauses(&["--until", "1h"]), Vec::<Value>::new());
    assert_eq!(pauses(&["--since", "1h"]).len(), 3);
    let actor = page[0]["subject"].as_str().unwrap();
    assert_eq!(pauses(&["--actor", actor]).len(), 3);
    assert_eq!(pauses(&["--actor", "mallory"]), Vec::<Value>::new());

    let export = ["audit", "export", "--action", "destinations.pause"];
    let exported = fixture.run(&export).success();
    let exported = exported.lines().map(|line| serde_json::from_str(line).unwrap());
    assert_eq!(exported.collect::<Vec<Value>>(), pauses(&[]));

    let unknown = fixture.run(&["audit", "ls", "--action", "events.invent"]);
    let refused = unknown.failure(2);
    assert!(refused.contains("events.retry"), "{refused}");
}
