//! The log lines that a test causes.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
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

/// Collects the lines of level `INFO` and above. Those of one thread while it lives, or those of the whole process.
#[derive(Debug)]
pub struct CapturedLogs {
    lines: Lines,
    _guard: Option<DefaultGuard>,
}

impl CapturedLogs {
    /// Collects what this thread logs: for a test on one thread.
    #[must_use]
    pub fn start() -> Self {
        let lines = Lines::default();
        let guard = tracing::subscriber::set_default(Collector(lines.clone()));
        Self {
            lines,
            _guard: Some(guard),
        }
    }

    /// Collects what the whole process logs, also the tests beside this one.
    ///
    /// # Panics
    /// If the process has another subscriber.
    #[must_use]
    pub fn of_process() -> Self {
        static LINES: OnceLock<Lines> = OnceLock::new();
        let lines = LINES.get_or_init(|| {
            let lines = Lines::default();
            let set = tracing::subscriber::set_global_default(Collector(lines.clone()));
            set.expect("the only subscriber of the process");
            lines
        });
        Self {
            lines: lines.clone(),
            _guard: None,
        }
    }

    /// The lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Collector(Lines);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            message: String::new(),
            fields: BTreeMap::new(),
        };
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
