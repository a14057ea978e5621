//! Enqueue, list, count, retry and delete on a SQLite file, with the command line.

use std::path::Path;

use crate::command::{Finished, run, run_with_input};

struct Outbox(tempfile::TempDir);

impl Outbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &["migrate", "--database", "outbox.db"]).success();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        let mut all = arguments.to_vec();
        all.extend(["--database", "outbox.db"]);
        run(self.path(), &all)
    }

    fn enqueue(&self, arguments: &[&str]) -> String {
        let mut all = vec!["enqueue", "shop", "orders"];
        all.extend(arguments);
        let printed = self.run(&all).success();
        printed.split(' ').next().expect("an id").to_owned()
    }

    /// Changes rows as no command would.
    fn sql(&self, sql: &'static str) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            use sqlx::Connection;
            let url = format!("sqlite://{}", self.path().join("outbox.db").display());
            let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        });
    }

    fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&self.run(&["stats", "--json"]).success()).unwrap()
    }
}

#[test]
fn an_event_is_enqueued_listed_shown_and_counted() {
    let outbox = Outbox::new();
    let id = outbox.enqueue(&[
        "{\"order\": 42}",
        "--type",
        "OrderCreated",
        "--key",
        "order-42",
        "--aggregate",
        "order/42",
        "--header",
        "trace=abc",
    ]);
    let listed = outbox.run(&["events", "ls"]).success();
    assert!(
        listed.contains(&id) && listed.contains("OrderCreated") && listed.contains("pending"),
        "{listed}"
    );
    let line = outbox
        .run(&[
            "events", "ls", "--json", "--status", "pending", "--topic", "orders",
        ])
        .success();
    let record: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(record["id"], id.as_str());
    assert_eq!(record["headers"]["trace"], "abc");
    assert_eq!(
        outbox.run(&["events", "ls", "--namespace", "other"]).success(),
        "no events\n"
    );
    let shown = outbox.run(&["events", "show", &id]).success();
    for text in [
        "status          pending",
        "aggregate id    42",
        "payload:\n  {\n    \"order\": 42\n  }",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert_eq!(outbox.stats()["pending"], 1);
    let table = outbox.run(&["stats"]).success();
    assert!(table.contains("pending     1"), "{table}");
}

#[test]
fn a_known_dedupe_key_is_reported_as_a_duplicate() {
    let outbox = Outbox::new();
    let arguments = ["enqueue", "shop", "orders", "{}", "--dedupe-key", "k"];
    let first = outbox.run(&arguments).success();
    let second = outbox.run(&arguments).success();
    assert!(first.ends_with(" new\n"), "{first}");
    assert_eq!(second, first.replace(" new", " duplicate"));
    let json = outbox.run(&[&arguments[..], &["--json"]].concat()).success();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["new"], false);
}

#[test]
fn a_payload_comes_from_a_file_or_from_standard_input() {
    let outbox = Outbox::new();
    std::fs::write(outbox.path().join("cat.png"), [0x89, b'P', 0, 1]).unwrap();
    let id = outbox.enqueue(&["@cat.png", "--content-type", "image/png"]);
    let shown = outbox.run(&["events", "show", &id]).success();
    assert!(shown.contains("(4 bytes that are not JSON)"), "{shown}");
    let arguments = ["enqueue", "shop", "orders", "-", "--database", "outbox.db"];
    run_with_input(outbox.path(), &arguments, "[1, 2]").success();
    let error = outbox
        .run(&["enqueue", "shop", "orders", "@nowhere.json"])
        .failure(1);
    assert!(error.contains("cannot read nowhere.json"), "{error}");
}

