//! Runs the commands of README.md and docs/getting-started.md as they are written, in their order.
//!
//! | in the page | here |
//! |---|---|
//! | a block `sh` | runs in one folder; it must succeed |
//! | its line `export NAME=…` | NAME has the address of a test service |
//! | its last line `pillarbox run` | runs in the background; the next block waits until it is ready |
//! | `cargo` | does not build: `install` checks its arguments, `run` runs the binary of this test |
//! | a block `sql` | runs with psql |
//! | a block `toml` | is in `pillarbox.toml` |
//! | a block `text` after one of these | every line is in their output; `…` stands for any text |

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pillarbox_testkit::environment::{authority, unique_name, variable};
use pillarbox_testkit::fixture::Database;
use pillarbox_testkit::wait::until_ok_blocking;

use crate::command::{Finished, pillarbox};
use crate::daemon::Daemon;

/// One code block of a page.
#[derive(Debug)]
struct Block {
    language: String,
    text: String,
    line: usize,
}

/// The code blocks of a page. A block in a list is indented.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut indent = None;
    for (number, line) in page.lines().enumerate() {
        let text = line.trim_start();
        match (indent, text.strip_prefix("```")) {
            (None, Some(language)) => {
                indent = Some(line.len() - text.len());
                blocks.push(Block {
                    language: language.to_owned(),
                    text: String::new(),
                    line: number + 1,
                });
            }
            (Some(_), Some("")) => indent = None,
            (Some(indent), _) => {
                let block = blocks.last_mut().expect("a block has begun");
                block.text += line.get(indent..).unwrap_or_default();
                block.text += "\n";
            }
            (None, None) => {}
        }
    }
    blocks
}

/// What a page needs: a folder, a database, and a virtual host of RabbitMQ.
struct Reader {
    folder: tempfile::TempDir,
    database: Database,
    vhost: String,
    runtime: tokio::runtime::Runtime,
}

impl Reader {
    fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let reader = Self {
            folder: tempfile::tempdir().unwrap(),
            database: runtime.block_on(Database::create("page")),
            vhost: unique_name("page"),
            runtime,
        };
        reader.write_programs();
        reader.configure_rabbitmqadmin();
        reader
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_programs(&self) {
        std::fs::create_dir(self.path("bin")).unwrap();
        let binary = env!("CARGO_BIN_EXE_pillarbox");
        std::os::unix::fs::symlink(binary, self.path("bin/pillarbox")).unwrap();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cargo = format!(
            r#"#!/bin/sh
set -eu
case "$*" in
    "install --locked --path crates/pillarbox-server --features full") grep -q '^full = ' '{0}/crates/pillarbox-server/Cargo.toml' ;;
    "run --release --locked -- "*) shift 4; exec '{binary}' "$@" ;;
    "new "*) mkdir -p "$2" ;;
    "add "*) ;;
    *) echo "cargo $*: not in this test" >&2; exit 1 ;;
esac
"#,
            repository.display()
        );
        std::fs::write(self.path("bin/cargo"), cargo).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path("bin/cargo"), executable).unwrap();
    }

    fn configure_rabbitmqadmin(&self) {
        let url = variable("PILLARBOX_TEST_RABBITMQ_MANAGEMENT_URL");
        let (host, port) = authority(&url).split_once(':').unwrap();
        let vhost = &self.vhost;
        let config = format!(
            "[default]\nhostname = {host}\nport = {port}\nusername = guest\npassword = guest\n\
             vhost = {vhost}\ndeclare_vhost = {vhost}\n"
        );
        std::fs::write(self.path(".rabbitmqadmin.conf"), config).unwrap();
        self.shell(&format!(
            "rabbitmqadmin declare vhost name={vhost} && \
             rabbitmqadmin declare permission vhost={vhost} user=guest 'configure=.*' 'write=.*' 'read=.*'"
        ))
        .success();
    }

    /// The environment of every command.
    fn prepare(&self, command: &mut Command) {
        let amqp = variable("PILLARBOX_TEST_AMQP_URL");
        let amqp = amqp.replace("/%2f", &format!("/{}", self.vhost));
        let path = std::env::var("PATH").unwrap();
        command
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.folder.path())
            .env("DATABASE_URL", &self.database.url)
            .env("AMQP_URL", amqp)
            .env("PILLARBOX_HTTP_LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null());
    }

    fn shell(&self, script: &str) -> Finished {
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PILLARBOX_") {
                command.env_remove(name);
            }
        }
        self.prepare(&mut command);
        command
            .args(["-euc", &format!("exec 2>&1\n{script}")])
            .output()
            .unwrap()
            .into()
    }

    fn sql(&self, statements: &str) -> Finished {
        std::fs::write(self.path("block.sql"), statements).unwrap();
        self.shell("psql -X -v ON_ERROR_STOP=1 \"$DATABASE_URL\" -f block.sql")
    }

    fn daemon(&self) -> Daemon {
        let mut command = pillarbox(self.folder.path(), &["run"]);
        self.prepare(&mut command);
        let daemon = Daemon::start(command);
        daemon.wait_until_ready();
        daemon
    }

    /// Runs a page.
    fn follow(&self, page: &str) {
        let mut daemon = None;
        let all = blocks(page);
        let mut blocks = all.iter().peekable();
        while let Some(block) = blocks.next() {
            let expected = blocks.peek().filter(|next| next.language == "text");
            let expected = expected.map_or("", |next| next.text.as_str());
            match block.language.as_str() {
                "sh" => {
                    let (script, runs) = runnable(&block.text);
                    self.check(block, expected, || self.shell(&script));
                    if runs {
                        daemon = Some(self.daemon());
                    }
                }
                "sql" => self.check(block, expected, || self.sql(&block.text)),
                "toml" => self.is_configured(block),
                _ => {}
            }
        }
        daemon.expect("the page starts the daemon").stop_blocking();
    }

    /// Runs a block until its output is as the page shows it: a delivery takes a moment.
    fn check(&self, block: &Block, expected: &str, run: impl Fn() -> Finished) {
        until_ok_blocking(&format!("line {}: {}", block.line, block.text), || {
            let finished = run();
            if finished.code == 0 && shows(&finished.stdout, expected) {
                Ok(())
            } else {
                Err(format!("{}\nexpected:\n{expected}", finished.stdout))
            }
        });
    }

    /// Does the file that `init` has written have this, but for the addresses?
    fn is_configured(&self, block: &Block) {
        let written = std::fs::read_to_string(self.path("pillarbox.toml")).unwrap();
        let keys = |text: &str| -> Vec<String> {
            let lines = text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            let lines = lines.map(|line| match line.strip_prefix("url = ") {
                Some(_) => "url".to_owned(),
                None => line.to_owned(),
            });
            lines.collect()
        };
        assert_eq!(keys(&block.text), keys(&written), "line {}", block.line);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let vhost = &self.vhost;
        self.shell(&format!("rabbitmqadmin delete vhost name={vhost} || true"));
        self.runtime.block_on(self.database.clone().drop());
    }
}

