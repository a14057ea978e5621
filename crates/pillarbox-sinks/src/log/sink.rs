//! The sink: hands lines to the thread that writes them.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError, mpsc};

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use tokio::sync::oneshot;

use super::config::Config;
use super::{classify, encode};
use crate::headers::Added;
use crate::message::{self, Form, HTTP, Writer};
use crate::registry::ConfigError;

/// The log.
pub struct Log {
    /// `None` once closed, which ends the writing thread.
    lines: Mutex<Option<mpsc::Sender<Job>>>,
    finished: Mutex<Option<oneshot::Receiver<()>>>,
    /// Writes CloudEvents, if the lines are to be those.
    cloudevents: Option<Writer>,
}

struct Job {
    line: Vec<u8>,
    done: oneshot::Sender<io::Result<()>>,
}

impl Log {
    /// A log on standard output, in the plain format.
    pub fn new(_: &Config) -> Self {
        Self::to(io::stdout())
    }

    pub(crate) fn with_form(name: &str, config: &Config, form: &Form) -> Result<Self, ConfigError> {
        Self::new(config).formatted(name, form)
    }

    /// Writes lines in this format, for the destination `name`. A line has no headers, so CloudEvents need the
    /// structured mode.
    ///
    /// # Errors
    /// When the format is invalid for a log.
    pub fn with_message(self, name: &str, message: &message::Config) -> Result<Self, ConfigError> {
        self.formatted(name, &message.form()?)
    }

    fn formatted(self, name: &str, form: &Form) -> Result<Self, ConfigError> {
        let cloudevents = match form {
            Form::Plain => None,
            Form::Structured(_) => Some(Writer::new(name, &HTTP, Added::default()).with_form(form)),
            Form::Binary(_) => {
                let problem = "cannot be `cloudevents` here: a line has no headers for the attributes; \
                               use `cloudevents-structured`";
                return Err(ConfigError::at("format", problem));
            }
        };
        Ok(Self { cloudevents, ..self })
    }

    /// A log on another writer.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        let (lines, jobs) = mpsc::channel();
        let (finish, finished) = oneshot::channel();
        let thread = std::thread::Builder::new().name("pillarbox-log".to_owned());
        let started = thread.spawn(move || {
            write_all(writer, &jobs);
            finish.send(()).ok();
        });
        // Without the thread the channel is closed, and every delivery fails.
        if let Err(error) = started {
            tracing::error!(%error, "log thread cannot be started");
        }
        Self {
            lines: Mutex::new(Some(lines)),
            finished: Mutex::new(Some(finished)),
            cloudevents: None,
        }
    }

    fn hand_over(&self, job: Job) -> Result<(), Outcome> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = lines.as_ref().map(|lines| lines.send(job));
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(Outcome::unavailable("the log is closed")),
        }
    }
}

fn write_all(mut writer: impl Write, jobs: &mpsc::Receiver<Job>) {
    let mut torn = false;
    while let Ok(job) = jobs.recv() {
        if job.done.is_closed() {
            continue; // the attempt was dropped, and the dispatcher makes another
        }
        let result = write_line(&mut writer, job.line, torn);
        torn = result.is_err();
        job.done.send(result).ok(); // the attempt may have been dropped
    }
}

/// A failed write may leave half a line, so the next one begins with a line break.
fn write_line(writer: &mut impl Write, mut line: Vec<u8>, torn: bool) -> io::Result<()> {
    if torn {
        line.insert(0, b'\n');
    }
    writer.write_all(&line)?;
    writer.flush()
}

#[async_trait]
impl Sink for Log {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let line = match encode::line(delivery, self.cloudevents.as_ref()) {
            Ok(line) => line,
            Err(outcome) => return outcome,
        };
        let (done, written) = oneshot::channel();
        if let Err(outcome) = self.hand_over(Job { line, done }) {
            return outcome;
        }
        match written.await {
            Ok(Ok(())) => Outcome::Delivered,
            Ok(Err(error)) => classify::outcome(&error),
            Err(_) => Outcome::connection_lost("the thread that writes the log ended"),
        }
    }

    /// Flushes the writer, which fails if the pipe has no reader.
    async fn check(&self) -> Result<(), String> {
        let (done, written) = oneshot::channel();
        let nothing = Job {
            line: Vec::new(),
            done,
        };
        self.hand_over(nothing)
            .map_err(|_| "the log is closed".to_owned())?;
        match written.await {
            Ok(result) => result.map_err(|error| format!("the log cannot be written: {error}")),
            Err(_) => Err("the thread that writes the log ended".to_owned()),
        }
    }

    async fn close(&self) {
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        let finished = self
            .finished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(finished) = finished {
            finished.await.ok(); // an error means that it ended before
        }
    }
}
