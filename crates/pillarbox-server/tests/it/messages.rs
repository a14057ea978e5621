//! What receivers get of one large event, each as its destination says: from the command line through the database and the
//! daemon to the other end.

use serde_json::Value;

use crate::command::{pillarbox, run};
use crate::daemon::Daemon;
use crate::receiver::{Behaviour, Receiver, Request};

/// One that a frame of a few kilobytes holds.
fn large() -> String {
    let lines = vec!["all work and no play"; 100_000];
    serde_json::json!({ "lines": lines }).to_string()
}

fn destination(name: &str, receiver: &Receiver, keys: &str) -> String {
    let url = receiver.url();
    format!("[[destination]]\nname = \"{name}\"\ntype = \"webhook\"\nurl = \"{url}\"\n{keys}\n")
}

fn only(receiver: &Receiver) -> Request {
    let mut requests = receiver.requests();
    assert_eq!(requests.len(), 1, "one event came once");
    requests.remove(0)
}

#[test]
fn a_large_payload_arrives_as_each_destination_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, stored, whole, narrow] = std::array::from_fn(|_| Receiver::start(Behaviour::Accepts));
    let config = [
        "database.url = \"outbox.db\"\n".to_owned(),
        destination("plain", &plain, ""),
        destination("stored", &stored, "compressed = true"),
        destination("whole", &whole, "format = \"cloudevents-structured\""),
        destination("narrow", &narrow, "max_decompressed = \"1MiB\""),
        "[[route]]\nto = [\"plain\", \"stored\", \"whole\", \"narrow\"]\n".to_owned(),
    ];
    std::fs::write(folder.path().join("pillarbox.toml"), config.concat()).unwrap();
    std::fs::write(folder.path().join("order.json"), large()).unwrap();
    let daemon = Daemon::start(pillarbox(
        folder.path(),
        &["run", "--listen", "127.0.0.1:0", "--migrate"],
    ));
    daemon.wait_until_ready();
    let enqueue = [
        "enqueue",
        "shop",
        "orders",
        "@order.json",
        "--type",
        "OrderCreated",
        "--key",
        "order-42",
    ];
    run(folder.path(), &enqueue).success();
    daemon.wait_for_stats("three delivered and one dead", |stats| {
        stats["delivered"] == 3 && stats["dead"] == 1
    });

    let request = only(&plain);
    assert!(request.body == large(), "it arrived changed");
    assert!(!request.head.contains("content-encoding"), "{}", request.head);

    let request = only(&stored);
    assert!(
        request.head.contains("content-encoding: zstd"),
        "{}",
        request.head
    );
    assert!(
        request.head.contains("content-type: application/json"),
        "{}",
        request.head
    );
    assert!(request.body.len() < 100_000, "{} bytes", request.body.len());

    let request = only(&whole);
    assert!(
        request
            .head
            .contains("content-type: application/cloudevents+json"),
        "{}",
        request.head
    );
    let event: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(
        (&event["type"], &event["partitionkey"]),
        (&"OrderCreated".into(), &"order-42".into())
    );
    let sent: Value = serde_json::from_str(&large()).unwrap();
    assert!(event["data"] == sent, "it arrived changed");

    assert_eq!(narrow.requests().len(), 0);
    let dead = run(folder.path(), &["events", "ls", "--status", "dead", "--json"]).success();
    assert!(
        dead.contains("larger than 1048576 bytes when it is decompressed"),
        "{dead}"
    );
    daemon.stop_blocking();
}

#[test]
fn an_old_payload_arrives_in_the_version_that_each_destination_knows() {
    let folder = tempfile::tempdir().unwrap();
    let [stored, second, third] = std::array::from_fn(|_| Receiver::start(Behaviour::Accepts));
    let config = [
        "database.url = \"outbox.db\"\n".to_owned(),
        destination("stored", &stored, ""),
        destination("second", &second, "[destination.upcast]\nOrderCreated = 2"),
        destination("third", &third, "[destination.upcast]\nOrderCreated = 3"),
        "[[route]]\nto = [\"stored\", \"second\", \"third\"]\n".to_owned(),
        "[[upcast]]\nevent_type = \"OrderCreated\"\nfrom = 1\nrename = { amount = \"price.total\" }\n\
         default = { currency = \"EUR\" }\n"
            .to_owned(),
        "[[upcast]]\nevent_type = \"OrderCreated\"\nfrom = 2\ndrop = [\"legacy\"]\n".to_owned(),
    ];
    std::fs::write(folder.path().join("pillarbox.toml"), config.concat()).unwrap();
    let daemon = Daemon::start(pillarbox(
        folder.path(),
        &["run", "--listen", "127.0.0.1:0", "--migrate"],
    ));
    daemon.wait_until_ready();
    let enqueue = |payload: &str, more: &[&str]| {
        let arguments = ["enqueue", "shop", "orders", payload, "--type", "OrderCreated"];
        run(folder.path(), &[&arguments[..], more].concat()).success();
    };
    enqueue(r#"{"amount": 19.90, "legacy": true}"#, &[]);
    daemon.wait_for_stats("three delivered", |stats| stats["delivered"] == 3);
    for (receiver, version, body) in [
        (&stored, 1, r#"{"amount": 19.90, "legacy": true}"#),
        (
            &second,
            2,
            r#"{"currency":"EUR","legacy":true,"price":{"total":19.90}}"#,
        ),
        (&third, 3, r#"{"currency":"EUR","price":{"total":19.90}}"#),
    ] {
        let request = only(receiver);
        assert_eq!(request.body, body);
        let header = format!("pillarbox-version: {version}");
        assert!(request.head.contains(&header), "{}", request.head);
    }

    // An event that cannot be upcast is dead with the reason. What is not JSON is delivered as it is.
    enqueue("[1]", &[]);
    enqueue("text", &["--content-type", "text/plain"]);
    daemon.wait_for_stats("two dead", |stats| stats["delivered"] == 7 && stats["dead"] == 2);
    let dead = run(folder.path(), &["events", "ls", "--status", "dead", "--json"]).success();
    assert!(
        dead.contains(
            "version 1 of `OrderCreated` cannot be made into version 2: the payload is no JSON object"
        ),
        "{dead}"
    );
    assert_eq!(third.requests().last().unwrap().body, "text");
    daemon.stop_blocking();
}
