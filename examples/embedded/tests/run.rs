//! The example does what it says.

use std::process::Command;

#[test]
fn the_example_mails_what_committed_and_nothing_else() {
    let output = Command::new(env!("CARGO_BIN_EXE_embedded"))
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "mailed order 1 (attempt 1)",
        "mailed order 2 (attempt 2)",
        "delivered 2, retried 1",
    ] {
        assert!(said.contains(line), "{line} is missing: {said}");
    }
    assert!(!said.contains("order 3"), "{said}");
}
