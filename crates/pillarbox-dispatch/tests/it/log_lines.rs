//! Captures what the engine logs on this thread.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Level, Metadata, Subscriber};

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

/// The lines of the engine since it was made.
pub(crate) struct LogLines {
    lines: Arc<Mutex<Vec<Line>>>,
    _guard: DefaultGuard,
}

impl LogLines {
    pub(crate) fn capture() -> Self {
        let lines: Arc<Mutex<Vec<Line>>> = Arc::default();
        let guard = tracing::subscriber::set_default(Capture(Arc::clone(&lines)));
        Self { lines, _guard: guard }
    }

    pub(crate) fn all(&self) -> Vec<Line> {
        self.lines.lock().expect("no panic").clone()
    }

    /// The lines with this message.
    pub(crate) fn with(&self, message: &str) -> Vec<Line> {
        let mut lines = self.all();
        lines.retain(|line| line.message == message);
        lines
    }
}

/// Keeps every log statement enabled. Otherwise one that is reached for the first time while another test begins to capture
/// may stay disabled for the whole process.
pub(crate) fn keep_enabled() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Discard).expect("the only global subscriber"));
}

struct Discard;

impl Subscriber for Discard {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Capture(Arc<Mutex<Vec<Line>>>);

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pillarbox")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        self.0.lock().expect("no panic").push(Line {
            level: *event.metadata().level(),
            message,
            fields: fields.0,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