/// The script of a block, and whether it starts the daemon.
fn runnable(text: &str) -> (String, bool) {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("export ")).collect();
    let is_run = |line: &&str| {
        line.split('#')
            .next()
            .is_some_and(|line| line.trim() == "pillarbox run")
    };
    match lines.split_last() {
        Some((last, rest)) if is_run(last) => (rest.join("\n"), true),
        _ => (lines.join("\n"), false),
    }
}

/// Is every expected line in the output, in this order?
fn shows(output: &str, expected: &str) -> bool {
    let mut lines = output.lines();
    expected
        .lines()
        .all(|expected| lines.any(|line| matches(line, expected)))
}

fn matches(line: &str, expected: &str) -> bool {
    let mut parts = expected.trim_end().split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let is_exact = !expected.contains('…');
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    !is_exact || rest.trim_end().is_empty()
}

#[test]
fn the_readme_works_as_it_is_written() {
    let readme = include_str!("../../../../README.md");
    // The sample shop runs until it is stopped, and has its own test.
    let (_, steps) = readme.split_once("\n## Set it up\n").expect("the steps begin");
    Reader::new().follow(steps);
}

#[test]
fn getting_started_works_as_it_is_written() {
    let page = include_str!("../../../../docs/getting-started.md");
    let (_, steps) = page
        .split_once("\n## Connect your own database\n")
        .expect("the steps begin");
    let (steps, _) = steps.split_once("\n## ").expect("another section follows");
    Reader::new().follow(steps);
}

#[test]
fn both_pages_take_the_same_steps() {
    let commands = |page: &str| -> Vec<String> {
        let blocks = blocks(page).into_iter().filter(|block| block.language == "sh");
        let text: Vec<String> = blocks.map(|block| block.text).collect();
        let lines = text.concat();
        let lines = lines
            .lines()
            .map(|line| line.split(" #").next().unwrap_or_default().trim());
        lines
            .filter(|line| {
                line.starts_with("pillarbox ")
                    || line.starts_with("cargo install")
                    || line.starts_with("rabbitmqadmin declare")
            })
            .take_while(|line| *line != "pillarbox run")
            .map(str::to_owned)
            .collect()
    };
    let readme = include_str!("../../../../README.md");
    let (_, page) = include_str!("../../../../docs/getting-started.md")
        .split_once("\n## Connect your own database\n")
        .expect("the steps begin");
    assert_eq!(commands(readme), commands(page));
}

/// `cargo install` knows no dev-dependency, so a feature that names one cannot be installed.
#[test]
fn the_features_of_the_install_command_need_no_dev_dependency() {
    let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    for feature in ["default", "full"] {
        let parts = manifest["features"][feature].as_array().unwrap();
        for part in parts.iter().filter_map(toml::Value::as_str) {
            let (dependency, _) = part.split_once('/').expect("a feature of a dependency");
            assert!(dependencies.contains_key(dependency), "{feature}: {part}");
        }
    }
}

/// The version of sqlx in the pages is the one that Pillarbox uses: another one has other transactions.
#[test]
fn the_pages_name_the_version_of_sqlx() {
    let manifest = include_str!("../../../../Cargo.toml");
    let (_, version) = manifest.split_once("\nsqlx = { version = \"").expect("a version");
    let (version, _) = version.split_once('"').expect("a version");
    for page in [
        include_str!("../../../../README.md"),
        include_str!("../../../../docs/getting-started.md"),
    ] {
        let lines: Vec<&str> = page
            .lines()
            .filter(|line| line.contains("cargo add sqlx@"))
            .collect();
        assert!(!lines.is_empty());
        for line in lines {
            assert!(line.contains(&format!("cargo add sqlx@{version} ")), "{line}");
        }
    }
}
