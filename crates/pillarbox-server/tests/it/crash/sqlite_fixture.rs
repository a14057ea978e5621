//! A folder with a SQLite file, and the daemons that use it one after another.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use uuid::Uuid;

use crate::daemon::Daemon;
use pillarbox_testkit::process::print_last_lines;

/// One daemon after another on a SQLite file. Each delivers to its standard output.
pub(super) struct SqliteFixture {
    dir: TempDir,
    started: Cell<usize>,
}

impl SqliteFixture {
    pub(super) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a folder"),
            started: Cell::new(0),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes the configuration: a destination `log` and `more`.
    pub(super) fn configure(&self, more: &str) {
        let config = format!(
            "[database]\nurl = \"{}\"\n\
             [dispatch]\nlease = \"2s\"\ntimeout = \"1s\"\npoll_interval = \"100ms\"\nbatch = 32\nmax_in_flight = 64\n\
             [retry]\nbase = \"100ms\"\nmax = \"1s\"\nmax_attempts = 25\n\
             [http]\nlisten = \"127.0.0.1:0\"\n\
             [[destination]]\nname = \"log\"\ntype = \"log\"\n{more}",
            self.path().join("outbox.db").display()
        );
        std::fs::write(self.path().join("pillarbox.toml"), config).expect("the folder can be written to");
    }

    pub(super) fn start(&self) -> Daemon {
        let number = self.started.replace(self.started.get() + 1);
        Daemon::start_with_log(&self.path().join("pillarbox.toml"), &self.log(number), &[])
    }

    fn log(&self, number: usize) -> PathBuf {
        self.path().join(format!("daemon-{number}.log"))
    }

    /// The ids of the events that all of them delivered, in order. A daemon writes whole lines.
    pub(super) fn ledger(&self) -> Vec<Uuid> {
        let read = |number| std::fs::read_to_string(self.log(number)).expect("the log exists");
        let logs: Vec<String> = (0..self.started.get()).map(read).collect();
        let lines = logs.iter().flat_map(|text| text.lines());
        let events = lines.filter(|line| line.starts_with("{\"id\":"));
        events
            .map(|line| {
                let event: serde_json::Value = serde_json::from_str(line).expect("a whole line");
                event["id"]
                    .as_str()
                    .expect("an id")
                    .parse()
                    .expect("the event's id")
            })
            .collect()
    }
}

impl Drop for SqliteFixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_last_lines((0..self.started.get()).map(|number| self.log(number)));
        }
    }
}
