//! The one connection of a sink: opened when it is needed, by whoever needs it first, and shared.
//!
//! Everybody who asks while it is being opened waits for the same attempt and hears the same answer, so
//! that a thousand deliveries make one connection and a place that is away is asked once.
//!
//! **If we die here** what was in flight is uncertain, and comes again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::{Instant, timeout};

/// A connection that can end by itself.
pub(crate) trait Connection: Send + Sync + 'static {
    /// Is it of no use any more?
    fn is_lost(&self) -> bool;
}

/// The connection that is there, being opened, or not there.
pub(crate) struct Slot<C> {
    current: Mutex<Option<Opening<C>>>,
}

type Opening<C> = Shared<BoxFuture<'static, Result<Arc<C>, Failed>>>;

/// Why there is no connection, and since when that is known.
#[derive(Clone)]
struct Failed {
    reason: String,
    at: Instant,
}

/// For how long a failure is the answer for those who waited for their turn meanwhile.
const SOON: Duration = Duration::from_millis(500);

impl<C: Connection> Slot<C> {
    pub(crate) fn new() -> Self {
        Self {
            current: Mutex::new(None),
        }
    }

    /// The connection, opened if need be. May be dropped: whoever else waits goes on opening it.
    pub(crate) async fn get<F>(&self, open: impl FnOnce() -> F) -> Result<Arc<C>, String>
    where
        F: Future<Output = Result<C, String>> + Send + 'static,
    {
        self.open(open, Duration::ZERO).await
    }

    /// The same; whoever asks right after an attempt that failed hears what that heard. For those who take turns:
    /// one after another they would wait for a place that is away.
    pub(crate) async fn get_soon<F>(&self, open: impl FnOnce() -> F) -> Result<Arc<C>, String>
    where
        F: Future<Output = Result<C, String>> + Send + 'static,
    {
        self.open(open, SOON).await
    }

    async fn open<F>(&self, open: impl FnOnce() -> F, stale: Duration) -> Result<Arc<C>, String>
    where
        F: Future<Output = Result<C, String>> + Send + 'static,
    {
        let opening = {
            let mut current = self.current();
            match current.as_ref().filter(|opening| !is_over(opening, stale)) {
                Some(opening) => opening.clone(),
                None => {
                    let opened = open().map(|result| match result {
                        Ok(connection) => Ok(Arc::new(connection)),
                        Err(reason) => Err(Failed {
                            reason,
                            at: Instant::now(),
                        }),
                    });
                    current.insert(opened.boxed().shared()).clone()
                }
            }
        };
        opening.await.map_err(|failed| failed.reason)
    }

    /// Forgets the connection, so that the next one who asks opens another. Returns it if it was open.
    pub(crate) fn take(&self) -> Option<Arc<C>> {
        let opening = self.current().take()?;
        opening.peek().and_then(|result| result.as_ref().ok()).cloned()
    }

    fn current(&self) -> MutexGuard<'_, Option<Opening<C>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a farewell may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// A connection that is opened with what a sink was told.
pub(crate) trait Open: Connection + Sized {
    /// What it was told.
    type Settings: Send + Sync + 'static;

    fn open(settings: Arc<Self::Settings>) -> impl Future<Output = Result<Self, String>> + Send + 'static;

    /// Says goodbye. What is not said in time is left unsaid.
    fn goodbye(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The slot of a sink, and what its connection is opened with.
pub(crate) struct Links<C: Open> {
    settings: Arc<C::Settings>,
    slot: Slot<C>,
}

impl<C: Open> Links<C> {
    pub(crate) fn new(settings: C::Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            slot: Slot::new(),
        }
    }

    pub(crate) fn settings(&self) -> &C::Settings {
        &self.settings
    }

    /// See [`Slot::get`].
    pub(crate) async fn get(&self) -> Result<Arc<C>, String> {
        self.slot.get(|| C::open(self.settings.clone())).await
    }

    /// See [`Slot::get_soon`].
    pub(crate) async fn get_soon(&self) -> Result<Arc<C>, String> {
        self.slot.get_soon(|| C::open(self.settings.clone())).await
    }

    /// Forgets the connection, so that the next one who asks opens another. It ends when the last of those who use it
    /// has its answer.
    pub(crate) fn forget(&self) {
        self.slot.take();
    }

    /// Closes the connection if there is one.
    pub(crate) async fn close(&self) {
        if let Some(link) = self.slot.take() {
            // Whatever it answers, we are leaving.
            timeout(GOODBYE, link.goodbye()).await.ok();
        }
    }
}

/// Failed, or open once and lost since.
fn is_over<C: Connection>(opening: &Opening<C>, stale: Duration) -> bool {
    match opening.peek() {
        None => false,
        Some(Ok(connection)) => connection.is_lost(),
        Some(Err(failed)) => failed.at.elapsed() >= stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::oneshot;

    #[derive(Default)]
    struct Wire {
        lost: AtomicBool,
    }

    impl Connection for Wire {
        fn is_lost(&self) -> bool {
            self.lost.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn all_who_ask_meanwhile_hear_the_same() {
        let slot = Slot::<Wire>::new();
        let (answer, answered) = oneshot::channel::<()>();
        let first = slot.get(|| async {
            answered.await.ok();
            Err("away".to_owned())
        });
        let second = slot.get(|| async { panic!("it is being opened already") });
        let mut both = Box::pin(join(first, second));
        assert!(both.as_mut().now_or_never().is_none());
        answer.send(()).unwrap();
        let (first, second) = both.await;
        assert_eq!(first.err().as_deref(), Some("away"));
        assert_eq!(second.err().as_deref(), Some("away"));
    }

    #[tokio::test]
    async fn what_failed_or_was_lost_is_opened_again() {
        let slot = Slot::<Wire>::new();
        assert!(slot.get(|| async { Err("away".to_owned()) }).await.is_err());
        let wire = slot.get(|| async { Ok(Wire::default()) }).await.ok().unwrap();
        let same = slot.get(|| async { panic!("it is open") }).await.ok().unwrap();
        assert!(Arc::ptr_eq(&wire, &same));
        wire.lost.store(true, Ordering::SeqCst);
        let other = slot.get(|| async { Ok(Wire::default()) }).await.ok().unwrap();
        assert!(!Arc::ptr_eq(&wire, &other));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_right_after_a_failure_hears_the_same() {
        let slot = Slot::<Wire>::new();
        assert!(slot.get_soon(|| async { Err("away".to_owned()) }).await.is_err());
        let again = slot.get_soon(|| async { panic!("it was just tried") }).await;
        assert_eq!(again.err().as_deref(), Some("away"));
        assert!(slot.get(|| async { Ok(Wire::default()) }).await.is_ok());
    }

    #[tokio::test]
    async fn whoever_gives_up_does_not_take_the_others_along() {
        let slot = Slot::<Wire>::new();
        let (answer, answered) = oneshot::channel::<()>();
        let open = || async {
            answered.await.ok();
            Ok(Wire::default())
        };
        assert!(slot.get(open).now_or_never().is_none());
        answer.send(()).unwrap();
        assert!(slot.get(|| async { panic!("it is being opened") }).await.is_ok());
        assert!(slot.take().is_some());
        assert!(slot.take().is_none());
    }
}
