//! The one place in the crate that spawns, loops, waits and backs off.
//!
//! A task does one step and returns when it wants to be called again. [`Task::listen`] names what may call it earlier: a
//! wake, an ended attempt, a message. It can be cancelled at any point, so it only notes what it heard. Calls to the
//! store are made in [`Task::tick`], which is never cancelled.
//!
//! A tick that returns a [`StoreError`] is called again after a wait that doubles. The error is counted and logged here.
//!
//! **If we die here** only what a task holds in memory is lost. Each task documents what that means.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::StoreError;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::worker::Worker;
use crate::worker::backoff::Backoff;

/// When a task wants to be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once.
    Again,
    /// After this long, or when it hears something.
    Wait(Duration),
    /// After the same wait as for a store error. The store is available: the error concerns this task alone.
    Retry,
    /// Never.
    Done,
}

/// For a task that waits only for what it listens to.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// One job of a worker, done step by step.
pub(crate) trait Task: Send {
    /// Does one step. Runs to its end.
    ///
    /// # Errors
    /// When a call to the store failed. The next tick repeats or continues the step.
    fn tick(&mut self) -> impl Future<Output = Result<Next, StoreError>> + Send;

    /// Waits for what should end a wait early, and notes it. Safe to cancel.
    fn listen(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// The worker shuts down: there is no further tick.
    fn stopped(&mut self) {}
}

/// The tasks of one worker.
pub(crate) struct Tasks {
    worker: Arc<Worker>,
    running: JoinSet<Arc<str>>,
}

impl Tasks {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self {
            worker,
            running: JoinSet::new(),
        }
    }

    /// Runs a task until it is done, or, between two ticks, until `stop`. Its name tells its errors from those of others.
    pub(crate) fn spawn(
        &mut self,
        name: impl Into<Arc<str>>,
        task: impl Task + 'static,
        stop: &CancellationToken,
    ) {
        let name = name.into();
        let span = tracing::debug_span!("task", task = &*name);
        let run = run(task, name, Arc::clone(&self.worker), stop.clone());
        self.running.spawn(run.instrument(span));
    }

    /// The name of the next task that ends; `None` when all have ended. Safe to cancel.
    ///
    /// # Panics
    /// When a task panicked.
    pub(crate) async fn ended(&mut self) -> Option<Arc<str>> {
        match self.running.join_next().await?.map_err(JoinError::try_into_panic) {
            Ok(name) => Some(name),
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(cancelled)) => unreachable!("only `abort` cancels a task: {cancelled}"),
        }
    }

    /// Aborts all tasks.
    pub(crate) async fn abort(&mut self) {
        self.running.shutdown().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the home of all waits of the engine")]
async fn run(mut task: impl Task, name: Arc<str>, worker: Arc<Worker>, stop: CancellationToken) -> Arc<str> {
    let mut backoff = Backoff::for_store();
    let mut is_failing = false;
    while !stop.is_cancelled() {
        let next = task.tick().await;
        match &next {
            // A settler that gives up at shutdown is done and has not reached the store.
            Ok(Next::Done) => {}
            Ok(next) => {
                if *next != Next::Retry {
                    backoff.worked();
                }
                if std::mem::take(&mut is_failing) {
                    worker.store_health.worked(&name);
                }
            }
            Err(error) => {
                is_failing = true;
                worker.store_error();
                worker.store_health.failed(&name, error, worker.now());
            }
        }
        match next {
            // A task that always has something to do must not keep the others from running.
            Ok(Next::Again) => tokio::task::consume_budget().await,
            Ok(Next::Wait(wait)) => {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = task.listen() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            Ok(Next::Done) => return name,
            Ok(Next::Retry) | Err(_) => {
                let wait = backoff.failed(fastrand::f64());
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = listen_for(&mut task, wait) => {}
                }
            }
        }
    }
    task.stopped();
    name
}

/// Waits the whole time. The task notes what it hears meanwhile.
#[expect(clippy::disallowed_methods, reason = "the home of all waits of the engine")]
async fn listen_for(task: &mut impl Task, wait: Duration) {
    let over = tokio::time::sleep(wait);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = &mut over => return,
            () = task.listen() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use pillarbox::clock::SystemClock;
    use pillarbox_store::stores::memory::Memory;
    use uuid::Uuid;

    use super::*;
    use crate::find::backlogs::Backlogs;
    use crate::metrics::Metrics;
    use crate::settings::Settings;
    use crate::side::family_log::DeadEvents;
    use crate::worker::in_flight::InFlight;
    use crate::worker::store_health::StoreHealth;

    struct Scripted(VecDeque<Result<Next, StoreError>>);

    impl Task for Scripted {
        async fn tick(&mut self) -> Result<Next, StoreError> {
            self.0.pop_front().unwrap_or(Ok(Next::Done))
        }
    }

    fn worker() -> Arc<Worker> {
        Arc::new(Worker {
            id: Uuid::nil(),
            settings: Settings::default(),
            store: Arc::new(Memory::default()),
            clock: Arc::new(SystemClock),
            counters: Arc::default(),
            metrics: Metrics::new("default", &[], &[]),
            store_health: StoreHealth::new(metrics::Gauge::noop()),
            in_flight: InFlight::default(),
            backlogs: Backlogs::default(),
            dead_events: DeadEvents::default(),
            archive: None,
            to_disable: Mutex::default(),
        })
    }

    fn unavailable() -> Result<Next, StoreError> {
        Err(StoreError::Unavailable("refused".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_concerns_one_task_alone_ends_the_outage() {
        let worker = worker();
        let mut tasks = Tasks::new(Arc::clone(&worker));
        let task = Scripted([unavailable(), Ok(Next::Retry)].into());
        tasks.spawn("importer orders", task, &CancellationToken::new());
        while tasks.ended().await.is_some() {}
        assert!(!worker.store_health.is_failing("importer orders"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_importer_that_works_again_does_not_end_the_outage_of_another() {
        let worker = worker();
        let mut tasks = Tasks::new(Arc::clone(&worker));
        let stop = CancellationToken::new();
        tasks.spawn("importer orders", Scripted([unavailable()].into()), &stop);
        let recovers = Scripted([unavailable(), Ok(Next::Again)].into());
        tasks.spawn("importer payments", recovers, &stop);
        while tasks.ended().await.is_some() {}
        assert!(worker.store_health.is_failing("importer orders"));
        assert!(!worker.store_health.is_failing("importer payments"));
    }
}
