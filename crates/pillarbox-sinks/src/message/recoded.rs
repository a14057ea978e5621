//! Wraps a sink so that it gets payloads as its receivers want them: decompressed, upcast or compressed.
//!
//! An event that needs none of this passes unchanged. Any other waits for memory and is recoded first. If the wrapped sink
//! keeps order, the wrapper does too: see [`KeyOrder`].
//!
//! **If we die here** nothing was sent yet, or the wrapped sink was called and its own page applies.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Outcomes, Sink};

use super::key_order::{KeyOrder, Turn};
use super::recoder::{PAUSE, Recoder};

/// A sink around another one, which gets payloads as its receivers want them.
pub struct Recoding {
    inner: Arc<dyn Sink>,
    recoder: Recoder,
    /// For sinks that keep order.
    order: Option<KeyOrder>,
}

impl Recoding {
    /// Wraps this sink, so that it never gets a payload that is compressed with zstd. Payloads of more than `limit` bytes
    /// are rejected.
    pub fn decompressing(inner: Arc<dyn Sink>, limit: usize) -> Self {
        Self::with(inner, Recoder::decompressing(limit))
    }

    pub(crate) fn with(inner: Arc<dyn Sink>, recoder: Recoder) -> Self {
        let order = inner.keeps_order().then(KeyOrder::new);
        Self {
            inner,
            recoder,
            order,
        }
    }

    async fn deliver_in_turn(&self, delivery: &Delivery, turn: Turn<'_>) -> Outcome {
        let Some(plan) = self.recoder.plan(&delivery.event) else {
            return turn.send(self.inner.deliver(delivery)).await;
        };
        match self.recoder.recode(delivery, plan).await {
            Ok(recoded) => turn.send(self.inner.deliver(&recoded.delivery)).await,
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
impl Sink for Recoding {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        if let (Some(order), Some(lane)) = (&self.order, delivery.lane) {
            return match order.turn(lane).await {
                Some(turn) => self.deliver_in_turn(delivery, turn).await,
                None => Outcome::Throttled {
                    reason: "an earlier event of its key is not recoded yet".to_owned(),
                    after: Some(PAUSE),
                },
            };
        }
        let Some(plan) = self.recoder.plan(&delivery.event) else {
            return self.inner.deliver(delivery).await;
        };
        match self.recoder.recode(delivery, plan).await {
            Ok(recoded) => self.inner.deliver(&recoded.delivery).await,
            Err(outcome) => outcome,
        }
    }

    /// Only an event that waits for nothing here: it needs no recoding, and no turn.
    fn can_batch(&self, delivery: &Delivery) -> bool {
        let has_turn = self.order.is_some() && delivery.lane.is_some();
        !has_turn && self.recoder.plan(&delivery.event).is_none() && self.inner.can_batch(delivery)
    }

    async fn deliver_all(&self, deliveries: &[&Delivery], outcomes: &Outcomes) {
        self.inner.deliver_all(deliveries, outcomes).await;
    }

    fn keeps_order(&self) -> bool {
        self.inner.keeps_order()
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.inner.part(delivery)
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

    fn decoded(inner: &FakeSink, limit: usize) -> Recoding {
        Recoding::decompressing(Arc::new(inner.clone()), limit)
    }

    #[test]
    fn the_part_of_an_event_is_that_of_the_sink_within() {
        let sink = decoded(&FakeSink::willing().with_parts(), MIB);
        let part = sink.part(&delivery(Event::new("shop", "orders")));
        assert_eq!(part.as_deref(), Some("orders"));
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
        let sink = Recoding::with(Arc::new(inner.clone()), Recoder::with_memory(Some(MIB), 4 * MIB));
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
        let sink = Recoding::with(Arc::new(inner.clone()), Recoder::with_memory(Some(2 * MIB), MIB));
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

    #[tokio::test]
    async fn large_payloads_are_compressed_if_that_helps_and_small_ones_are_not() {
        let (inner, kept) = keeping();
        let sink = Recoding::with(Arc::new(inner), Recoder::compressing(10_000));
        for size in [20_000, 3 * MIB] {
            let sent = numbered(1, large(size));
            assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
            let got = kept.lock().unwrap().pop().unwrap();
            assert_eq!(got.event.content_encoding.as_deref(), Some("zstd"));
            assert_eq!(got.event.media_type(), "application/json");
            let content = pillarbox::compress::decompress(got.event.payload.as_bytes(), size).unwrap();
            assert_eq!(&content, large(size).payload.as_bytes());
        }
        let noise: Vec<u8> = (0..1_250)
            .flat_map(|_| *uuid::Uuid::new_v4().as_bytes())
            .collect();
        let noise = Event::new("shop", "orders").bytes(noise, "image/png");
        for sent in [numbered(1, large(10_000)), numbered(2, noise), stored(3, 20_000)] {
            assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
            assert_eq!(kept.lock().unwrap().pop(), Some(sent));
        }
    }

    #[tokio::test]
    async fn old_events_are_upcast_also_when_they_are_compressed() {
        let (inner, kept) = keeping();
        let step = crate::message::upcasts::Step {
            event_type: "OrderCreated".to_owned(),
            namespace: None,
            topic: None,
            from: 1,
            rename: [("amount".to_owned(), "total".to_owned())].into(),
            default: std::collections::BTreeMap::new(),
            drop: Vec::new(),
        };
        let versions = [("OrderCreated".to_owned(), 2)].into();
        let upcasts = crate::message::Upcasts::new(&[step], &versions).unwrap();
        let recoder = Recoder::decompressing(4 * MIB).upcasting(upcasts);
        let sink = Recoding::with(Arc::new(inner.clone()), recoder);
        for size in [10, 3 * MIB] {
            let payload = serde_json::json!({"amount": 1, "note": "x".repeat(size)});
            let event = Event::new("shop", "orders")
                .event_type("OrderCreated")
                .json(&payload)
                .unwrap();
            let sent = compress(&event, 0).map_or_else(|| numbered(1, event), |small| numbered(1, small));
            assert_eq!(sent.event.content_encoding.is_some(), size > 10);
            assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
            let got = kept.lock().unwrap().pop().unwrap().event;
            assert_eq!((got.event_version, &got.content_encoding), (2, &None));
            let got: serde_json::Value = serde_json::from_slice(got.payload.as_bytes()).unwrap();
            assert_eq!(
                (&got["total"], &got["amount"]),
                (&1.into(), &serde_json::Value::Null)
            );
        }
        let broken = Event::new("shop", "orders")
            .event_type("OrderCreated")
            .json(&7)
            .unwrap();
        let said = reason(sink.deliver(&numbered(2, broken)).await);
        assert!(said.contains("cannot be made into version 2"), "{said}");
        // What is not JSON is delivered as it is.
        let picture = Event::new("shop", "orders")
            .event_type("OrderCreated")
            .bytes(&b"GIF"[..], "image/gif");
        let sent = numbered(3, picture);
        assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
        assert_eq!(kept.lock().unwrap().pop(), Some(sent));
    }
}
