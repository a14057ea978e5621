//! Prepares a database for its dispatcher: waits until it is available, migrates, checks the schema, adopts tables.
//!
//! An unavailable database is logged at once, then once a minute while it lasts, and when it is back.
//!
//! **If we die here** nothing is claimed yet.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::Actor;
use pillarbox_store::Store;
use pillarbox_store::actor::{Kind, Reach};
use pillarbox_store::stores::postgres::adopt::AdoptError;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::database::Database;
use crate::failure::Failure;
use crate::http::Phase;
use crate::trust::{self, Distrust};

/// The first and the longest wait for an unavailable database.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How often an unavailable database is logged again.
const REPEAT: Duration = Duration::from_secs(60);

/// Why the database cannot be served.
enum NotReady {
    /// It may become available.
    Unavailable(String),
    /// Waiting does not help.
    Fatal(Failure),
}

impl From<StoreError> for NotReady {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(reason) => Self::Unavailable(reason),
            other => Self::Fatal(other.into()),
        }
    }
}

/// Prepares one database.
pub(crate) struct Startup<'a> {
    pub(crate) database: &'a Database,
    pub(crate) config: &'a config::Database,
    pub(crate) settings: &'a Config,
    /// Migrate the schema first?
    pub(crate) migrate: bool,
    /// The tables to adopt.
    pub(crate) adopt: &'a [config::Adopt],
    /// The name of the configuration file.
    pub(crate) file: &'a str,
    pub(crate) phase: &'a watch::Sender<Phase>,
}

impl Startup<'_> {
    /// Returns true when the database is ready, and false when the daemon stops before.
    pub(crate) async fn wait_until_ready(&self, shutdown: &CancellationToken) -> Result<bool, Failure> {
        let store = self.database.store();
        let mut outage = Outage {
            database: &self.config.name,
            address: self.config.url.address(),
            phase: self.phase,
            warned: None,
        };
        outage.retry(async || self.prepare(&store).await, shutdown).await
    }

    async fn prepare(&self, store: &Arc<dyn Store>) -> Result<(), NotReady> {
        if self.migrate {
            let program = Actor::new(Kind::Service, "pillarbox run", Reach::System, []);
            let done = self.database.migrate(&program).await?;
            if done.from != done.to {
                tracing::info!(
                    database = self.config.name,
                    from = done.from,
                    to = done.to,
                    "schema migrated"
                );
            }
        }
        // Without a permission, events would be sent and not settled.
        self.database.check_dispatcher().await?;
        store.check().await?;
        self.judge(&trust::role(self.database).await?)?;
        let adopted = self.database.adopt(self.adopt).await;
        adopted.map_err(|error| match config::adopt_finding(self.adopt, &error) {
            Some(finding) => NotReady::Fatal(Failure::usage(finding.line(self.file))),
            None => match error {
                AdoptError::Store(error) => error.into(),
                AdoptError::Layout { .. } | AdoptError::Twice => {
                    NotReady::Fatal(Failure::failed(error.to_string()))
                }
            },
        })?;
        for adopt in self.adopt {
            self.judge(&trust::table(self.database, adopt).await?)?;
        }
        Ok(())
    }

    /// Warns, or fails if `strict`.
    fn judge(&self, found: &[Distrust]) -> Result<(), NotReady> {
        if self.settings.strict && !found.is_empty() {
            return Err(NotReady::Fatal(Failure::usage(trust::refusal(found))));
        }
        for Distrust { table, reason } in found {
            let database = &self.config.name;
            tracing::warn!(
                database,
                table,
                reason,
                "the database role is not confined to its duty"
            );
        }
        Ok(())
    }
}

/// Retries while the database is unavailable.
struct Outage<'a> {
    database: &'a str,
    address: String,
    phase: &'a watch::Sender<Phase>,
    /// When it was last logged.
    warned: Option<Instant>,
}

impl Outage<'_> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the wait between two connection attempts"
    )]
    async fn retry(
        &mut self,
        prepare: impl AsyncFn() -> Result<(), NotReady>,
        shutdown: &CancellationToken,
    ) -> Result<bool, Failure> {
        let (mut wait, longest) = WAITS;
        loop {
            // A cancelled preparation still runs to its end in the store; nothing stays half done.
            let prepared = tokio::select! {
                prepared = prepare() => prepared,
                () = shutdown.cancelled() => return Ok(false),
            };
            match prepared {
                Ok(()) => {
                    self.ended();
                    return Ok(true);
                }
                Err(NotReady::Unavailable(error)) => self.lasts(&error),
                Err(NotReady::Fatal(failure)) => return Err(failure),
            }
            // Jitter, so that many daemons do not return at the same moment.
            let pause = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
            tokio::select! {
                () = tokio::time::sleep(pause) => wait = (wait * 2).min(longest),
                () = shutdown.cancelled() => return Ok(false),
            }
        }
    }

    fn lasts(&mut self, error: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= REPEAT) {
            let (database, address) = (self.database, &self.address);
            tracing::warn!(database, address, error, "database unavailable; retrying");
            self.warned = Some(Instant::now());
        }
        self.phase.send_replace(Phase::Unavailable);
    }

    fn ended(&self) {
        if self.warned.is_some() {
            tracing::info!(database = self.database, "database available again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::captured::Captured;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_logged_at_once_then_once_a_minute_and_when_it_ends() {
        let log = Captured::start();
        let (phase, _seen) = watch::channel(Phase::Connecting);
        let started = Instant::now();
        let prepare = async || {
            if started.elapsed() < Duration::from_secs(150) {
                Err(NotReady::Unavailable(
                    "connection refused (127.0.0.1:1)".to_owned(),
                ))
            } else {
                Ok(())
            }
        };
        let mut outage = Outage {
            database: "shop",
            address: "127.0.0.1:1".to_owned(),
            phase: &phase,
            warned: None,
        };
        let ready = outage.retry(prepare, &CancellationToken::new()).await;
        assert_eq!(ready, Ok(true));
        let lines = log.lines();
        let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str()).collect();
        let (lasts, ended) = ("database unavailable; retrying", "database available again");
        assert_eq!(messages, [Some(lasts), Some(lasts), Some(lasts), Some(ended)]);
        assert_eq!(lines[2]["error"], "connection refused (127.0.0.1:1)");
        assert_eq!(lines[2]["address"], "127.0.0.1:1");
    }
}
