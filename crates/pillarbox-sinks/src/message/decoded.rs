//! Wraps a sink so that it gets decompressed payloads.
//!
//! A payload that is not compressed passes unchanged. A compressed one waits for memory and is decompressed first. If the
//! wrapped sink keeps order, the wrapper does too: see [`KeyOrder`].
//!
//! **If we die here** nothing was sent yet, or the wrapped sink was called and its own page applies.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::compress::is_compressed;
use pillarbox::{Delivery, Outcome, Sink};

use super::decoder::{Decoder, PAUSE};
use super::key_order::{KeyOrder, Turn};

/// A sink around another one, which never gets a payload that is compressed with zstd.
pub struct Decoded {
    inner: Arc<dyn Sink>,
    decoder: Decoder,
    /// For sinks that keep order.
    order: Option<KeyOrder>,
}

impl Decoded {
    /// Wraps this sink. Payloads of more than `limit` bytes are rejected.
    pub fn around(inner: Arc<dyn Sink>, limit: usize) -> Self {
        Self::with(inner, Decoder::new(limit))
    }

    pub(crate) fn with(inner: Arc<dyn Sink>, decoder: Decoder) -> Self {
        let order = inner.keeps_order().then(KeyOrder::new);
        Self {
            inner,
            decoder,
            order,
        }
    }

    async fn deliver_in_turn(&self, delivery: &Delivery, turn: Turn<'_>) -> Outcome {
        if !is_compressed(&delivery.event) {
            return turn.send(self.inner.deliver(delivery)).await;
        }
        match self.decoder.decompress(delivery).await {
            Ok(decompressed) => turn.send(self.inner.deliver(&decompressed.delivery)).await,
            Err(outcome) => {
                // A rejected event is never sent, so others need not wait for it. Any other is sent later, before them.
                if matches!(outcome, Outcome::Reject { .. }) {
                    turn.skip();
                }
                outcome
            }
        }
    }
}

