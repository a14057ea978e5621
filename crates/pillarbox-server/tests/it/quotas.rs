//! `pillarbox quota`, and the daemon that counts.

use serde_json::json;

use crate::fixture::Fixture;

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";
const TENANT: &str = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5a";

#[test]
fn a_quota_is_set_listed_audited_and_removed() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    assert_eq!(fixture.run(&["quota", "ls"]).success(), "no quotas\n");
    let said = fixture
        .run(&[
            "quota",
            "set",
            "--tenant",
            TENANT,
            "--max-pending",
            "5",
            "--reason",
            "noisy",
        ])
        .success();
    assert_eq!(
        said,
        format!("tenant {TENANT}: at most 5 pending events (before: none)\n")
    );
    let said = fixture.json(&["quota", "set", "--tenant", TENANT, "--max-pending", "2"]);
    let holder = format!("tenant {TENANT}");
    assert_eq!(said, [json!({ "holder": holder, "max_pending": 2, "before": 5 })]);
    fixture
        .run(&["quota", "set", "--each-tenant", "--max-pending", "1000"])
        .success();
    fixture.enqueue(&["shop", "orders", "1", "--tenant", TENANT]);
    let table = fixture.run(&["quota", "ls"]).success();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines,
        [
            vec!["KIND", "NAME", "MAX", "PENDING", "PENDING", "STATE"],
            vec!["tenant", "each", "1000", "–", "within"],
            vec!["tenant", TENANT, "2", "1", "within"],
        ]
    );
    let lines = fixture.json(&["audit", "ls", "--action", "quotas.set"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(
        (&lines[2]["objects"][0], &lines[2]["reason"]),
        (&json!(holder), &json!("noisy"))
    );
    let said = fixture.json(&["quota", "rm", "--each-tenant"]);
    assert_eq!(said, [json!({ "holder": "each tenant", "before": 1000 })]);
    let said = fixture.run(&["quota", "rm", "--tenant", TENANT]).success();
    assert_eq!(
        said,
        format!("tenant {TENANT}: no quota (before: 2 pending events)\n")
    );
    let said = fixture.run(&["quota", "rm", "--role", "nobody"]).failure(1);
    assert!(said.contains("role nobody has no quota"), "{said}");
}

#[test]
fn a_quota_needs_a_holder_a_number_and_postgresql() {
    let fixture = Fixture::sqlite(LOG);
    fixture.run(&["migrate"]).success();
    let said = fixture
        .run(&["quota", "set", "--each-tenant", "--max-pending", "5"])
        .failure(2);
    assert!(said.contains("SQLite has no quotas"), "{said}");
    for wrong in [
        &["--max-pending", "5"][..],
        &["--role", "a", "--each-tenant", "--max-pending", "5"],
        &["--role", "a", "--max-pending", "0"],
        &["--role", "a"],
    ] {
        fixture.run(&[&["quota", "set"], wrong].concat()).failure(2);
    }
}

#[test]
fn the_daemon_counts_and_enqueue_is_rejected_until_events_are_delivered() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    fixture
        .run(&["quota", "set", "--tenant", TENANT, "--max-pending", "2"])
        .success();
    fixture.run(&["destinations", "pause", "log"]).success();
    let daemon = fixture.ready();
    let enqueue = ["enqueue", "shop", "orders", "1", "--tenant", TENANT];
    for _ in 0..3 {
        fixture.run(&enqueue).success();
    }
    daemon.wait_for_log("quota exceeded; its events are rejected");
    let said = fixture.run(&enqueue).failure(1);
    let expected = format!("quota exceeded: tenant {TENANT} has more than 2 pending events");
    assert!(said.contains(&expected), "{said}");
    fixture.run(&["destinations", "resume", "log"]).success();
    daemon.wait_for_log("quota no longer exceeded");
    fixture.run(&enqueue).success();
    daemon.stop_blocking();
}
