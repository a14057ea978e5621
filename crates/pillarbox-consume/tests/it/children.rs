//! Consumers in processes of their own, which can be killed.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Where a consumer in a process of its own works: said to it by its environment.
pub(crate) const PLACE: &str = "PILLARBOX_TEST_PLACE";

/// A process that runs one of the tests that are not tests. Killed when it is dropped.
pub(crate) struct Consuming(Child);

impl Consuming {
    /// Starts it. `test` is its whole name.
    pub(crate) fn start(test: &str, place: &str, abort_at: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(PLACE, place)
            .stdout(Stdio::null());
        match abort_at {
            Some(at) => command.env("PILLARBOX_ABORT_AT", at).stderr(Stdio::piped()),
            None => command.env_remove("PILLARBOX_ABORT_AT").stderr(Stdio::null()),
        };
        Self(command.spawn().expect("it runs"))
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it ends");
    }

    /// Waits until it ends by itself, and returns what it said.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        let stderr = self.0.stderr.as_mut().expect("it was asked for");
        stderr.read_to_string(&mut said).expect("it speaks UTF-8");
        (self.0.wait().expect("it ends"), said)
    }
}

impl Drop for Consuming {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What this process was told, in parts.
pub(crate) fn place() -> Vec<String> {
    let place = std::env::var(PLACE).expect("said by the test that runs this");
    place.split('|').map(str::to_owned).collect()
}
