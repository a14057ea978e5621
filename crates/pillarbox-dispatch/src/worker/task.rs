//! The one place in the crate that loops and waits.
//!
//! A task does what is at hand and says when it wants to be called again. What may call it earlier (a
//! wake, a finished attempt, a message) it names in [`Task::listen`], which can be cancelled at any
//! point and therefore only notes what it heard; a call to the store or to a sink is made in
//! [`Task::tick`], which is never cancelled.
//!
//! **If we die here** nothing is lost that a task did not hold; each task says what that means.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// When a task wants to be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once.
    Again,
    /// After this long, or when it hears something.
    Wait(Duration),
    /// Never.
    Done,
}

/// For a task that waits only for what it listens to.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A noun with one verb.
pub(crate) trait Task: Send {
    /// Does what is at hand. Runs to its end.
    fn tick(&mut self) -> impl Future<Output = Next> + Send;

    /// Waits for what should cut a wait short, and takes note of it. Safe to cancel. A task that
    /// hears nothing waits for ever.
    fn listen(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Runs a task until it is done, or, between two ticks, until `stop`.
pub(crate) async fn run(mut task: impl Task, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match task.tick().await {
            // A task that always has something to do must not keep the others from running.
            Next::Again => tokio::task::consume_budget().await,
            Next::Wait(wait) => {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = task.listen() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            Next::Done => return,
        }
    }
}
