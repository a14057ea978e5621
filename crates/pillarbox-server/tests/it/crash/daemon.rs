//! One running `pillarbox run`: started, stopped, frozen and killed.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use uuid::Uuid;

/// Long enough for a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon. Killed when it is dropped.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts one with this configuration; what it says goes to `log`.
    pub(crate) fn start(config: &Path, log: PathBuf, variables: &[(&str, &str)]) -> Self {
        let said = File::create(&log).expect("the log can be written");
        let child = Command::new(env!("CARGO_BIN_EXE_pillarbox"))
            .arg("run")
            .arg("--config")
            .arg(config)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(said.try_clone().expect("a second handle"))
            .stderr(said)
            .kill_on_drop(true)
            .spawn()
            .expect("the binary runs");
        Self { child, log }
    }

    /// Asks it to stop, expects that it does so in good order, and returns all it has said.
    pub(crate) async fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.ends().await;
        let said = self.said();
        assert_eq!(status.code(), Some(0), "{status}, and it said: {said}");
        said
    }

    /// `kill -9`.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        let status = self.ends().await;
        assert_eq!(
            status.signal(),
            Some(Signal::KILL.as_raw()),
            "it ended before: {status}"
        );
    }

    /// Waits until it ends at a failpoint.
    pub(crate) async fn aborts_at(mut self, failpoint: &str) {
        let status = self.ends().await;
        let said = self.said();
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}: {said}");
        assert!(
            said.contains(&format!("failpoint {failpoint}:")),
            "died elsewhere: {said}"
        );
    }

    /// Did it end already?
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("nobody has waited for it yet");
        let pid = i32::try_from(id)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        kill_process(pid, signal).expect("the process is there");
    }

    /// Which worker it is, once it has said so.
    pub(crate) fn worker(&self) -> Option<Uuid> {
        let said = self.said();
        let (_, rest) = said.split_once("worker=")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    /// Everything it has said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log is there")
    }

    async fn ends(&mut self) -> ExitStatus {
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.expect("our own child"),
            Err(_) => panic!("it does not end: {}", self.said()),
        }
    }
}

/// Prints the end of each log: what a person wants to see of a test that failed.
pub(crate) fn print_ends(logs: impl Iterator<Item = PathBuf>) {
    for (number, log) in logs.enumerate() {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        // Events that a daemon printed are no part of what it said about itself.
        let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with('{')).collect();
        let last = lines[lines.len().saturating_sub(30)..].join("\n");
        eprintln!("--- the end of what daemon {number} said:\n{last}");
    }
}
