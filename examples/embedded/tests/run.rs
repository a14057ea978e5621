//! Runs the example and compares its output.

use std::process::Command;

#[test]
fn the_example_mails_committed_orders_only() {
    let output = Command::new(env!("CARGO_BIN_EXE_embedded"))
        .output()
        .expect("starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "mailed order 1 (attempt 1)",
        "mailed order 2 (attempt 2)",
        "delivered 2, retried 1",
    ] {
        assert!(stdout.contains(line), "{line} is missing: {stdout}");
    }
    assert!(!stdout.contains("order 3"), "{stdout}");
}
