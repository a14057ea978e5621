//! An outbox that is made when a case first touches it.
//!
//! To make one is most of the time of a case on a database, and a case that the backend cannot do asks for nothing but
//! [`Harness::can`]. What that says is remembered for the rest of the process, so that such a case makes no outbox.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use pillarbox::{EnqueueError, Enqueued, Event};
use pillarbox_store::{Operate, Store};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::harness::{Capability, Corruption, Harness, Skipped, Tx};

type Answers = HashMap<(&'static str, Capability), Result<(), Skipped>>;

/// By suite: what its backend can do.
static ANSWERS: Mutex<Option<Answers>> = Mutex::new(None);

/// The outbox of one case.
pub struct Lazy<H, F> {
    suite: &'static str,
    fresh: F,
    made: OnceLock<H>,
}

impl<H, F, Fut> Lazy<H, F>
where
    H: Harness,
    F: Fn() -> Fut,
    Fut: Future<Output = H>,
{
    /// One of this suite, all of whose outboxes can do the same.
    pub fn new(suite: &'static str, fresh: F) -> Self {
        Self {
            suite,
            fresh,
            made: OnceLock::new(),
        }
    }

    fn made(&self) -> &H {
        // Some of its callers cannot wait; every case has a runtime of several threads.
        let make = || Handle::current().block_on(Box::pin((self.fresh)()));
        self.made.get_or_init(|| tokio::task::block_in_place(make))
    }
}

#[async_trait]
impl<H, F, Fut> Harness for Lazy<H, F>
where
    H: Harness,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = H>,
{
    fn store(&self) -> Arc<dyn Store> {
        self.made().store()
    }

    fn operate(&self) -> Arc<dyn Operate> {
        self.made().operate()
    }

    async fn begin(&self) -> Box<dyn Tx> {
        self.made().begin().await
    }

    async fn age(&self, by: time::Duration) {
        self.made().age(by).await;
    }

    fn can(&self, what: Capability) -> Result<(), Skipped> {
        let question = (self.suite, what);
        if let Some(answer) = answers(|known| known.get(&question).copied()) {
            return answer;
        }
        let answer = self.made().can(what);
        answers(|known| known.insert(question, answer));
        answer
    }

    async fn corrupt(&self, id: Uuid, corruption: Corruption) {
        self.made().corrupt(id, corruption).await;
    }

    async fn clean_up(&self) {
        if let Some(harness) = self.made.get() {
            harness.clean_up().await;
        }
    }

    async fn enqueue(&self, events: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        self.made().enqueue(events).await
    }
}

fn answers<T>(look: impl FnOnce(&mut Answers) -> T) -> T {
    let mut known = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    look(known.get_or_insert_default())
}
