//! Keeps a watch of the store, as the finder wants it: opens it, listens to it, and opens it again after a failure.
//!
//! The call under way is kept between two waits of the finder. It is dropped only when the worker stops, which closes the
//! connection of the watch: the contract of [`Watch`] allows that.
//!
//! While there is no watch the finder polls. That is logged once, with the reason.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pillarbox::StoreError;
use pillarbox_store::Store;
use pillarbox_store::store::{Change, Watch};

use crate::find::rhythm::Heard;
use crate::worker::backoff::Backoff;

/// See the module.
pub(crate) struct Watcher {
    store: Arc<dyn Store>,
    state: State,
    backoff: Backoff,
    is_failing: bool,
}

enum State {
    /// Not open, until then.
    Closed {
        open_at: Duration,
    },
    Open(Box<dyn Watch>),
    Calling(BoxFuture<'static, Result<Called, StoreError>>),
    /// The store has no watch, or the settings want none.
    None,
}

enum Called {
    Opened(Option<Box<dyn Watch>>),
    Saw(Box<dyn Watch>, Change),
}

impl Watcher {
    pub(crate) fn new(store: Arc<dyn Store>, is_wanted: bool) -> Self {
        let state = if is_wanted {
            State::Closed {
                open_at: Duration::ZERO,
            }
        } else {
            State::None
        };
        Self {
            store,
            state,
            backoff: Backoff::for_store(),
            is_failing: false,
        }
    }

    /// Begins the next call, if none is under way: opens the watch, or waits for events if that is wanted.
    pub(crate) fn call(&mut self, wants: Option<bool>, now: Duration) {
        let state = std::mem::replace(&mut self.state, State::None);
        self.state = match (state, wants) {
            (State::Closed { open_at }, _) if now >= open_at => {
                let store = Arc::clone(&self.store);
                State::Calling(Box::pin(async move { store.watch().await.map(Called::Opened) }))
            }
            (State::Open(mut watch), Some(until_ended)) => State::Calling(Box::pin(async move {
                let change = watch.next(until_ended).await?;
                Ok(Called::Saw(watch, change))
            })),
            (state, _) => state,
        };
    }

    /// When a watch that failed is opened again.
    pub(crate) fn open_at(&self) -> Option<Duration> {
        match self.state {
            State::Closed { open_at } => Some(open_at),
            State::Open(_) | State::Calling(_) | State::None => None,
        }
    }

    /// Waits for the end of the call under way. Safe to cancel: the next call goes on with it.
    pub(crate) async fn called(&mut self) -> Ended {
        let State::Calling(call) = &mut self.state else {
            return std::future::pending().await;
        };
        let called = call.await;
        self.state = State::None;
        Ended(called)
    }

    /// Notes how the call ended. Returns what the rhythm should hear.
    pub(crate) fn ended(&mut self, Ended(called): Ended, now: Duration) -> Option<Heard> {
        match called {
            Ok(Called::Opened(Some(watch))) => {
                self.state = State::Open(watch);
                Some(Heard::Watched(true))
            }
            Ok(Called::Opened(None)) => None, // the store has logged why
            Ok(Called::Saw(watch, change)) => {
                self.state = State::Open(watch);
                self.backoff.worked();
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("watching for new events again");
                }
                match change {
                    Change::Begun(events) => Some(Heard::Begun(events)),
                    Change::Ended => Some(Heard::Ended),
                    Change::Nothing => None,
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "watch for new events failed; polling until it works again");
                }
                self.state = State::Closed {
                    open_at: now + self.backoff.failed(fastrand::f64()),
                };
                Some(Heard::Watched(false))
            }
        }
    }
}

/// How a call ended.
pub(crate) struct Ended(Result<Called, StoreError>);