#[test]
fn a_bad_event_is_refused_with_what_to_do() {
    let outbox = Outbox::new();
    let tenant = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55";
    for (arguments, expected) in [
        (&["enqueue", "shop", "orders", "{oops"][..], "not valid JSON"),
        (&["enqueue", "shop", "", "{}"], "`topic` is empty"),
        (&["enqueue", "shop", "orders", "\"\\u0000\""], "\\u0000"),
        (
            &[
                "enqueue",
                "shop",
                "orders",
                "{}",
                "--tenant",
                tenant,
                "--dedupe-key",
                "k",
            ],
            "does not begin with",
        ),
    ] {
        let error = outbox.run(arguments).failure(1);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    assert_eq!(outbox.stats()["pending"], 0);
}

#[test]
fn the_largest_payload_is_configurable() {
    let outbox = Outbox::new();
    let config = "database.url = \"outbox.db\"\nlimits.max_payload = \"1KiB\"\n[[destination]]\nname = \"l\"\ntype = \"log\"\n";
    std::fs::write(outbox.path().join("pillarbox.toml"), config).unwrap();
    let large = format!("\"{}\"", "x".repeat(1024));
    let error = run(outbox.path(), &["enqueue", "shop", "orders", &large]).failure(1);
    assert!(
        error.contains("the payload is 1026 bytes; the limit is 1024"),
        "{error}"
    );
    run(outbox.path(), &["enqueue", "shop", "orders", "\"small\""]).success();
}

#[test]
fn many_events_are_read_line_by_line() {
    let outbox = Outbox::new();
    let lines: String = (0..2500)
        .map(|n| format!("{{\"topic\": \"t{}\", \"payload\": {n}}}\n", n % 2))
        .collect();
    let arguments = ["enqueue", "shop", "--ndjson", "--database", "outbox.db"];
    let printed = run_with_input(outbox.path(), &arguments, &lines).success();
    assert_eq!(printed.lines().count(), 2500);
    assert_eq!(outbox.stats()["pending"], 2500);

    let bad = format!("{lines}{{\"topic\": \"t\", \"payload\": 1, \"colour\": 2}}\n");
    let error = run_with_input(outbox.path(), &arguments, &bad).failure(1);
    assert!(error.contains("line 2501: unknown field `colour`"), "{error}");
    assert!(error.contains("lines 1 to 2000 were enqueued"), "{error}");
}

#[test]
fn a_line_may_say_when_it_is_to_be_sent() {
    let outbox = Outbox::new();
    let arguments = ["enqueue", "shop", "orders", "--ndjson", "--database", "outbox.db"];
    let line = "{\"payload\": 1, \"deliver_at\": \"2020-01-31T12:00:00+01:00\"}\n";
    run_with_input(outbox.path(), &arguments, line).success();
    for (at, expected) in [
        ("soon", "line 1: "),
        ("2999-01-31T12:00:00Z", "the latest is 400 days from now"),
    ] {
        let line = format!("{{\"payload\": 1, \"deliver_at\": \"{at}\"}}\n");
        let error = run_with_input(outbox.path(), &arguments, &line).failure(1);
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(outbox.stats()["pending"], 1);
}

#[test]
fn a_dead_event_is_retried_by_id_or_with_all_others() {
    let outbox = Outbox::new();
    let first = outbox.enqueue(&["1"]);
    let second = outbox.enqueue(&["2"]);
    outbox.sql("update outbox_events set status = 'dead', attempts = 5, last_error = '500'");
    assert_eq!(outbox.stats()["dead"], 2);
    assert_eq!(
        outbox.run(&["events", "retry", &first]).success(),
        format!("{first} retried\n")
    );
    assert_eq!(outbox.stats()["dead"], 1);
    assert_eq!(
        outbox
            .run(&["events", "retry", "--dead", "--topic", "other"])
            .success(),
        "0 retried\n"
    );
    assert_eq!(
        outbox.run(&["events", "retry", "--dead"]).success(),
        "1 retried\n"
    );
    assert_eq!(outbox.stats()["pending"], 2);

    outbox.sql("update outbox_events set status = 'delivered'");
    let error = outbox.run(&["events", "retry", &second]).failure(1);
    assert!(error.contains(&format!("not retried: {second}")), "{error}");
}

#[test]
fn an_event_is_deleted_only_with_a_confirmation() {
    let outbox = Outbox::new();
    let id = outbox.enqueue(&["1"]);
    let error = outbox.run(&["events", "delete", &id]).failure(2);
    assert!(error.contains("--yes"), "{error}");
    assert_eq!(outbox.stats()["pending"], 1);
    assert_eq!(
        outbox.run(&["events", "delete", &id, "--yes"]).success(),
        format!("{id} deleted\n")
    );
    assert_eq!(outbox.stats()["pending"], 0);
    outbox.run(&["events", "delete", &id, "--yes"]).failure(1);
    let error = outbox.run(&["events", "show", &id]).failure(1);
    assert!(error.contains("no event has the id"), "{error}");
}

#[test]
fn rows_of_other_programs_are_shown_and_cannot_move_the_cursor() {
    let outbox = Outbox::new();
    let id = outbox.enqueue(&["{\"a\": \"\u{9b}2J\"}", "--type", "x\u{1b}[31m"]);
    outbox.sql("update outbox_events set status = 'NEW', attempts = -3, last_error = 'bell' || char(7)");
    for arguments in [
        &["events", "ls"][..],
        &["events", "ls", "--status", "unknown"],
        &["events", "show", &id],
    ] {
        let printed = outbox.run(arguments).success();
        assert!(
            printed.contains("NEW") && printed.contains("\\u{1b}[31m"),
            "{printed}"
        );
        assert!(
            !printed.chars().any(|c| c.is_control() && c != '\n'),
            "{printed:?}"
        );
    }
    assert_eq!(outbox.stats()["unknown"], 1);
}

#[test]
fn a_long_list_is_read_page_by_page() {
    let outbox = Outbox::new();
    let lines: String = (0..5).map(|n| format!("{{\"payload\": {n}}}\n")).collect();
    run_with_input(
        outbox.path(),
        &["enqueue", "s", "t", "--ndjson", "--database", "outbox.db"],
        &lines,
    )
    .success();
    let page = outbox.run(&["events", "ls", "--limit", "3"]).success();
    let hint = page.lines().last().unwrap();
    let before = hint.trim_end_matches(')').rsplit(' ').next().unwrap();
    assert!(hint.contains("--before"), "{page}");
    let rest = outbox
        .run(&["events", "ls", "--json", "--before", before])
        .success();
    assert_eq!(rest.lines().count(), 2, "{rest}");
}

#[test]
fn a_file_without_an_outbox_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(folder.path(), &["stats", "--database", "nowhere.db"]).failure(1);
    assert!(
        error.contains("nowhere.db") && error.contains("pillarbox migrate"),
        "{error}"
    );
    assert!(!folder.path().join("nowhere.db").exists());
}

#[test]
fn a_newer_schema_is_refused() {
    let outbox = Outbox::new();
    outbox.sql("insert into pillarbox_migrations (version, name) values (999, 'from the future')");
    for arguments in [&["stats"][..], &["migrate"], &["enqueue", "a", "b", "{}"]] {
        let error = outbox.run(arguments).failure(1);
        assert!(
            error.contains("version 999") && error.contains("newer pillarbox"),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn old_events_are_counted_and_deleted() {
    let outbox = Outbox::new();
    let kept = outbox.enqueue(&["{}"]);
    for _ in 0..3 {
        outbox.enqueue(&["{}", "--type", "Old"]);
    }
    outbox.sql(
        "update outbox_events set status = 'delivered', delivered_at = '2020-01-01T00:00:00.000000Z' where event_type = 'Old'",
    );
    let old = ["events", "delete", "--status", "delivered", "--older-than", "30d"];
    let with = |more: &[&'static str]| -> Vec<&str> { old.iter().chain(more).copied().collect() };
    let counted = outbox.run(&with(&["--dry-run"])).success();
    assert_eq!(
        counted.trim(),
        "3 delivered rows would be deleted: their events ended 30 days ago or earlier"
    );
    let counted = outbox
        .run(&with(&["--dry-run", "--json", "--namespace", "other"]))
        .success();
    assert_eq!(counted.trim(), r#"{"found":0,"status":"delivered"}"#);
    assert_eq!(outbox.stats()["delivered"], 3);
    outbox.run(&with(&[])).failure(2);
    let deleted = outbox.run(&with(&["--yes", "--reason", "ticket 4711"])).success();
    assert_eq!(deleted.trim(), "3 rows deleted: 3 delivered, 0 dead");
    let left = outbox.run(&["events", "ls"]).success();
    assert!(left.contains(&kept) && outbox.stats()["delivered"] == 0, "{left}");
    let audit = outbox.run(&["audit", "ls", "--json"]).success();
    assert!(
        audit.contains("older_than=2592000s") && audit.contains("ticket 4711"),
        "{audit}"
    );
    outbox.run(&["events", "delete", "--status", "dead"]).failure(2);
}
