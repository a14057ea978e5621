//! A server that a test may kill: a private one, started with `scripts/services`.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A service for one test. Stopped and removed when it is dropped.
#[derive(Debug)]
pub struct Private {
    name: &'static str,
    dir: TempDir,
    settings: Vec<(&'static str, String)>,
    exports: String,
}

impl Private {
    /// Starts a service by its name in `scripts/services`.
    pub fn start(name: &'static str) -> Self {
        Self::start_with(name, Vec::new())
    }

    /// Starts a service with variables that `scripts/services` reads.
    pub fn start_with(name: &'static str, settings: Vec<(&'static str, String)>) -> Self {
        let mut private = Self {
            name,
            dir: tempfile::tempdir().expect("a folder"),
            settings,
            exports: String::new(),
        };
        private.exports = private.run(&["start", name]);
        private
    }

    /// The address in this variable.
    ///
    /// # Panics
    /// If the service exports no such variable.
    pub fn url(&self, variable: &str) -> String {
        let prefix = format!("export {variable}=");
        let line = self.exports.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("{variable} is not among {}", self.exports))
            .to_owned()
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.run(&["kill", self.name]);
    }

    /// Starts it again, on the same port with the same data.
    pub fn start_again(&self) {
        self.run(&["start", self.name]);
    }

    /// The output of another command of `scripts/services`, for instance `rabbitmqctl`.
    pub fn ask(&self, arguments: &[&str]) -> String {
        self.run(arguments)
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
        script.envs(self.settings.iter().map(|(name, value)| (name, value)));
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
