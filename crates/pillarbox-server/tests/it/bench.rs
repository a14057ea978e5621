//! `pillarbox bench`: figures, and nothing left behind.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::command::{Finished, pillarbox, run};
use crate::fixture::postgres_url;

fn assert_complete(figures: &Value) {
    for figure in ["enqueue_per_second", "drain_per_second"] {
        assert!(
            figures[figure].as_f64().is_some_and(|rate| rate > 0.0),
            "{figures}"
        );
    }
    let latency = &figures["latency"];
    assert!(
        latency["samples"].as_u64().is_some_and(|count| count > 0),
        "{figures}"
    );
    let time = |name: &str| latency[name].as_f64().expect(name);
    assert!(
        time("p50_ms") <= time("p99_ms") && time("p99_ms") <= time("slowest_ms"),
        "{figures}"
    );
}

/// The schema that a run named on standard error.
fn schema(finished: &Finished) -> &str {
    let (_, rest) = finished
        .stderr
        .split_once("schema ")
        .expect("it names its schema");
    rest.split_whitespace().next().expect("a name")
}

async fn exists(schema: &str) -> bool {
    let mut connection = PgConnection::connect(&postgres_url()).await.unwrap();
    sqlx::query_scalar("select to_regnamespace($1) is not null")
        .bind(schema)
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[test]
fn without_a_database_it_measures_a_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["bench", "--events", "300", "--seconds", "1", "--json"];
    let finished = run(folder.path(), &arguments);
    assert_eq!(finished.code, 0, "{finished:?}");
    let figures: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_complete(&figures);
    assert!(
        figures["database"].as_str().unwrap().starts_with("sqlite://"),
        "{figures}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_configured_database_is_measured_only_if_that_is_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let config = "database.url = \"shop.db\"\n[[destination]]\nname = \"log\"\ntype = \"log\"\n";
    std::fs::write(folder.path().join("pillarbox.toml"), config).unwrap();
    let arguments = ["bench", "--events", "300", "--seconds", "1", "--json"];
    let refused = run(folder.path(), &arguments);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("not confirmed (name a test database with --database, or confirm with --yes)"),
        "{refused:?}"
    );
    let finished = run(folder.path(), &[&arguments[..], &["--yes"]].concat());
    assert_eq!(finished.code, 0, "{finished:?}");
    assert_complete(&serde_json::from_str(&finished.stdout).unwrap());
}

#[tokio::test]
async fn on_postgresql_it_removes_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let url = postgres_url();
    let arguments = [
        "bench",
        "--database",
        &url,
        "--events",
        "300",
        "--keys",
        "7",
        "--seconds",
        "1",
    ];
    let finished = run(folder.path(), &arguments);
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(
        finished.stdout.contains("events/s") && finished.stdout.contains("p99"),
        "{finished:?}"
    );
    assert!(!exists(schema(&finished)).await, "{finished:?}");
}

#[tokio::test]
async fn a_signal_removes_the_schema_too() {
    let folder = tempfile::tempdir().unwrap();
    let url = postgres_url();
    let arguments = ["bench", "--database", &url, "--events", "100", "--seconds", "600"];
    let mut child = pillarbox(folder.path(), &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut stderr = String::new();
    for line in lines.by_ref() {
        stderr.push_str(&line);
        stderr.push('\n');
        if line.contains("measuring the latency") {
            break;
        }
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    stderr.extend(lines.map(|line| line + "\n"));
    let code = child.wait().unwrap().code();
    let finished = Finished {
        code: code.unwrap_or(-1),
        stdout: String::new(),
        stderr,
    };
    assert_eq!(finished.code, 1, "{finished:?}");
    assert!(finished.stderr.contains("interrupted"), "{finished:?}");
    assert!(!exists(schema(&finished)).await, "{finished:?}");
}

#[test]
fn an_unreachable_database_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let url = "postgres://u:hunter2@127.0.0.1:1/d";
    let error = run(folder.path(), &["bench", "--database", url]).stderr;
    assert!(
        error.contains("connection refused (127.0.0.1:1)") && !error.contains("hunter2"),
        "{error}"
    );
}

#[test]
fn nothing_to_measure_is_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--events", "--rate", "--seconds", "--payload"] {
        assert_eq!(run(folder.path(), &["bench", option, "0"]).code, 2, "{option}");
    }
}
