//! The example does what its README says.

use std::process::Command;

const README: &str = include_str!("../README.md");

#[test]
fn everybody_who_was_invited_is_told_of_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_family-hub"))
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // What goes to different families is published in any order.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&said), sorted(story()));
}

/// What the README says that it prints: its last block of text.
fn story() -> &'static str {
    let (_, rest) = README.rsplit_once("```text\n").expect("the block begins");
    rest.split_once("```").expect("the block ends").0
}
