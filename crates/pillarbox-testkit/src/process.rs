//! Child processes: started, watched, stopped, frozen and killed.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

pub use rustix::process::Signal;

use crate::wait::{TIMEOUT, until_ok_blocking, until_some_within};

/// A running process. What it writes goes to files, so that nothing of it is lost when it is killed. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Holds both files, unless the caller has named one.
    _folder: Option<TempDir>,
}

impl Process {
    /// Starts it. Standard output and standard error are kept apart.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: Command) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
        Self::spawn(command, stdout, stderr, Some(folder))
    }

    /// Starts it with one file for standard output and standard error, which stays when the process is dropped.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_with_log(command: Command, log: &Path) -> Self {
        Self::spawn(command, log.to_owned(), log.to_owned(), None)
    }

    fn spawn(mut command: Command, stdout: PathBuf, stderr: PathBuf, folder: Option<TempDir>) -> Self {
        let create = |path: &Path| File::create(path).expect("an output file");
        let out = create(&stdout);
        let err = if stdout == stderr {
            out.try_clone().expect("a second handle")
        } else {
            create(&stderr)
        };
        let program = command.get_program().to_owned();
        let child = command.stdout(out).stderr(err).spawn();
        Self {
            child: child.unwrap_or_else(|error| panic!("{program:?} does not start: {error}")),
            stdout,
            stderr,
            _folder: folder,
        }
    }

    /// What it has written to standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// What it has written to standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the process has ended and its status was read.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("the process exists");
    }

    /// Closes its standard input, which has to be [piped](Stdio::piped).
    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Its exit status, if it has ended.
    ///
    /// # Panics
    /// If the operating system does not tell.
    pub fn try_exit(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our own child")
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// If it does not.
    pub async fn exit(&mut self) -> ExitStatus {
        self.exit_within(TIMEOUT).await
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// If it does not end for this long, with what it has written to standard error.
    pub async fn exit_within(&mut self, timeout: Duration) -> ExitStatus {
        let ended = tokio::time::timeout(
            timeout,
            until_some_within(timeout * 2, "the process ends", async || self.try_exit()),
        )
        .await;
        ended.unwrap_or_else(|_| panic!("the process has not ended for {timeout:?}: {}", self.stderr()))
    }

    /// Waits until it ends by itself, in a test without a runtime.
    ///
    /// # Panics
    /// If it does not.
    pub fn exit_blocking(&mut self) -> ExitStatus {
        until_ok_blocking("the process ends", || {
            self.try_exit().ok_or_else(|| "it is still running".to_owned())
        })
    }

    /// `kill -9`.
    ///
    /// # Panics
    /// If it has ended before, by itself.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        let status = self.child.wait().expect("it is our own child");
        assert_eq!(
            status.signal(),
            Some(Signal::KILL.as_raw()),
            "it ended before: {status}: {}",
            self.stderr()
        );
    }

    /// Asks it to stop, expects exit code 0, and returns its standard error.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub async fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.exit().await;
        self.expect_success(status)
    }

    /// [`stop`](Self::stop) in a test without a runtime.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub fn stop_blocking(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.exit_blocking();
        self.expect_success(status)
    }

    fn expect_success(&self, status: ExitStatus) -> String {
        let stderr = self.stderr();
        assert_eq!(status.code(), Some(0), "{status}: {stderr}");
        stderr
    }

    /// Waits until it aborts itself at a failpoint (`name` or `name:count`).
    ///
    /// # Panics
    /// If it ends otherwise.
    pub async fn aborts_at(mut self, failpoint: &str) {
        let status = self.exit().await;
        assert_aborted_at(failpoint, status, &self.stderr());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read(path: &Path) -> String {
    let text = fs::read(path).expect("the output file exists");
    String::from_utf8_lossy(&text).into_owned()
}

/// Has a process aborted itself at this failpoint, and nowhere else?
///
/// # Panics
/// If not.
pub fn assert_aborted_at(failpoint: &str, status: ExitStatus, stderr: &str) {
    let name = failpoint.split(':').next().expect("a name");
    assert_eq!(
        status.signal(),
        Some(Signal::ABORT.as_raw()),
        "{name}: {status}: {stderr}"
    );
    assert!(
        stderr.contains(&format!("failpoint {name}: ")),
        "it aborted elsewhere: {stderr}"
    );
}

/// A command that runs an ignored test of this test binary, by its whole name: an application that can be killed.
///
/// # Panics
/// If this binary has no path.
pub fn ignored_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test binary has a path"));
    command
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env_remove("PILLARBOX_ABORT_AT")
        .stdin(Stdio::null());
    command
}

/// Prints the last lines of each log, for a test that has failed.
pub fn print_last_lines(logs: impl Iterator<Item = PathBuf>) {
    for log in logs {
        let text = fs::read_to_string(&log).unwrap_or_default();
        // Events that a daemon delivered to its standard output tell nothing about itself.
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
        let last = lines[lines.len().saturating_sub(30)..].join("\n");
        eprintln!("--- last lines of {}:\n{last}", log.display());
    }
}
