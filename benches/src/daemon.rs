//! The real daemon, in a process of its own, with a `log` destination on a standard output that nobody
//! reads.
//!
//! **If we die here** the child is killed with us, as far as its handle is dropped.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::database::Database;
use crate::failure::Failure;
use crate::ours::TABLE;

/// A backlog that takes longer will not be drained.
const PATIENCE: Duration = Duration::from_secs(600);

/// `pillarbox run`.
pub(crate) struct Daemon {
    child: Child,
    /// Holds the configuration while the daemon lives.
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts it on a database that is migrated.
    pub(crate) fn start(program: Option<&Path>, database: &Database) -> Result<Self, Failure> {
        let program = locate(program)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("pillarbox.toml");
        let config = format!(
            "[database]\nurl = \"{}\"\n\n[http]\nlisten = \"127.0.0.1:0\"\n\n\
             [[destination]]\nname = \"nowhere\"\ntype = \"log\"\n",
            database.url()
        );
        std::fs::write(&file, config)?;
        let mut command = Command::new(program);
        command.arg("run").arg("--config").arg(&file);
        // What is set for the tests of this house must not configure the daemon that is measured.
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

    /// Waits until nothing is left to be delivered.
    pub(crate) async fn drained(&mut self, database: &Database) -> Result<(), Failure> {
        let left = format!("select count(*) from {TABLE} where status in ('pending', 'processing')");
        let deadline = Instant::now() + PATIENCE;
        while database.count(&left).await? > 0 {
            self.is_alive()?;
            if Instant::now() > deadline {
                return Err(Failure::said(format!(
                    "the daemon did not drain the backlog in {PATIENCE:?}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Ok(())
    }

    pub(crate) fn is_alive(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Failure::said(format!("the daemon ended by itself: {status}"))),
        }
    }

    /// The most memory that it ever held, in MB (10⁶ bytes), as the kernel counts it.
    pub(crate) fn peak_memory(&self) -> Result<f64, Failure> {
        let pid = self
            .child
            .id()
            .ok_or_else(|| Failure::said("the daemon has ended"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kibibytes: f64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| Failure::said("the kernel does not say how much memory the daemon held"))?;
        Ok(kibibytes * 1024.0 / 1e6)
    }

    /// Kills it: what is measured is over.
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
    Err(Failure::said(format!(
        "{program} is not there; build it with `cargo build --release`, or name it with --daemon"
    )))
}
