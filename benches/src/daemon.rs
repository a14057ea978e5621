//! The real daemon in its own process, by default with a `log` destination whose output is discarded.
//!
//! **If we die here** the child process is killed when its handle is dropped. After `kill -9` it keeps running.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::database::Database;
use crate::failure::Failure;
use crate::ours::TABLE;

/// The longest time to drain a backlog.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(600);

/// `pillarbox run`.
pub(crate) struct Daemon {
    child: Child,
    /// Holds the configuration file while the daemon runs.
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts it on a migrated database.
    pub(crate) fn start(program: Option<&Path>, database: &Database) -> Result<Self, Failure> {
        Self::start_to(
            program,
            database,
            "[[destination]]\nname = \"null\"\ntype = \"log\"\n",
        )
    }

    /// Starts it with this destination.
    pub(crate) fn start_to(
        program: Option<&Path>,
        database: &Database,
        destination: &str,
    ) -> Result<Self, Failure> {
        let program = locate(program)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("pillarbox.toml");
        let config = format!(
            "[database]\nurl = \"{}\"\n\n[http]\nlisten = \"127.0.0.1:0\"\n\n{destination}",
            database.url()
        );
        std::fs::write(&file, config)?;
        let mut command = Command::new(program);
        command.arg("run").arg("--config").arg(&file);
        // Variables of the tests must not configure the measured daemon.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PILLARBOX_") {
                command.env_remove(name);
            }
        }
        let child = command
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            child,
            _folder: folder,
        })
    }

    /// Waits until no row is pending or processing.
    pub(crate) async fn drained(&mut self, database: &Database) -> Result<(), Failure> {
        let left = format!("select count(*) from {TABLE} where status in ('pending', 'processing')");
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while database.count(&left).await? > 0 {
            self.is_alive()?;
            if Instant::now() > deadline {
                return Err(Failure::new(format!(
                    "the daemon did not drain the backlog within {DRAIN_TIMEOUT:?}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Ok(())
    }

    pub(crate) fn is_alive(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("the daemon exited: {status}"))),
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> Result<u32, Failure> {
        self.child
            .id()
            .ok_or_else(|| Failure::new("the daemon has exited"))
    }

    /// Its peak memory in MB (10⁶ bytes), as counted by the kernel.
    pub(crate) fn peak_memory(&self) -> Result<f64, Failure> {
        let pid = self.id()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kibibytes: f64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| {
                Failure::new("/proc/PID/status has no VmHWM: cannot read the peak memory of the daemon")
            })?;
        Ok(kibibytes * 1024.0 / 1e6)
    }

    /// Kills it after the measurement.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }
}

fn locate(program: Option<&Path>) -> Result<PathBuf, Failure> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.with_file_name("pillarbox"),
    };
    if program.exists() {
        return Ok(program);
    }
    let program = program.display();
    Err(Failure::new(format!(
        "{program} does not exist (build it with `cargo build --release`, or set --daemon)"
    )))
}
