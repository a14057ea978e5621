//! The log lines that a test causes.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Level, Metadata, Subscriber};

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its level.
    pub level: Level,
    /// The module or library that logged it.
    pub target: String,
    /// Its constant text.
    pub message: String,
    /// The other fields, as text.
    pub fields: BTreeMap<String, String>,
}

impl Line {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => drop(self.fields.insert(name.to_owned(), value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").expect("a text can be written to");
        self.record_str(field, &text);
    }
}

type Lines = Arc<Mutex<Vec<Line>>>;

/// The lines of the process, once a test wants them.
static PROCESS: OnceLock<Lines> = OnceLock::new();

/// Collects the lines of one thread while it lives, or those of the whole process.
#[derive(Debug)]
pub struct CapturedLogs {
    lines: Lines,
    _guard: Option<DefaultGuard>,
}

impl CapturedLogs {
    /// Collects what this thread logs: for a test on one thread. Of other crates than Pillarbox's only level `INFO` and above.
    #[must_use]
    pub fn start() -> Self {
        keep_enabled();
        let lines = Lines::default();
        let guard = tracing::subscriber::set_default(Collector::Thread(lines.clone()));
        Self {
            lines,
            _guard: Some(guard),
        }
    }

    /// Collects what the whole process logs on level `INFO` and above, also the tests beside this one.
    ///
    /// # Panics
    /// If the process has another subscriber.
    #[must_use]
    pub fn of_process() -> Self {
        assert!(is_installed(), "the process has another subscriber");
        Self {
            lines: PROCESS.get_or_init(Lines::default).clone(),
            _guard: None,
        }
    }

    /// The lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines with this message.
    #[must_use]
    pub fn with(&self, message: &str) -> Vec<Line> {
        let mut lines = self.lines();
        lines.retain(|line| line.message == message);
        lines
    }
}

/// Keeps every log statement enabled. Otherwise one that is reached for the first time while another test begins to capture
/// may stay disabled for the whole process. A suite calls it before its tests log. Has no effect on a process with another
/// subscriber.
pub fn keep_enabled() {
    is_installed();
}

/// Installs the collector of the process once. Returns whether the process has no other.
fn is_installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| tracing::subscriber::set_global_default(Collector::Process).is_ok())
}

/// Whose lines are collected.
enum Collector {
    Thread(Lines),
    Process,
}

impl Collector {
    fn lines(&self) -> Option<&Lines> {
        match self {
            Self::Thread(lines) => Some(lines),
            Self::Process => PROCESS.get(),
        }
    }
}

impl Subscriber for Collector {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_own = metadata.target().starts_with("pillarbox");
        match self {
            Self::Thread(_) => is_own || *metadata.level() <= Level::INFO,
            Self::Process => PROCESS.get().is_some() && *metadata.level() <= Level::INFO,
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(lines) = self.lines() else { return };
        let mut line = Line {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            message: String::new(),
            fields: BTreeMap::new(),
        };
        event.record(&mut line);
        lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
