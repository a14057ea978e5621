//! Waits for a database and its schema: said once, asked for again and again.
//!
//! **If we die here** nothing was claimed.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use pillarbox_store::Store;
use pillarbox_store::stores::postgres::adopt::AdoptError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::database::Database;
use crate::failure::Failure;
use crate::http::Phase;

/// The first and the longest wait for a database that is not there.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Why there is nothing to serve.
enum Trouble {
    /// Not there; it may come.
    Absent(String),
    /// It will not become right by waiting.
    Wrong(Failure),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(reason) => Self::Absent(reason),
            other => Self::Wrong(other.into()),
        }
    }
}

/// Waits for the database and its schema.
pub(crate) struct Waiting<'a> {
    pub(crate) database: &'a Database,
    pub(crate) name: &'a str,
    /// Is the schema to be brought up to date?
    pub(crate) migrate: bool,
    /// Is a destination fair between tenants?
    pub(crate) fair: bool,
    /// The tables of others to take over.
    pub(crate) adopt: &'a [config::Adopt],
    /// Where the configuration was written.
    pub(crate) file: &'a str,
    pub(crate) phase: &'a watch::Sender<Phase>,
}

impl Waiting<'_> {
    /// True when the outbox is there at the right version; false when told to stop before.
    #[expect(
        clippy::disallowed_methods,
        reason = "the wait between two connection attempts"
    )]
    pub(crate) async fn until_ready(&self, shutdown: &CancellationToken) -> Result<bool, Failure> {
        let store = self.database.store();
        let (mut wait, longest) = WAITS;
        let mut said = false;
        loop {
            // A look that is given up goes on to its end by itself; nothing is left half done.
            let looked = tokio::select! {
                looked = self.look(&store) => looked,
                () = shutdown.cancelled() => return Ok(false),
            };
            match looked {
                Ok(()) if said => {
                    tracing::info!(database = self.name, "the database is there");
                    return Ok(true);
                }
                Ok(()) => return Ok(true),
                Err(Trouble::Absent(reason)) => {
                    if !said {
                        tracing::warn!(
                            database = self.name,
                            "waiting for the database, which is unavailable: {reason}"
                        );
                        said = true;
                    }
                    self.phase
                        .send_replace(Phase::Starting(format!("the database is unavailable: {reason}")));
                }
                Err(Trouble::Wrong(failure)) => return Err(failure),
            }
            // Spread, so that many daemons do not all come back at the same moment.
            let pause = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
            tokio::select! {
                () = tokio::time::sleep(pause) => wait = (wait * 2).min(longest),
                () = shutdown.cancelled() => return Ok(false),
            }
        }
    }

    async fn look(&self, store: &Arc<dyn Store>) -> Result<(), Trouble> {
        if self.migrate {
            let done = self.database.migrate().await?;
            if done.from != done.to {
                tracing::info!(
                    database = self.name,
                    from = done.from,
                    to = done.to,
                    "migrated the outbox schema"
                );
            }
        }
        store.check().await?;
        if self.fair {
            self.database.ensure_fair_index().await?;
        }
        let adopted = self.database.adopt(self.adopt).await;
        adopted.map_err(|error| match config::adopt_finding(self.adopt, &error) {
            Some(finding) => Trouble::Wrong(Failure::usage(finding.line(self.file))),
            None => match error {
                AdoptError::Store(error) => error.into(),
                AdoptError::Layout { .. } | AdoptError::Twice => {
                    Trouble::Wrong(Failure::failed(error.to_string()))
                }
            },
        })
    }
}
