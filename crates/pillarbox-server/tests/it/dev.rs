//! `pillarbox dev`: what a newcomer sees.

use std::net::TcpListener;

use crate::command::{pillarbox, run};
use crate::daemon::Daemon;

#[test]
fn a_newcomer_sees_orders_delivered_retried_dead_and_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let command = pillarbox(
        folder.path(),
        &[
            "dev",
            "--listen",
            "127.0.0.1:0",
            "--file",
            "shop.db",
            "--orders",
            "10",
        ],
    );
    let daemon = Daemon::start(command);
    // Ten orders: the fourth rolls back, the fifth is dead. Every third one writes a second event.
    let stats = daemon.wait_for_stats("eleven delivered and one dead", |stats| {
        stats["delivered"] == 11 && stats["dead"] == 1
    });
    assert_eq!(stats["worker"]["retried"], 2, "{stats}");
    assert_eq!(stats["exact"], true, "{stats}");
    daemon.wait_for_log("writes a configuration for your own"); // the last line
    let said = daemon.log();
    for line in [
        "order 1 committed",
        "→ OrderPlaced of order 1 delivered to receiver",
        "→ ParcelPacked of order 1 delivered to log",
        "✗ OrderPlaced of order 3: attempt 1 failed: ",
        "retrying in 0.6 s",
        "→ OrderPlaced of order 3 delivered to receiver, on attempt 3",
        "order 4 rolled back",
        "☠ OrderPlaced of order 5 is dead after attempt 1: ",
        "/api/v1/stats",
        "pillarbox events ls --database shop.db",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(
        !said.contains("of order 4"),
        "what rolled back is never sent: {said}"
    );

    let logged = daemon.wait_for_event();
    assert_eq!(logged["payload"]["order"], 1, "{logged}");

    let dead = run(
        folder.path(),
        &["events", "ls", "--database", "shop.db", "--status", "dead"],
    )
    .success();
    assert!(dead.contains("422 Unprocessable Entity"), "{dead}");
    let said = daemon.stop_blocking();
    assert!(said.contains("stopped: "), "{said}");
}

#[test]
fn it_ends_by_itself_when_the_orders_are_done() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().to_str().unwrap().to_owned();
    let mut command = pillarbox(
        folder.path(),
        &[
            "dev",
            "--listen",
            "127.0.0.1:0",
            "--orders",
            "3",
            "--exit-when-done",
        ],
    );
    command.env("TMPDIR", &temporary);
    let mut daemon = Daemon::start(command);
    assert_eq!(daemon.exit_blocking().code(), Some(0), "{}", daemon.log());
    daemon.wait_for_log("stopped: 4 delivered, 2 retried, 0 dead");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "the temporary file is gone"
    );
}

#[test]
fn a_port_in_use_suggests_another() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = run(folder.path(), &["dev", "--listen", &address]).failure(1);
    assert!(
        error.contains(&format!("cannot listen on {address}")) && error.contains("--listen"),
        "{error}"
    );
}

#[test]
fn an_address_that_others_can_reach_must_be_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(folder.path(), &["dev", "--listen", "0.0.0.0:0"]).failure(2);
    assert!(
        error.contains("no authentication") && error.contains("--allow-remote"),
        "{error}"
    );
}
