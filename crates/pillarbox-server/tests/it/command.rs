//! Runs a command of the binary to its end.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The binary in a folder, without the settings of the shell that runs the tests.
pub(crate) fn pillarbox(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PILLARBOX_") {
            command.env_remove(name);
        }
    }
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    command
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

impl Finished {
    /// Expects exit code 0, and returns standard output.
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// Expects this exit code and an error message, and returns standard error.
    pub(crate) fn failure(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        let is_error = |line: &str| line.starts_with("error: ");
        assert!(self.stderr.lines().any(is_error), "{self:?}");
        self.stderr
    }
}

/// Runs a command.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Finished {
    pillarbox(folder, arguments)
        .output()
        .expect("the binary runs")
        .into()
}

/// Runs a command with this on standard input.
pub(crate) fn run_with_input(folder: &Path, arguments: &[&str], input: &str) -> Finished {
    let mut command = pillarbox(folder, arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("it reads");
    child.wait_with_output().expect("it ends").into()
}
