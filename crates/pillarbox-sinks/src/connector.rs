//! Opens the one connection of a sink when it is first needed, and shares it.
//!
//! Callers that ask while it is being opened wait for the same attempt and get the same result. A thousand deliveries open
//! one connection, and a broker that is down is tried once.
//!
//! **If we die here** the outcome of what was in flight is unknown, and it is sent again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::{Instant, timeout};

use crate::connection_log::ConnectionLog;

/// A connection that a sink opens, and that can end by itself.
pub(crate) trait Connect: Sized + Send + Sync + 'static {
    /// What opening takes.
    type Settings: Send + Sync + 'static;

    /// The host that it connects to, without any secret.
    fn host(settings: &Self::Settings) -> String;

    fn open(settings: Arc<Self::Settings>) -> impl Future<Output = Result<Self, String>> + Send + 'static;

    /// Is it encrypted, and its server verified?
    fn is_encrypted(&self) -> bool;

    /// Has the connection ended?
    fn is_lost(&self) -> bool;

    /// Closes the connection in order. It is dropped if that takes longer than [`CLOSE_TIMEOUT`].
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// How long closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// For how long [`Connector::get_recent`] returns the last failure.
const RECENT: Duration = Duration::from_millis(500);

/// The settings of a sink's connection, and the connection while there is one.
pub(crate) struct Connector<C: Connect> {
    settings: Arc<C::Settings>,
    shared: SharedConnection<C>,
}

impl<C: Connect> Connector<C> {
    /// Of the destination `name`.
    pub(crate) fn new(name: &str, settings: C::Settings) -> Self {
        Self::sharing(name, Arc::new(settings))
    }

    /// One of several connections of the destination `name`.
    pub(crate) fn sharing(name: &str, settings: Arc<C::Settings>) -> Self {
        let log = ConnectionLog::of_destination(name, C::host(&settings));
        Self {
            settings,
            shared: SharedConnection::new(log),
        }
    }

    pub(crate) fn settings(&self) -> &C::Settings {
        &self.settings
    }

    /// The connection, opened if there is none. May be dropped: other callers that wait go on opening it.
    pub(crate) async fn get(&self) -> Result<Arc<C>, String> {
        self.shared
            .get(|| C::open(self.settings.clone()), Duration::ZERO)
            .await
    }

    /// As [`get`](Self::get), but an attempt that failed just now is not repeated. For callers that wait in line: each of
    /// them would wait for the timeout of a broker that is down.
    pub(crate) async fn get_recent(&self) -> Result<Arc<C>, String> {
        self.shared.get(|| C::open(self.settings.clone()), RECENT).await
    }

    /// The connection if it is open.
    #[cfg(feature = "rabbitmq")]
    pub(crate) fn get_open(&self) -> Option<Arc<C>> {
        let current = self.shared.current();
        let opened = current.as_ref()?.peek()?.as_ref().ok()?;
        (!opened.is_lost()).then(|| opened.clone())
    }

    /// Makes the next caller open another connection. This one ends when the last delivery on it has its result.
    pub(crate) fn reset(&self) {
        if self.shared.take().is_some() {
            self.shared.log.lost(Some("health check not answered"));
        }
    }

    /// Closes the connection if there is one.
    pub(crate) async fn close(&self) {
        if let Some(connection) = self.shared.take() {
            timeout(CLOSE_TIMEOUT, connection.close()).await.ok(); // it is dropped either way
        }
    }
}

/// A connection that is open or being opened, or none.
struct SharedConnection<C> {
    current: Mutex<Option<Opening<C>>>,
    log: Arc<ConnectionLog>,
}

type Opening<C> = Shared<BoxFuture<'static, Result<Arc<C>, Failure>>>;

/// Why and when opening failed.
#[derive(Clone)]
struct Failure {
    reason: String,
    at: Instant,
}

impl<C: Connect> SharedConnection<C> {
    fn new(log: ConnectionLog) -> Self {
        Self {
            current: Mutex::new(None),
            log: Arc::new(log),
        }
    }

