//! A running daemon: `pillarbox run` or `pillarbox dev`.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use pillarbox_testkit::process::{Process, Signal};
use pillarbox_testkit::wait::until_ok_blocking;
use serde_json::Value;
use uuid::Uuid;

use crate::http::{Response, request};

/// A daemon. Killed when it is dropped.
pub(crate) struct Daemon(Process);

impl Daemon {
    /// Starts it. Standard output has the events that go to a log, standard error has its log.
    pub(crate) fn start(command: Command) -> Self {
        Self(Process::start(command))
    }

    /// Starts `pillarbox run` with this configuration and one file for all output, which outlives the daemon.
    pub(crate) fn start_with_log(config: &Path, log: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command
            .arg("run")
            .arg("--config")
            .arg(config)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        Self(Process::start_with_log(command, log))
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        self.0.stderr()
    }

    /// Its standard output so far.
    pub(crate) fn stdout(&self) -> String {
        self.0.stdout()
    }

    /// Waits until its log contains this.
    pub(crate) fn wait_for_log(&self, text: &str) {
        until_ok_blocking(&format!("the log contains {text:?}"), || {
            let log = self.log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        });
    }

    /// Waits until it has written an event to standard output, and returns the first.
    pub(crate) fn wait_for_event(&self) -> Value {
        let first = until_ok_blocking("an event is on standard output", || {
            let stdout = self.stdout();
            let complete = stdout.split_inclusive('\n').find(|line| line.ends_with('\n'));
            complete.map(str::to_owned).ok_or_else(|| self.log())
        });
        serde_json::from_str(&first).expect("one JSON object per line")
    }

    /// The address of its HTTP server, from its log.
    pub(crate) fn address(&self) -> String {
        self.wait_for_log("listening");
        let log = self.log();
        let (_, rest) = log.split_once("listening").expect("just found");
        let (_, rest) = rest.split_once("http://").expect("an address");
        rest.chars()
            .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
            .collect()
    }

    /// Sends a GET request to its HTTP server.
    pub(crate) fn get(&self, path: &str) -> Response {
        request(&self.address(), "GET", path)
    }

    /// Waits until `/readyz` answers 200.
    pub(crate) fn wait_until_ready(&self) {
        until_ok_blocking("the daemon is ready", || match self.get("/readyz") {
            Response { status: 200, .. } => Ok(()),
            other => Err(format!("{other:?}\n{}", self.log())),
        });
    }

    /// Waits until its statistics satisfy the condition, and returns them.
    pub(crate) fn wait_for_stats(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        until_ok_blocking(what, || {
            let response = self.get("/api/v1/stats");
            let stats: Value = serde_json::from_str(&response.body).unwrap_or_default();
            if condition(&stats) {
                Ok(stats)
            } else {
                Err(format!("{response:?}\n{}", self.log()))
            }
        })
    }

    /// Its worker id, once the log has it.
    pub(crate) fn worker(&self) -> Option<Uuid> {
        let log = self.log();
        let (_, rest) = log.split_once("worker=")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Its exit status, if it has ended.
    pub(crate) fn try_exit(&mut self) -> Option<ExitStatus> {
        self.0.try_exit()
    }

    /// Waits until it ends by itself, in a test without a runtime.
    pub(crate) fn exit_blocking(&mut self) -> ExitStatus {
        self.0.exit_blocking()
    }

    /// `kill -9`.
    pub(crate) fn kill(self) {
        self.0.kill();
    }

    /// Sends SIGTERM, expects exit code 0, and returns its log.
    pub(crate) async fn stop(self) -> String {
        self.0.stop().await
    }

    /// [`stop`](Self::stop) in a test without a runtime.
    pub(crate) fn stop_blocking(self) -> String {
        self.0.stop_blocking()
    }

    /// Waits until it aborts itself at a failpoint.
    pub(crate) async fn aborts_at(self, failpoint: &str) {
        self.0.aborts_at(failpoint).await;
    }
}
