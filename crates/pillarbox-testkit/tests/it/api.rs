//! The public API is listed in `docs/api`, so that a change is seen in review.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The version of rustdoc's JSON that the crate `public-api` reads, at the version that we depend on.
const FORMAT: u64 = 57;

/// What applications link.
const CRATES: [&str; 4] = [
    "pillarbox",
    "pillarbox_consume",
    "pillarbox_dispatch",
    "pillarbox_sinks",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// rustdoc's JSON of every crate, with all features as in the documentation that is published.
fn document() -> PathBuf {
    let target = std::env::current_exe().expect("this test has a path");
    let target = target
        .ancestors()
        .nth(3)
        .expect("target/debug/deps/it")
        .to_owned();
    let status = Command::new(env!("CARGO"))
        .args([
            "doc",
            "--quiet",
            "--workspace",
            "--all-features",
            "--no-deps",
            "--locked",
        ])
        .current_dir(workspace())
        .env_remove("RUSTC_BOOTSTRAP") // scripts/testing/runner sets it; build scripts would see it
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTDOC", workspace().join("scripts/rustdoc-json"))
        .env(
            "RUSTDOCFLAGS",
            "-Z unstable-options --output-format json --cap-lints allow",
        )
        .status();
    assert!(status.expect("cargo runs").success(), "the documentation is made");
    target.join("doc")
}

fn listed(json: &Path) -> String {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .expect("rustdoc's JSON can be read");
    api.items().map(|item| format!("{item}\n")).collect()
}

#[test]
fn the_public_api_is_the_one_that_is_listed() {
    let made = document();
    for name in CRATES {
        let json = made.join(format!("{name}.json"));
        let text = fs::read(&json).expect("rustdoc wrote it");
        let format = serde_json::from_slice::<Value>(&text).expect("JSON")["format_version"].clone();
        if format != FORMAT {
            let said = format!("skipped: {name}: rustdoc writes format {format}, and we read {FORMAT}\n");
            std::io::stderr()
                .write_all(said.as_bytes())
                .expect("can be written");
            continue;
        }
        let path = workspace().join(format!("docs/api/{name}.txt"));
        let api = listed(&json);
        if std::env::var_os("PILLARBOX_UPDATE").is_some() {
            fs::write(&path, &api).expect("the list can be written");
        }
        let before = fs::read_to_string(&path).unwrap_or_default();
        let changed = |from: &str, to: &str, sign: &str| -> String {
            let gone = from
                .lines()
                .filter(|line| !to.lines().any(|other| other == *line));
            gone.map(|line| format!("{sign} {line}\n")).collect()
        };
        assert!(
            before == api,
            "the public API of {name} is another than docs/api/{name}.txt says:\n{}{}\
             if that is meant, run this test with PILLARBOX_UPDATE=1 and commit the list",
            changed(&before, &api, "-"),
            changed(&api, &before, "+"),
        );
    }
}
