//! Several databases, one daemon.

use serde_json::Value;

use crate::daemon::Daemon;
use crate::fixture::{Fixture, postgres_url};
use crate::receiver::{Behaviour, Receiver};
use pillarbox_testkit::wait::until_ok_blocking;

/// Two databases by their URLs, with routes of their own.
fn two(one: &str, other: &str, more: &str, receivers: [&Receiver; 2]) -> String {
    format!(
        "[[database]]\nname = \"shop\"\n{one}\n[[database]]\nname = \"bank\"\n{other}\n{more}\n{}{}\
         [[route]]\ndatabase = \"shop\"\nto = \"orders\"\n[[route]]\ndatabase = \"bank\"\nto = \"payments\"\n",
        receivers[0].destination("orders"),
        receivers[1].destination("payments")
    )
}

/// Waits until both databases have delivered so many.
fn both_delivered(daemon: &Daemon, count: u64) -> Value {
    daemon.wait_for_stats(&format!("{count} delivered in each"), |stats| {
        let all = stats["databases"].as_array();
        all.is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["delivered"] == count))
    })
}

#[test]
fn two_databases_are_served_by_one_daemon_each_by_its_own_routes() {
    let receivers = [
        Receiver::start(Behaviour::Accepts),
        Receiver::start(Behaviour::Accepts),
    ];
    // The schema is dropped with the fixture.
    let fixture = Fixture::postgres("");
    let bank = format!("url = \"{}\"\nschema = \"{}\"", postgres_url(), fixture.schema());
    fixture.write(&two(
        "url = \"shop.db\"",
        &bank,
        "",
        [&receivers[0], &receivers[1]],
    ));
    let migrated = fixture.run(&["migrate"]).success();
    assert_eq!(migrated.lines().count(), 2, "each is migrated: {migrated}");
    let daemon = fixture.daemon(&[]);
    daemon.wait_until_ready();
    fixture.enqueue(&["n", "t", "1", "--database", "shop"]);
    fixture.enqueue(&["n", "t", "2", "--database", "bank"]);
    let stats = both_delivered(&daemon, 1);
    assert_eq!(
        (receivers[0].accepted(), receivers[1].accepted()),
        (vec!["1".to_owned()], vec!["2".to_owned()])
    );
    let workers: Vec<&Value> = (0..2).map(|n| &stats["databases"][n]["worker"]["id"]).collect();
    assert_ne!(workers[0], workers[1], "each has a worker of its own");
    let one: Value = serde_json::from_str(&daemon.get("/api/v1/stats?database=bank").body).unwrap();
    assert_eq!((&one["database"], &one["delivered"]), (&"bank".into(), &1.into()));
    assert_eq!(daemon.get("/api/v1/stats?database=bnak").status, 404);

    let counted = fixture.json(&["stats"]);
    let names: Vec<&Value> = counted.iter().map(|one| &one["database"]).collect();
    assert_eq!(names, ["shop", "bank"], "{counted:?}");
    let table = fixture.run(&["stats"]).success();
    assert!(
        table.contains("database shop") && table.contains("\ndatabase bank"),
        "{table}"
    );
    let error = fixture.run(&["events", "ls"]).failure(2);
    assert!(
        error.contains("choose one with --database: `shop` and `bank`"),
        "{error}"
    );
    let error = fixture.run(&["events", "ls", "--database", "shpo"]).failure(2);
    assert!(
        error.contains("unknown database `shpo` (did you mean `shop`?)"),
        "{error}"
    );
    assert_eq!(fixture.json(&["events", "ls", "--database", "bank"]).len(), 1);
    let said = daemon.stop_blocking();
    assert_eq!(said.matches("dispatcher stopped").count(), 2, "{said}");
}

#[test]
fn a_database_that_is_away_keeps_nothing_from_the_other() {
    let receivers = [
        Receiver::start(Behaviour::Accepts),
        Receiver::start(Behaviour::Accepts),
    ];
    let fixture = Fixture::sqlite("");
    // Nothing listens on port 1.
    let away = "url = \"postgres://u:hunter2@127.0.0.1:1/d\"";
    fixture.write(&two(
        "url = \"shop.db\"",
        away,
        "",
        [&receivers[0], &receivers[1]],
    ));
    fixture.run(&["migrate", "--database", "shop"]).success();
    let daemon = fixture.daemon(&[]);
    fixture.enqueue(&["n", "t", "1", "--database", "shop"]);
    until_ok_blocking("the one that is there is served", || {
        match receivers[0].accepted().len() {
            0 => Err(daemon.log()),
            _ => Ok(()),
        }
    });
    until_ok_blocking("the daemon is not ready, and says which is away", || {
        let answer = daemon.get("/readyz");
        let problem: Value = serde_json::from_str(&answer.body).expect("a problem");
        let away = problem["code"] == "database_unavailable" && problem["database"] == "bank";
        if answer.status == 503 && away {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    });
    let stats = daemon.wait_for_stats("counted", |stats| stats["databases"][0]["delivered"] == 1);
    assert!(stats["databases"][1]["unavailable"].is_string(), "{stats}");
    let said = daemon.stop_blocking();
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_shutdown_drains_all_databases() {
    let receivers = [
        Receiver::start(Behaviour::Hangs),
        Receiver::start(Behaviour::Hangs),
    ];
    let fixture = Fixture::sqlite("");
    fixture.write(&two(
        "url = \"shop.db\"",
        "url = \"bank.db\"",
        "[dispatch]\ngrace = \"200ms\"\n",
        [&receivers[0], &receivers[1]],
    ));
    let daemon = fixture.daemon(&["--migrate"]);
    daemon.wait_until_ready();
    for name in ["shop", "bank"] {
        fixture.enqueue(&["n", "t", "1", "--database", name]);
    }
    for receiver in &receivers {
        until_ok_blocking("an attempt is in flight", || match receiver.bodies().len() {
            0 => Err(daemon.log()),
            _ => Ok(()),
        });
    }
    let said = daemon.stop_blocking();
    assert_eq!(said.matches("dispatcher stopped").count(), 2, "{said}");
}

#[test]
fn a_database_without_an_outbox_ends_the_daemon_and_is_named() {
    let receivers = [
        Receiver::start(Behaviour::Accepts),
        Receiver::start(Behaviour::Accepts),
    ];
    let fixture = Fixture::sqlite("");
    fixture.write(&two(
        "url = \"shop.db\"",
        "url = \"bank.db\"",
        "",
        [&receivers[0], &receivers[1]],
    ));
    fixture.run(&["migrate", "--database", "shop"]).success();
    let error = fixture
        .run(&["run", "--listen", "127.0.0.1:0", "--log", "error"])
        .failure(1);
    assert!(
        error.contains("database `bank`: ") && error.contains("run `pillarbox migrate`"),
        "{error}"
    );
}
