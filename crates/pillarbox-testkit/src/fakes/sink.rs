//! A destination whose outcomes a test sets.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use pillarbox::{Delivery, Outcome, Outcomes, Sink};
use tokio::time::Instant;
use uuid::Uuid;

/// One attempt, as the sink saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Which event.
    pub event: Uuid,
    /// Its ordering key.
    pub key: Option<String>,
    /// Its sequence number.
    pub seq: i64,
    /// Which attempt.
    pub attempts: u32,
    /// When it began.
    pub began: Instant,
    /// How many were running when it began, itself included.
    pub company: usize,
    /// What it answered; `None` if it was dropped, panicked or is still running.
    pub outcome: Option<Outcome>,
}

type Script = dyn Fn(Delivery) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A sink that runs a script and keeps a ledger. Clones are the same sink.
#[derive(Clone)]
pub struct FakeSink {
    script: Arc<Script>,
    ledger: Arc<Mutex<Vec<Entry>>>,
    running: Arc<AtomicUsize>,
    checks: Arc<AtomicUsize>,
    is_away: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
    has_parts: bool,
    is_batching: bool,
    batches: Arc<Mutex<Vec<usize>>>,
}

impl FakeSink {
    /// Runs the script for each attempt.
    pub fn scripted<F>(script: impl Fn(Delivery) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self {
            script: Arc::new(move |delivery| Box::pin(script(delivery))),
            ledger: Arc::default(),
            running: Arc::default(),
            checks: Arc::default(),
            is_away: Arc::default(),
            is_closed: Arc::default(),
            has_parts: false,
            is_batching: false,
            batches: Arc::default(),
        }
    }

    /// Takes events in batches. An event whose type is `single` has its own call.
    #[must_use]
    pub fn batching(mut self) -> Self {
        self.is_batching = true;
        self
    }

    /// The sizes of the batches that it was called with.
    pub fn batches(&self) -> Vec<usize> {
        self.batches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Makes each topic a part of the destination.
    #[must_use]
    pub fn with_parts(mut self) -> Self {
        self.has_parts = true;
        self
    }

    /// Answers at once.
    pub fn answering(answer: impl Fn(&Delivery) -> Outcome + Send + Sync + 'static) -> Self {
        Self::scripted(move |delivery| std::future::ready(answer(&delivery)))
    }

    /// Confirms everything.
    pub fn willing() -> Self {
        Self::answering(|_| Outcome::Delivered)
    }

    /// Never answers.
    pub fn hanging() -> Self {
        Self::scripted(|_| std::future::pending())
    }

    /// Makes `check()` fail, or succeed again.
    pub fn set_away(&self, away: bool) {
        self.is_away.store(away, Ordering::SeqCst);
    }

    /// Does `check()` fail?
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    /// Every attempt, in the order in which they began.
    pub fn ledger(&self) -> Vec<Entry> {
        self.entries().clone()
    }

    /// The events that were confirmed, in the order in which their attempts began.
    pub fn delivered(&self) -> Vec<Uuid> {
        let confirmed = |entry: &&Entry| entry.outcome == Some(Outcome::Delivered);
        self.entries()
            .iter()
            .filter(confirmed)
            .map(|entry| entry.event)
            .collect()
    }

    /// How many attempts are running.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// How often it was checked.
    pub fn checks(&self) -> usize {
        self.checks.load(Ordering::SeqCst)
    }

    /// Was it closed?
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_batch(&self, size: usize) {
        let batches = self.batches.lock();
        batches.unwrap_or_else(PoisonError::into_inner).push(size);
    }

    fn begin(&self, delivery: &Delivery) -> usize {
        let entry = Entry {
            event: delivery.event.id,
            key: delivery.event.ordering_key.clone(),
            seq: delivery.seq,
            attempts: delivery.attempts,
            began: Instant::now(),
            company: self.running.load(Ordering::SeqCst),
            outcome: None,
        };
        let mut entries = self.entries();
        entries.push(entry);
        entries.len() - 1
    }
}

/// Counts an attempt as running until it is dropped, however it ends.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Sink for FakeSink {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        assert!(!self.is_closed(), "an attempt after close");
        let _running = Running::new(&self.running);
        let place = self.begin(delivery);
        let outcome = (self.script)(delivery.clone()).await;
        self.entries()[place].outcome = Some(outcome.clone());
        outcome
    }

    fn can_batch(&self, delivery: &Delivery) -> bool {
        self.is_batching && delivery.event.event_type.as_deref() != Some("single")
    }

    async fn deliver_all(&self, deliveries: &[&Delivery], outcomes: &Outcomes) {
        self.count_batch(deliveries.len());
        let attempts = deliveries.iter().enumerate();
        let attempts = attempts.map(|(index, delivery)| async move { (index, self.deliver(delivery).await) });
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        while let Some((index, outcome)) = attempts.next().await {
            outcomes.report(index, outcome);
        }
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.has_parts.then(|| delivery.event.topic.clone())
    }

    async fn check(&self) -> Result<(), String> {
        self.checks.fetch_add(1, Ordering::SeqCst);
        if self.is_away() {
            Err("connection refused".to_owned())
        } else {
            Ok(())
        }
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}
