//! One tiny round of every benchmark, so that none of them rots. The figures mean nothing here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_pillarbox-bench");

/// A variable that `scripts/test` sets.
fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set; run the tests by scripts/test, or eval \"$(scripts/services env)\"")
    })
}

/// The daemon that `cargo test --workspace` has built; built now if only this crate is being tested.
fn daemon() -> PathBuf {
    let daemon = Path::new(BENCH).with_file_name("pillarbox");
    if !daemon.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "pillarbox-server", "--bin", "pillarbox"]);
        build.env_remove("RUSTC_BOOTSTRAP"); // scripts/testing/runner sets it; build scripts would see it
        let built = build.status().expect("cargo runs");
        assert!(
            built.success() && daemon.exists(),
            "the daemon is built: {}",
            daemon.display()
        );
    }
    daemon
}

fn bench(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(BENCH);
    command
        .args(["--smoke", "--json"])
        .args(arguments)
        .stdin(Stdio::null());
    change(&mut command);
    command.output().expect("the benchmark starts")
}

fn parsed(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout).expect("standard output is an array and nothing else")
}

/// What every object must say.
fn assert_is_sound(scenarios: &[&str], output: &Output) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let found = parsed(output);
    let names: Vec<&str> = found.iter().filter_map(|one| one["scenario"].as_str()).collect();
    assert_eq!(names, scenarios, "{told}");
    for one in &found {
        for number in ["value", "peer_value", "ratio"] {
            assert!(
                one[number].as_f64().is_some_and(|number| number > 0.0),
                "{number} in {one}"
            );
        }
        for text in ["unit", "against"] {
            assert!(
                one[text].as_str().is_some_and(|text| !text.is_empty()),
                "{text} in {one}"
            );
        }
        assert!(one["met"].is_boolean() && one["target"].is_object(), "{one}");
    }
}

#[test]
fn a_backlog_is_drained_into_nothing() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["drain"], |_| {});
    assert_is_sound(&["drain"], &output);
}

#[test]
fn a_backlog_is_drained_with_keys_to_many_and_by_many() {
    let scenarios = [
        "drain-keyed",
        "drain-hot-key",
        "drain-blocked-key",
        "drain-held-snapshot",
        "drain-large-table",
        "drain-adopted",
        "fanout",
        "four-workers",
        "isolation",
    ];
    let output = bench(&scenarios, |_| {});
    assert_is_sound(&scenarios, &output);
}

#[test]
fn an_enqueue_is_held_against_the_bare_insert() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["enqueue", "compression"], |_| {});
    let found = [
        "enqueue-1",
        "enqueue-100",
        "enqueue-prepared-1",
        "enqueue-prepared-100",
        "enqueue-sql-1",
        "enqueue-sql-100",
        "compression-size",
        "compression-time",
    ];
    assert_is_sound(&found, &output);
}

#[test]
fn a_backlog_is_drained_into_rabbitmq() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    service("PILLARBOX_TEST_AMQP_URL");
    let output = bench(&["rabbitmq"], |_| {});
    assert_is_sound(&["rabbitmq"], &output);
}

#[cfg(feature = "kafka")]
#[test]
fn a_backlog_is_drained_into_kafka() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    service("PILLARBOX_TEST_KAFKA_BROKERS");
    let output = bench(&["kafka"], |_| {});
    assert_is_sound(&["kafka"], &output);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_says_how_to_build_it() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["kafka"], |_| {});
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && told.contains("--features kafka"),
        "{told}"
    );
}

#[test]
fn the_daemon_is_watched() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let daemon = daemon();
    let output = bench(&["memory", "idle"], |command| {
        command.arg("--daemon").arg(&daemon);
    });
    assert_is_sound(&["memory", "memory-large", "idle"], &output);
}

#[test]
fn single_events_are_timed() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["latency"], |_| {});
    assert_is_sound(&["latency"], &output);
}

#[test]
fn what_cannot_be_measured_is_named_and_keeps_nothing_else_from_being_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["rabbitmq", "drain"], |command| {
        command.env("PILLARBOX_TEST_AMQP_URL", "amqp://127.0.0.1:1/%2f");
    });
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.contains("rabbitmq could not be measured"), "{told}");
    assert_eq!(parsed(&output).len(), 1, "drain was measured: {told}");
}
