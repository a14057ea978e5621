//! The program prints what its README shows.

use std::process::Command;

const README: &str = include_str!("../README.md");

#[test]
fn the_program_prints_what_its_readme_shows() {
    let output = Command::new(env!("CARGO_BIN_EXE_family-hub"))
        .output()
        .expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Events of different families are published in any order.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&printed), sorted(expected()));
}

/// The last text block of the README.
fn expected() -> &'static str {
    let (_, rest) = README.rsplit_once("```text\n").expect("the block begins");
    rest.split_once("```").expect("the block ends").0
}
