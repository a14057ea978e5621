//! `pillarbox run`, on SQLite and without a database at all: health, readiness, signals.

use std::path::Path;

use pillarbox_testkit::process::Signal;
use pillarbox_testkit::wait::until_ok_blocking;

use crate::command::{pillarbox, run};
use crate::daemon::Daemon;
use crate::http::request;
use crate::receiver::{Behaviour, Receiver};

fn daemon(folder: &Path, config: &str, arguments: &[&str]) -> Daemon {
    std::fs::write(folder.join("pillarbox.toml"), config).unwrap();
    let mut all = vec!["run", "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    Daemon::start(pillarbox(folder, &all))
}

fn webhook(database: &str, receiver: &Receiver) -> String {
    format!(
        "database.url = \"{database}\"\n[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"{}\"\n",
        receiver.url()
    )
}

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

#[test]
fn an_enqueued_event_is_delivered_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(Behaviour::Accepts);
    let daemon = daemon(folder.path(), &webhook("outbox.db", &receiver), &["--migrate"]);
    daemon.wait_until_ready();
    run(
        folder.path(),
        &[
            "enqueue",
            "shop",
            "orders",
            "{\"order\": 42}",
            "--type",
            "OrderCreated",
        ],
    )
    .success();
    // The row says so first; the worker counts it when it hears that the row does.
    let stats = daemon.wait_for_stats("one delivered", |stats| {
        stats["delivered"] == 1 && stats["worker"]["delivered"] == 1
    });
    assert_eq!(receiver.bodies(), ["{\"order\": 42}"]);
    assert!(stats["worker"]["id"].is_string());
    let said = daemon.stop_blocking();
    assert!(said.contains("stopped"), "{said}");
}

#[test]
fn a_daemon_without_its_database_is_alive_and_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens on port 1.
    let config = format!("database.url = \"postgres://u:hunter2@127.0.0.1:1/d\"\n{LOG}");
    let daemon = daemon(folder.path(), &config, &[]);
    assert_eq!(daemon.get("/healthz").status, 200);
    daemon.wait_for_log("database unavailable; retrying");
    until_ok_blocking("it says why", || {
        let answer = daemon.get("/readyz");
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            (answer.status, &problem["status"]),
            (503, &serde_json::json!(503))
        );
        assert!(
            answer.head.contains("content-type: application/problem+json"),
            "{answer:?}"
        );
        assert!(
            !answer.body.contains("127.0.0.1"),
            "the log has the reason: {answer:?}"
        );
        match problem["code"].as_str() {
            Some("database_unavailable") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(daemon.get("/api/v1/stats").status, 503);
    let said = daemon.stop_blocking();
    assert_eq!(
        said.matches("database unavailable; retrying").count(),
        1,
        "said once: {said}"
    );
    assert!(
        said.contains("connection refused (127.0.0.1:1)"),
        "the root cause: {said}"
    );
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn errors_are_problem_json() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(
        folder.path(),
        &format!("database.url = \"outbox.db\"\n{LOG}"),
        &["--migrate"],
    );
    let address = daemon.address();
    for (method, path, status, code) in [
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/api/v1/stats", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("GET", "/api/v1/stats?database=nowhere", 404, "unknown_database"),
        ("GET", "/api/v1/stats?colour=red", 400, "invalid_query"),
    ] {
        let answer = request(&address, method, path);
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(
            answer.head.contains("content-type: application/problem+json"),
            "{answer:?}"
        );
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["code"], code);
    }
    daemon.stop_blocking();
}

#[test]
fn a_second_signal_exits_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(Behaviour::Hangs);
    let mut daemon = daemon(folder.path(), &webhook("outbox.db", &receiver), &["--migrate"]);
    daemon.wait_until_ready();
    run(folder.path(), &["enqueue", "shop", "orders", "{}"]).success();
    until_ok_blocking("an attempt is in flight", || match receiver.bodies().len() {
        0 => Err("no request".to_owned()),
        _ => Ok(()),
    });
    daemon.signal(Signal::INT);
    daemon.wait_for_log("shutting down, finishing events in flight");
    assert_eq!(
        daemon.get("/readyz").status,
        503,
        "it is not ready while it drains"
    );
    // Within a second it is the same signal; after that it is the second.
    let exit = until_ok_blocking("a second signal ends it", || {
        daemon.signal(Signal::TERM);
        daemon.try_exit().ok_or_else(|| daemon.log())
    });
    assert_eq!(exit.code(), Some(130), "{}", daemon.log());
}

#[test]
fn a_signal_that_comes_twice_at_once_is_one_signal() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(Behaviour::Hangs);
    let config = format!("dispatch.grace = \"200ms\"\n{}", webhook("outbox.db", &receiver));
    let mut daemon = daemon(folder.path(), &config, &["--migrate"]);
    daemon.wait_until_ready();
    run(folder.path(), &["enqueue", "shop", "orders", "{}"]).success();
    until_ok_blocking("an attempt is in flight", || match receiver.bodies().len() {
        0 => Err("no request".to_owned()),
        _ => Ok(()),
    });
    daemon.signal(Signal::INT);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_blocking().code(), Some(0), "{}", daemon.log());
}

#[test]
fn a_row_not_finished_within_the_grace_is_left_to_its_lease_and_the_exit_code_is_zero() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(Behaviour::Hangs);
    let config = format!("dispatch.grace = \"200ms\"\n{}", webhook("outbox.db", &receiver));
    let daemon = daemon(folder.path(), &config, &["--migrate"]);
    daemon.wait_until_ready();
    run(folder.path(), &["enqueue", "shop", "orders", "{}"]).success();
    until_ok_blocking("an attempt is in flight", || match receiver.bodies().len() {
        0 => Err("no request".to_owned()),
        _ => Ok(()),
    });
    daemon.stop_blocking();
    let stats = run(folder.path(), &["stats", "--json"]).success();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(
        stats["delivered"], 0,
        "an event without a confirmation is not delivered"
    );
    assert_eq!(
        stats["pending"].as_u64().unwrap() + stats["processing"].as_u64().unwrap(),
        1,
        "{stats}"
    );
}

#[test]
fn a_database_without_an_outbox_ends_the_daemon_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("pillarbox.toml"),
        format!("database.url = \"outbox.db\"\n{LOG}"),
    )
    .unwrap();
    let error = run(
        folder.path(),
        &["run", "--listen", "127.0.0.1:0", "--log", "error"],
    )
    .failure(1);
    assert!(error.contains("run `pillarbox migrate`"), "{error}");
}

#[test]
fn the_command_line_wins_over_the_environment_and_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("pillarbox.toml"),
        format!("http.listen = \"x\"\n{LOG}"),
    )
    .unwrap();
    let mut command = pillarbox(
        folder.path(),
        &[
            "run",
            "--migrate",
            "--listen",
            "127.0.0.1:0",
            "--database",
            "a.db",
        ],
    );
    command
        .env("PILLARBOX_DATABASE_URL", "b.db")
        .env("PILLARBOX_HTTP_LISTEN", "y");
    let daemon = Daemon::start(command);
    daemon.wait_until_ready();
    daemon.stop_blocking();
    assert!(folder.path().join("a.db").exists() && !folder.path().join("b.db").exists());
}
