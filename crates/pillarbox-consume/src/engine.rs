//! The loop: takes messages from the source and starts what is to be done about them.
//!
//! Messages of one key are one task's affair, one after another; those without a key have a task each. How many are held
//! at once is the source's affair, how many handlers are at work is decided in `work.rs`.
//!
//! At a shutdown no attempt begins any more, and those that are under way are finished. Only then does the source say
//! goodbye, and gives everything else back: if it did so earlier, another process could handle a later event of a key
//! while an earlier one is still being handled here.
//!
//! **If we die here** nothing was acknowledged that is not committed, and everything else comes again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::lanes::Lanes;
use crate::source::{Inlet, Lane, Message, Source};
use crate::work::Work;

/// How long a source may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(10);

pub(crate) struct Engine<D: Database> {
    work: Arc<Work<D>>,
    lanes: Arc<Lanes<Lane, Message>>,
    /// Everything that is being done about messages.
    tasks: JoinSet<()>,
}

impl<D: Database> Engine<D> {
    pub(crate) fn new(work: Arc<Work<D>>) -> Self {
        Self {
            work,
            lanes: Arc::new(Lanes::new()),
            tasks: JoinSet::new(),
        }
    }

    /// Runs until the consumer is stopped.
    pub(crate) async fn run(mut self, source: impl Source) {
        let (inlet, mut messages) = Inlet::new();
        let end = CancellationToken::new();
        let mut listening = JoinSet::new();
        listening.spawn(listen(
            Box::new(source),
            self.work.attempts.consumer.clone(),
            inlet,
            end.clone(),
        ));
        self.take(&mut messages).await;
        self.finish().await;
        end.cancel();
        // What still comes is not taken any more, so that nothing is started. It goes back with the rest.
        let goodbye = timeout(GOODBYE, listening.join_next()).await;
        match goodbye {
            Ok(ended) => drop(ended.map(sound)),
            Err(_) => tracing::warn!("the source did not say goodbye within {GOODBYE:?}"),
        }
        while messages.try_recv().is_ok() {
            self.work.counters.released();
        }
    }

    async fn take(&mut self, messages: &mut mpsc::UnboundedReceiver<Message>) {
        let stop = self.work.stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(ended) = self.tasks.join_next() => sound(ended),
                message = messages.recv() => match message {
                    Some(message) => self.start(message),
                    None => return, // the source ended by itself, which it does only by a panic of its own
                },
            }
        }
    }

    fn start(&mut self, message: Message) {
        self.work.counters.received();
        let work = self.work.clone();
        let Some(lane) = message.lane.clone() else {
            self.tasks.spawn(async move { work.see_through(message).await });
            return;
        };
        let Some(first) = self.lanes.enter(&lane, message) else {
            return; // the task of its lane will come to it
        };
        let lanes = self.lanes.clone();
        self.tasks.spawn(async move {
            let mut next = Some(first);
            while let Some(message) = next {
                work.see_through(message).await;
                next = lanes.next(&lane);
            }
        });
    }

    /// Waits for what is under way, up to the grace period. What takes longer is dropped: its transaction rolls back.
    async fn finish(&mut self) {
        let grace = self.work.attempts.settings.grace;
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                sound(ended);
            }
        };
        if timeout(grace, all).await.is_err() {
            let unfinished = self.tasks.len();
            tracing::warn!(
                unfinished,
                "handlers were still at work after {grace:?}; their events come again"
            );
            self.tasks.shutdown().await;
        }
    }
}

async fn listen(source: Box<impl Source>, consumer: String, inlet: Inlet, end: CancellationToken) {
    source.listen(&consumer, inlet, end).await;
}

/// A panic of a handler is caught where it is called. One of ours is a bug, and must not be hidden.
fn sound(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

#[cfg(test)]
mod tests;