    /// A failure is returned again until it is older than `stale`.
    async fn get<F>(&self, open: impl FnOnce() -> F, stale: Duration) -> Result<Arc<C>, String>
    where
        F: Future<Output = Result<C, String>> + Send + 'static,
    {
        let opening = {
            let mut current = self.current();
            match current.as_ref().filter(|opening| !is_over(opening, stale)) {
                Some(opening) => opening.clone(),
                None => {
                    if matches!(current.as_ref().and_then(|it| it.peek()), Some(Ok(_))) {
                        self.log.lost(None);
                    }
                    let log = self.log.clone();
                    let opened = open().map(move |result| match result {
                        Ok(connection) => {
                            log.connected(connection.is_encrypted());
                            Ok(Arc::new(connection))
                        }
                        Err(reason) => {
                            log.failed(&reason);
                            Err(Failure {
                                reason,
                                at: Instant::now(),
                            })
                        }
                    });
                    current.insert(opened.boxed().shared()).clone()
                }
            }
        };
        opening.await.map_err(|failure| failure.reason)
    }

    /// Removes the connection, and returns it if it was open.
    fn take(&self) -> Option<Arc<C>> {
        let opening = self.current().take()?;
        opening.peek().and_then(|result| result.as_ref().ok()).cloned()
    }

    fn current(&self) -> MutexGuard<'_, Option<Opening<C>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Did opening fail, or was the connection lost since?
fn is_over<C: Connect>(opening: &Opening<C>, stale: Duration) -> bool {
    match opening.peek() {
        None => false,
        Some(Ok(connection)) => connection.is_lost(),
        Some(Err(failure)) => failure.at.elapsed() >= stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join;
    use pillarbox_testkit::captured_logs::keep_enabled;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::oneshot;

    const NOW: Duration = Duration::ZERO;

    #[derive(Default)]
    struct Wire {
        lost: AtomicBool,
    }

    impl Connect for Wire {
        type Settings = ();

        fn host((): &()) -> String {
            "wire:1".to_owned()
        }

        async fn open(_: Arc<()>) -> Result<Self, String> {
            Ok(Self::default())
        }

        fn is_encrypted(&self) -> bool {
            false
        }

        fn is_lost(&self) -> bool {
            self.lost.load(Ordering::SeqCst)
        }
    }

    fn shared() -> SharedConnection<Wire> {
        keep_enabled();
        SharedConnection::new(ConnectionLog::of_destination("queue", Wire::host(&())))
    }

    #[tokio::test]
    async fn callers_that_wait_for_the_same_attempt_get_the_same_result() {
        let shared = shared();
        let (answer, answered) = oneshot::channel::<()>();
        let fails = || async {
            answered.await.ok();
            Err("down".to_owned())
        };
        let first = shared.get(fails, NOW);
        let second = shared.get(|| async { panic!("it is being opened already") }, NOW);
        let mut both = Box::pin(join(first, second));
        assert!(both.as_mut().now_or_never().is_none());
        answer.send(()).unwrap();
        let (first, second) = both.await;
        assert_eq!(first.err().as_deref(), Some("down"));
        assert_eq!(second.err().as_deref(), Some("down"));
    }

    #[tokio::test]
    async fn a_failed_or_lost_connection_is_opened_again() {
        let shared = shared();
        assert!(
            shared
                .get(|| async { Err("down".to_owned()) }, NOW)
                .await
                .is_err()
        );
        let wire = shared
            .get(|| async { Ok(Wire::default()) }, NOW)
            .await
            .ok()
            .unwrap();
        let same = shared
            .get(|| async { panic!("it is open") }, NOW)
            .await
            .ok()
            .unwrap();
        assert!(Arc::ptr_eq(&wire, &same));
        wire.lost.store(true, Ordering::SeqCst);
        let other = shared
            .get(|| async { Ok(Wire::default()) }, NOW)
            .await
            .ok()
            .unwrap();
        assert!(!Arc::ptr_eq(&wire, &other));
    }

    #[tokio::test(start_paused = true)]
    async fn a_recent_failure_is_not_repeated() {
        let shared = shared();
        assert!(
            shared
                .get(|| async { Err("down".to_owned()) }, RECENT)
                .await
                .is_err()
        );
        let again = shared.get(|| async { panic!("it was just tried") }, RECENT).await;
        assert_eq!(again.err().as_deref(), Some("down"));
        assert!(shared.get(|| async { Ok(Wire::default()) }, NOW).await.is_ok());
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_does_not_end_the_attempt_of_the_others() {
        let shared = shared();
        let (answer, answered) = oneshot::channel::<()>();
        let open = || async {
            answered.await.ok();
            Ok(Wire::default())
        };
        assert!(shared.get(open, NOW).now_or_never().is_none());
        answer.send(()).unwrap();
        assert!(
            shared
                .get(|| async { panic!("it is being opened") }, NOW)
                .await
                .is_ok()
        );
        assert!(shared.take().is_some());
        assert!(shared.take().is_none());
    }
}
