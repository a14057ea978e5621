//! Where PostgreSQL and RabbitMQ are: those that all tests share, or some that a test may kill.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A variable that `scripts/test` sets.
pub(super) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set; run the tests by scripts/test, or eval \"$(scripts/services env)\"")
    })
}

/// The addresses of what a world needs.
#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) postgres: String,
    pub(super) amqp: String,
}

impl Services {
    pub(super) fn shared() -> Self {
        Self {
            postgres: variable("PILLARBOX_TEST_POSTGRES_URL"),
            amqp: variable("PILLARBOX_TEST_AMQP_URL"),
        }
    }
}

/// One service of the test's own. Stopped and removed when it is dropped.
pub(super) struct Private {
    name: &'static str,
    dir: TempDir,
    exports: String,
}

impl Private {
    pub(super) fn start(name: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut private = Self {
            name,
            dir,
            exports: String::new(),
        };
        private.exports = private.run(&["start", name]);
        private
    }

    /// The address that it exports under this name.
    pub(super) fn url(&self, variable: &str) -> String {
        let prefix = format!("export {variable}=");
        let line = self.exports.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("{variable} is not among {}", self.exports))
            .to_owned()
    }

    /// `kill -9`, then the same again on the same port with the same data.
    pub(super) fn kill_and_start(&self) {
        self.run(&["kill", self.name]);
        self.run(&["start", self.name]);
    }

    /// PostgreSQL's own word for a crash: no checkpoint, every connection cut.
    pub(super) fn restart_immediately(&self) {
        self.run(&["restart", self.name, "--mode", "immediate"]);
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.script().args(arguments).output().expect("the script runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "scripts/services {arguments:?}: {errors}"
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn script(&self) -> Command {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "scripts", "services"]
            .iter()
            .collect();
        let mut script = Command::new(path);
        script.env("PILLARBOX_SERVICES_DIR", self.dir.path());
        script
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // Not through `run`: a panic while another unwinds would hide the first.
        if let Err(error) = self.script().arg("stop").output() {
            eprintln!("{} was not stopped: {error}", self.name);
        }
    }
}
