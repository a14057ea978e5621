//! Tells `pillarbox version` which commit it was built from.
//!
//! The variable `PILLARBOX_COMMIT` names the commit, for builds outside of a Git checkout. Otherwise a release build asks
//! Git. Debug builds do not: they would compile again after every commit.

use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "PILLARBOX_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let commit = std::env::var(VARIABLE).ok().or_else(commit_of_release);
    if let Some(commit) = commit.filter(|commit| !commit.is_empty()) {
        println!("cargo::rustc-env={VARIABLE}={commit}");
    }
}

fn commit_of_release() -> Option<String> {
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // A copy of the source in the repository of another project has another path there.
    if !is_release || git(&["rev-parse", "--show-prefix"])? != "crates/pillarbox-server/" {
        return None;
    }
    // HEAD changes with the branch, its log with every commit. A path that does not exist would run this every time.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What Git prints. `None` where Git or the repository is missing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
