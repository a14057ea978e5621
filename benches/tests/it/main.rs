//! One tiny run of every scenario, so that all of them keep working. The figures mean nothing here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_pillarbox-bench");

/// A variable that `scripts/test` sets.
fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set (run scripts/test, or eval \"$(scripts/services env)\")")
    })
}

/// The daemon. `cargo test --workspace` has built it; otherwise this builds it.
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
    serde_json::from_slice(&output.stdout).expect("standard output is a JSON array")
}

/// Checks the fields of every measurement.
fn assert_complete(scenarios: &[&str], output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let found = parsed(output);
    let names: Vec<&str> = found.iter().filter_map(|one| one["scenario"].as_str()).collect();
    assert_eq!(names, scenarios, "{errors}");
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
fn drain_is_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let scenarios = ["drain", "drain-unkept"];
    let output = bench(&scenarios, |_| {});
    assert_complete(&scenarios, &output);
}

#[test]
fn all_variants_of_drain_are_measured() {
    let scenarios = [
        "drain-keyed",
        "drain-hot-key",
        "drain-blocked-key",
        "drain-held-snapshot",
        "drain-adopted",
        "fanout",
        "four-workers",
        "isolation",
    ];
    let output = bench(&scenarios, |_| {});
    assert_complete(&scenarios, &output);
}

#[test]
fn the_large_table_has_the_given_rows_and_its_processor_time_is_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["drain-large-table", "--table-rows", "4000"], |_| {});
    assert_complete(&["drain-large-table", "drain-large-table-cpu"], &output);
    assert_eq!(parsed(&output)[0]["details"]["delivered_before"], 4000);
}

#[test]
fn failures_are_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["failures"], |_| {});
    assert_complete(&["failures-1", "failures-10", "failures-dead-1"], &output);
}

#[test]
fn tables_to_paste_are_printed() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let printed = Command::new(BENCH)
        .args(["--smoke", "--markdown", "drain"])
        .stdin(Stdio::null())
        .output()
        .expect("the benchmark starts");
    let text = String::from_utf8_lossy(&printed.stdout);
    assert!(
        text.starts_with("## Results\n") && text.contains("| `drain` | "),
        "{text}"
    );
}

#[test]
fn a_wal_level_without_a_second_server_is_an_error_that_names_it() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["wal-level"], |_| {});
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("--second-postgres"),
        "{errors}"
    );
}

#[test]
fn keys_under_a_held_snapshot_are_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["held-snapshot-keyed"], |_| {});
    assert_complete(&["held-snapshot-keyed", "held-snapshot-keyed-latency"], &output);
}

#[test]
fn enqueue_and_compression_are_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["enqueue", "compression"], |_| {});
    let found = [
        "enqueue-1",
        "enqueue-100",
        "enqueue-keyed-100",
        "enqueue-dedupe-100",
        "enqueue-keyed-dedupe-100",
        "enqueue-prepared-1",
        "enqueue-prepared-100",
        "enqueue-prepared-keyed-100",
        "enqueue-prepared-dedupe-100",
        "enqueue-prepared-keyed-dedupe-100",
        "enqueue-sql-1",
        "enqueue-sql-100",
        "enqueue-sql-keyed-100",
        "enqueue-sql-dedupe-100",
        "enqueue-sql-keyed-dedupe-100",
        "compression-size",
        "compression-time",
    ];
    assert_complete(&found, &output);
}

#[test]
fn rabbitmq_is_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    service("PILLARBOX_TEST_AMQP_URL");
    let output = bench(&["rabbitmq"], |_| {});
    assert_complete(&["rabbitmq", "rabbitmq-quorum"], &output);
}

#[cfg(feature = "kafka")]
#[test]
fn kafka_is_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    service("PILLARBOX_TEST_KAFKA_BROKERS");
    let output = bench(&["kafka"], |_| {});
    assert_complete(&["kafka"], &output);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn without_the_feature_kafka_the_error_names_it() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["kafka"], |_| {});
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("--features kafka"),
        "{errors}"
    );
}

#[test]
fn memory_and_idle_queries_of_the_daemon_are_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let daemon = daemon();
    let output = bench(&["memory", "idle"], |command| {
        command.arg("--daemon").arg(&daemon);
    });
    assert_complete(&["memory", "memory-large", "idle"], &output);
}

#[test]
fn latency_is_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let daemon = daemon();
    let output = bench(&["latency"], |command| {
        command.arg("--daemon").arg(&daemon);
    });
    let rates = [
        "latency-1",
        "latency-20",
        "latency-200",
        "latency-1000",
        "latency-5000",
    ];
    assert_complete(&rates, &output);
}

#[test]
fn a_failing_scenario_is_reported_and_the_others_are_measured() {
    service("PILLARBOX_TEST_POSTGRES_URL");
    let output = bench(&["rabbitmq", "drain"], |command| {
        command.env("PILLARBOX_TEST_AMQP_URL", "amqp://127.0.0.1:1/%2f");
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("rabbitmq could not be measured"), "{errors}");
    assert_eq!(parsed(&output).len(), 1, "drain was measured: {errors}");
}