#[async_trait]
impl Sink for Decoded {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        if let (Some(order), Some(lane)) = (&self.order, delivery.lane) {
            return match order.turn(lane).await {
                Some(turn) => self.deliver_in_turn(delivery, turn).await,
                None => Outcome::Throttled {
                    reason: "an earlier event of its key is not decompressed yet".to_owned(),
                    after: Some(PAUSE),
                },
            };
        }
        if !is_compressed(&delivery.event) {
            return self.inner.deliver(delivery).await;
        }
        match self.decoder.decompress(delivery).await {
            Ok(decompressed) => self.inner.deliver(&decompressed.delivery).await,
            Err(outcome) => outcome,
        }
    }

    fn keeps_order(&self) -> bool {
        self.inner.keeps_order()
    }

    async fn check(&self) -> Result<(), String> {
        self.inner.check().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[cfg(test)]
#[cfg(feature = "zstd")]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use futures_util::StreamExt;
    use futures_util::stream::FuturesUnordered;
    use pillarbox::Event;
    use pillarbox::compress::compress;
    use pillarbox_testkit::fakes::FakeSink;
    use std::sync::Mutex;
    use tokio::sync::Semaphore;

    const MIB: usize = 1024 * 1024;

    fn large(size: usize) -> Event {
        let content: String = "all work and no play ".chars().cycle().take(size - 2).collect();
        Event::new("shop", "orders").json(&content).unwrap()
    }

    fn stored(seq: i64, size: usize) -> Delivery {
        numbered(seq, compress(&large(size), 0).unwrap())
    }

    fn small(seq: i64) -> Delivery {
        numbered(
            seq,
            Event::new("shop", "orders").bytes(&b"small"[..], "text/plain"),
        )
    }

    fn numbered(seq: i64, event: Event) -> Delivery {
        let mut delivery = delivery(event);
        delivery.seq = seq;
        delivery
    }

    fn decoded(inner: &FakeSink, limit: usize) -> Decoded {
        Decoded::around(Arc::new(inner.clone()), limit)
    }

    fn numbers(sink: &FakeSink) -> Vec<i64> {
        sink.ledger().iter().map(|entry| entry.seq).collect()
    }

    fn reason(outcome: Outcome) -> String {
        match outcome {
            Outcome::Reject { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    /// A sink and the deliveries that it gets.
    fn keeping() -> (FakeSink, Arc<Mutex<Vec<Delivery>>>) {
        let kept: Arc<Mutex<Vec<Delivery>>> = Arc::default();
        let keep = kept.clone();
        let sink = FakeSink::answering(move |delivery| {
            keep.lock().unwrap().push(delivery.clone());
            Outcome::Delivered
        });
        (sink, kept)
    }

    #[tokio::test]
    async fn what_is_stored_compressed_is_delivered_as_it_was() {
        let (inner, kept) = keeping();
        let sink = decoded(&inner, 4 * MIB);
        for size in [1000, 3 * MIB] {
            let sent = stored(1, size);
            assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
            let got = kept.lock().unwrap().pop().unwrap();
            assert_eq!(got.event.payload, large(size).payload);
            assert_eq!(got.event.content_encoding, None);
            assert_eq!(
                (got.event.media_type(), got.event.id),
                ("application/json", sent.event.id)
            );
        }
    }

    #[tokio::test]
    async fn what_is_not_compressed_or_in_another_way_is_left_alone() {
        let (inner, kept) = keeping();
        let sink = decoded(&inner, MIB);
        let mut gzip = small(2);
        gzip.event.content_encoding = Some("gzip".to_owned());
        for sent in [small(1), gzip] {
            assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
            assert_eq!(kept.lock().unwrap().pop(), Some(sent));
        }
    }

    #[tokio::test]
    async fn what_is_too_large_or_broken_is_rejected_with_a_reason() {
        let inner = FakeSink::willing();
        let sink = decoded(&inner, MIB);
        let said = reason(sink.deliver(&stored(1, 2 * MIB)).await);
        assert!(
            said.contains("larger than 1048576 bytes") && said.contains("`max_decompressed`"),
            "{said}"
        );
        let mut broken = small(2);
        broken.event.content_encoding = Some("zstd".to_owned());
        let said = reason(sink.deliver(&broken).await);
        assert!(said.contains("not valid zstd"), "{said}");
        assert_eq!(numbers(&inner), Vec::<i64>::new());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_compressed_event_is_not_overtaken_by_a_small_one_of_its_key() {
        let inner = FakeSink::scripted(|_| async {
            tokio::task::yield_now().await;
            Outcome::Delivered
        });
        let sink = decoded(&inner, 4 * MIB);
        assert!(sink.keeps_order());
        let kinds = [stored(0, 2 * MIB), stored(0, 1000), small(0)];
        let sent: Vec<Delivery> = (0..60)
            .zip(kinds.iter().cycle())
            .map(|(seq, kind)| Delivery {
                seq,
                lane: Some(7),
                ..kind.clone()
            })
            .collect();
        // In one task, as the dispatcher does it: none waits for the one before.
        let mut calls: FuturesUnordered<_> = sent.iter().map(|one| sink.deliver(one)).collect();
        while let Some(outcome) = calls.next().await {
            assert_eq!(outcome, Outcome::Delivered);
        }
        assert_eq!(numbers(&inner), (0..60).collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_decompressed_at_once_is_bounded() {
        let permits = Arc::new(Semaphore::new(0));
        let waiting = permits.clone();
        let inner = FakeSink::scripted(move |_| {
            let permits = waiting.clone();
            async move {
                permits.acquire().await.expect("it stays open").forget();
                Outcome::Delivered
            }
        });
        let sink = Decoded::with(Arc::new(inner.clone()), Decoder::with_memory(MIB, 4 * MIB));
        let sent: Vec<Delivery> = (0..6).map(|number| stored(number, MIB)).collect();
        let mut calls: FuturesUnordered<_> = sent.iter().map(|one| sink.deliver(one)).collect();
        // Each takes one MiB of four: four are in flight, and two wait until one is done.
        let fourth = async {
            while inner.ledger().len() < 4 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = fourth => {}
            outcome = calls.next() => panic!("{outcome:?} without an answer"),
        }
        for done in 1..=6 {
            assert_eq!(inner.ledger().len(), (done + 3).min(6));
            permits.add_permits(1);
            assert_eq!(calls.next().await, Some(Outcome::Delivered));
            let next = async {
                while inner.ledger().len() < (done + 4).min(6) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = next => {}
                outcome = calls.next(), if !calls.is_empty() => panic!("{outcome:?} without an answer"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_finds_no_room_comes_again_and_its_attempt_does_not_count() {
        let inner = FakeSink::hanging();
        // Larger than all the memory: it takes all of it.
        let sink = Decoded::with(Arc::new(inner.clone()), Decoder::with_memory(2 * MIB, MIB));
        let (first, second) = (stored(1, 2 * MIB), stored(2, 1000));
        let first_delivery = sink.deliver(&first);
        let refused = sink.deliver(&second);
        tokio::select! {
            biased; // the first one comes first
            outcome = first_delivery => panic!("{outcome:?} without an answer"),
            outcome = refused => assert_eq!(outcome.name(), "throttled"),
        }
        assert_eq!(numbers(&inner), [1]);
    }
}
