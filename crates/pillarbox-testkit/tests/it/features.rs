//! What an application compiles follows from the features that it asks for.

use std::path::Path;
use std::process::Command;

/// The crates that `pillarbox` brings with these features.
fn tree(features: &str) -> String {
    let arguments = [
        "tree",
        "--package",
        "pillarbox",
        "--no-default-features",
        "--features",
        features,
    ];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--edges", "normal", "--prefix", "none", "--locked", "--offline"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn an_application_on_tokio_postgres_compiles_neither_sqlx_nor_sqlite_nor_zstd() {
    let tree = tree("tokio-postgres");
    let brings = |name: &str| tree.lines().any(|line| line.contains(name));
    assert!(brings("tokio-postgres v"), "{tree}");
    for unwanted in ["sqlx", "sqlite", "zstd", "sea-orm", "diesel"] {
        assert!(!brings(unwanted), "{unwanted}\n{tree}");
    }
}
