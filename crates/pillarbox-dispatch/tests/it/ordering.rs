//! Order per key: what blocks a key, and which worker owns which lanes.

use std::collections::HashMap;
use std::sync::Arc;

use pillarbox::{Event, Outcome, RetryPolicy};
use pillarbox_dispatch::OnDead;
use pillarbox_store::store::Settlement;
use pillarbox_store::{Operate, Scope, Store, Verdict};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::fakes::{FakeSink, Fault};
use uuid::Uuid;

use crate::fixture::{Fixture, destination, event, keyed, ms, policy, s, until};

/// Answers events with the header `bad` like this, and delivers the others.
fn picky(refusal: Outcome) -> FakeSink {
    FakeSink::answering(move |delivery| match delivery.event.headers.contains_key("bad") {
        true => refusal.clone(),
        false => Outcome::Delivered,
    })
}

fn bad(key: &str) -> Event {
    keyed(key).header("bad", "yes")
}

#[tokio::test(start_paused = true)]
async fn a_failing_head_blocks_its_key_and_no_other() {
    let fixture = Fixture::new();
    let sink = picky(Outcome::retry("not now"));
    let head = fixture.enqueue(bad("k"));
    let behind: Vec<Uuid> = (0..50).map(|_| fixture.enqueue(keyed("k"))).collect();
    let others: Vec<Uuid> = (0..50)
        .map(|n| fixture.enqueue(keyed(&format!("other-{n}"))))
        .collect();
    let worker = fixture.start(&sink);
    fixture.until(50, "delivered").await;
    let blocked = fixture
        .outbox
        .blocked(&OPERATOR, &Scope::All, 10)
        .await
        .expect("memory store");
    assert_eq!(blocked.len(), 1);
    assert_eq!((blocked[0].head, blocked[0].ordering_key.as_str()), (head, "k"));
    assert_eq!(blocked[0].reason.as_deref(), Some("not now"));
    let mut delivered = sink.delivered();
    delivered.sort_unstable();
    assert_eq!(delivered, others);
    fixture.until(1, "dead").await;
    worker.stop().await;
    assert!(sink.ledger().iter().all(|entry| !behind.contains(&entry.event)));
}

#[tokio::test(start_paused = true)]
async fn a_dead_head_blocks_its_key_until_an_operator_skips_it() {
    let fixture = Fixture::new();
    let sink = picky(Outcome::reject("never"));
    let head = fixture.enqueue(bad("k"));
    let behind: Vec<Uuid> = (0..3).map(|_| fixture.enqueue(keyed("k"))).collect();
    let worker = fixture.start(&sink);
    fixture.until(1, "dead").await;
    tokio::time::sleep(s(100)).await;
    assert!(sink.delivered().is_empty());
    let blocked = fixture
        .outbox
        .blocked(&OPERATOR, &Scope::All, 10)
        .await
        .expect("memory store");
    assert_eq!((blocked[0].head, blocked[0].status.as_str()), (head, "dead"));
    assert_eq!(
        fixture
            .outbox
            .skip(&OPERATOR, &[head])
            .await
            .expect("memory store"),
        [head]
    );
    fixture.until(3, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), behind);
}

#[tokio::test(start_paused = true)]
async fn a_dead_head_that_an_operator_retries_goes_before_the_rows_behind_it() {
    let fixture = Fixture::new();
    let mended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let sink = FakeSink::answering(move |delivery| {
        let refuses = delivery.event.headers.contains_key("bad")
            && !is_mended.load(std::sync::atomic::Ordering::SeqCst);
        if refuses {
            Outcome::reject("never")
        } else {
            Outcome::Delivered
        }
    });
    let head = fixture.enqueue(bad("k"));
    let next = fixture.enqueue(keyed("k"));
    let worker = fixture.start(&sink);
    fixture.until(1, "dead").await;
    mended.store(true, std::sync::atomic::Ordering::SeqCst);
    fixture
        .outbox
        .retry(&OPERATOR, &[head])
        .await
        .expect("memory store");
    fixture.until(2, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), [head, next]);
}

#[tokio::test(start_paused = true)]
async fn with_on_dead_continue_the_rows_behind_a_dead_head_continue() {
    let fixture = Fixture::new();
    let sink = picky(Outcome::reject("never"));
    let head = fixture.enqueue(bad("k"));
    let behind: Vec<Uuid> = (0..3).map(|_| fixture.enqueue(keyed("k"))).collect();
    let mut there = destination("there", &sink);
    there.policy.on_dead = OnDead::Continue;
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(3, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), behind);
    let row = fixture.row(head).await;
    assert_eq!((row.status.as_str(), row.unordered), ("dead", true));
}

#[tokio::test(start_paused = true)]
async fn if_only_first_attempts_are_ordered_a_failing_head_does_not_hold_the_others_back() {
    let fixture = Fixture::new();
    let sink = picky(Outcome::retry("later"));
    let head = fixture.enqueue(bad("k"));
    let behind: Vec<Uuid> = (0..3).map(|_| fixture.enqueue(keyed("k"))).collect();
    let mut there = destination("there", &sink);
    there.policy = there
        .policy
        .first_attempts_only(true)
        .retry(RetryPolicy::steps(vec![ms(3_600_000)]));
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(3, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), behind);
    let row = fixture.row(head).await;
    assert_eq!(
        (row.status.as_str(), row.attempts, row.unordered),
        ("pending", 1, true)
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_to_on_dead_continue_unblocks_keys() {
    let fixture = Fixture::new();
    let sink = picky(Outcome::reject("never"));
    fixture.enqueue(bad("k"));
    let next = fixture.enqueue(keyed("k"));
    let worker = fixture.start(&sink);
    fixture.until(1, "dead").await;
    worker.stop().await;
    let sink = FakeSink::willing();
    let mut there = destination("there", &sink);
    there.policy.on_dead = OnDead::Continue;
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(1, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), [next]);
}

/// A claim makes an unreadable row dead without its policy. The memory store has none, so the sink does as such a claim would.
#[tokio::test(start_paused = true)]
async fn with_on_dead_continue_an_unreadable_row_frees_its_key_at_once() {
    let fixture = Fixture::new();
    let head = fixture.enqueue(keyed("k"));
    let next = fixture.enqueue(keyed("k"));
    let (outbox, store) = (fixture.outbox.clone(), fixture.store.clone());
    let sink = FakeSink::scripted(move |delivery| {
        let (outbox, store) = (outbox.clone(), store.clone());
        async move {
            if delivery.id == head {
                let row = outbox
                    .show(&OPERATOR, head)
                    .await
                    .expect("memory store")
                    .expect("the row");
                let settlement = Settlement {
                    id: head,
                    claim: delivery.claim,
                    verdict: Verdict::Dead {
                        reason: "unreadable: 22008".to_owned(),
                    },
                    destination: None,
                    max_attempts: None,
                    unordered: false,
                    keep: true,
                };
                let worker = row.locked_by.expect("a claimed row");
                let lost = outbox.settle(worker, &[settlement]).await;
                assert!(lost.expect("memory store").is_empty());
                store.report_unreadable();
                return Outcome::retry("it is not ours any more");
            }
            Outcome::Delivered
        }
    });
    let mut there = destination("there", &sink);
    there.policy.on_dead = OnDead::Continue;
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(1, "dead").await;
    let began = tokio::time::Instant::now();
    let other = fixture.enqueue(event());
    fixture.until(2, "delivered").await;
    assert!(began.elapsed() < s(5), "{:?}", began.elapsed());
    worker.stop().await;
    let mut delivered = sink.delivered();
    delivered.sort_unstable();
    assert_eq!(delivered, [next, other]);
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_claimed_in_runs_and_sent_one_by_one() {
    let fixture = Fixture::new();
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(1)).await;
        Outcome::Delivered
    });
    let ids: Vec<Uuid> = (0..3_000).map(|_| fixture.enqueue(keyed("hot"))).collect();
    let worker = fixture.start(&sink);
    fixture.until(3_000, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
    assert!(sink.ledger().iter().all(|entry| entry.company == 1));
    let claims = fixture.store.calls()["claim"];
    assert!(claims < 60, "{claims} claims for 3,000 rows");
}

#[tokio::test(start_paused = true)]
async fn pipelined_rows_of_a_key_do_not_wait_for_each_other() {
    let fixture = Fixture::new();
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(1)).await;
        Outcome::Delivered
    });
    let ids: Vec<Uuid> = (0..40).map(|_| fixture.enqueue(keyed("k"))).collect();
    let mut there = destination("there", &sink);
    there.policy.pipelined = true;
    let worker = fixture.start_with(vec![there], vec![]);
    let began = tokio::time::Instant::now();
    fixture.until(40, "delivered").await;
    assert!(began.elapsed() < s(3), "{:?}", began.elapsed());
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_row_that_fails_loses_only_its_own_place() {
    let fixture = Fixture::new();
    let sink = FakeSink::scripted(|delivery| async move {
        tokio::time::sleep(ms(10)).await;
        match delivery.attempts == 1 && delivery.event.headers.contains_key("bad") {
            true => Outcome::retry("not now"),
            false => Outcome::Delivered,
        }
    });
    let first = fixture.enqueue(keyed("k"));
    let refused = fixture.enqueue(bad("k"));
    let rest: Vec<Uuid> = (0..200).map(|_| fixture.enqueue(keyed("k"))).collect();
    let mut there = destination("there", &sink);
    there.policy.pipelined = true;
    there.concurrency = 4;
    let worker = fixture.start_with(vec![there], vec![]);
    fixture.until(202, "delivered").await;
    worker.stop().await;
    let delivered = sink.delivered();
    let place = delivered
        .iter()
        .position(|id| *id == refused)
        .expect("a delivered event");
    assert!(
        place <= 4,
        "only rows that were being sent went before it: {place}"
    );
    let others: Vec<Uuid> = delivered.into_iter().filter(|id| *id != refused).collect();
    assert_eq!(others, [vec![first], rest].concat());
}

async fn lanes(fixture: &Fixture) -> Vec<u32> {
    let mut lanes: Vec<u32> = fixture
        .outbox
        .workers(&OPERATOR)
        .await
        .expect("memory store")
        .iter()
        .map(|worker| worker.lanes)
        .collect();
    lanes.sort_unstable();
    lanes
}

/// Waits until each of so many workers has its part of the lanes.
async fn until_shared(fixture: &Fixture, workers: u32) {
    let began = tokio::time::Instant::now();
    loop {
        let lanes = lanes(fixture).await;
        let even = lanes.iter().all(|lanes| lanes.abs_diff(4096 / workers) <= 128);
        if lanes.len() == usize::try_from(workers).expect("few") && even && lanes.iter().sum::<u32>() == 4096
        {
            return;
        }
        assert!(began.elapsed() < s(90), "{lanes:?}");
        tokio::time::sleep(ms(100)).await;
    }
}

/// Enqueues events with many keys until the task is aborted.
fn keep_enqueueing(fixture: &Fixture) -> tokio::task::JoinHandle<()> {
    let outbox = fixture.outbox.clone();
    tokio::spawn(async move {
        for n in 0u64.. {
            outbox
                .enqueue(keyed(&format!("key-{}", n % 100)))
                .expect("accepted");
            tokio::time::sleep(ms(50)).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn lanes_are_shared_evenly_and_follow_workers_that_start_and_stop() {
    let fixture = Fixture::new();
    let chatter = keep_enqueueing(&fixture);
    let mut workers = Vec::new();
    for count in 1..=4 {
        let began = tokio::time::Instant::now();
        workers.push(fixture.start(&FakeSink::willing()));
        until_shared(&fixture, count).await;
        assert!(began.elapsed() < s(10), "{count}: {:?}", began.elapsed());
    }
    workers.remove(0).stop().await;
    let began = tokio::time::Instant::now();
    until_shared(&fixture, 3).await;
    assert!(
        began.elapsed() < s(10),
        "lanes of a worker that stopped: {:?}",
        began.elapsed()
    );
    workers.remove(0).kill().await;
    let began = tokio::time::Instant::now();
    loop {
        let all: u32 = lanes(&fixture).await.iter().sum();
        let alive = fixture.outbox.workers(&OPERATOR).await.expect("memory store");
        let alive: u32 = alive
            .iter()
            .filter(|worker| worker.alive)
            .map(|worker| worker.lanes)
            .sum();
        if all == 4096 && alive == 4096 {
            break;
        }
        assert!(began.elapsed() < s(65), "lanes of a worker that died: {all}");
        tokio::time::sleep(ms(100)).await;
    }
    chatter.abort();
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_lane_ranges_can_be_changed_while_workers_run() {
    let mut fixture = Fixture::new();
    let chatter = keep_enqueueing(&fixture);
    let old = fixture.start(&FakeSink::willing());
    until_shared(&fixture, 1).await;
    fixture.settings.lane_ranges = 3;
    let new = fixture.start(&FakeSink::willing());
    let began = tokio::time::Instant::now();
    loop {
        // Three ranges among two workers: 1,366 lanes or 1,365 each.
        let lanes = lanes(&fixture).await;
        if lanes.len() == 2 && lanes[0].abs_diff(1365) <= 1 && lanes[1].abs_diff(2731) <= 1 {
            break;
        }
        assert!(began.elapsed() < s(30), "{lanes:?}");
        tokio::time::sleep(ms(100)).await;
    }
    chatter.abort();
    fixture.until(0, "pending").await;
    old.stop().await;
    new.stop().await;
    assert_eq!(fixture.count("dead").await, 0);
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_worker_that_died_come_back_in_their_order() {
    let fixture = Fixture::new();
    let hanging = FakeSink::hanging();
    let ids: Vec<Uuid> = (0..30).map(|_| fixture.enqueue(keyed("k"))).collect();
    let worker = fixture.start(&hanging);
    until("it is being sent", || hanging.running() == 1).await;
    worker.kill().await;
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    fixture.until(30, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
}

#[tokio::test(start_paused = true)]
async fn four_workers_keep_the_order_of_every_key() {
    let fixture = Fixture::failing(|_| match fastrand::u32(..20) {
        0 => Fault::Slow(ms(300)),
        _ => Fault::None,
    });
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(fastrand::u64(..20))).await;
        match fastrand::u32(..20) {
            0 => Outcome::retry("one in twenty"),
            _ => Outcome::Delivered,
        }
    });
    // Enough attempts that none of two thousand rows uses them up by chance.
    let there = || destination("there", &sink).policy(policy(25));
    let workers: Vec<_> = (0..4)
        .map(|_| fixture.start_with(vec![there()], vec![]))
        .collect();
    for n in 0..2_000 {
        fixture.enqueue(keyed(&format!("key-{}", n % 64)));
    }
    fixture.until(2_000, "delivered").await;
    for worker in workers {
        worker.stop().await;
    }
    let mut last: HashMap<String, i64> = HashMap::new();
    for entry in sink
        .ledger()
        .iter()
        .filter(|entry| entry.outcome == Some(Outcome::Delivered))
    {
        let key = entry.key.clone().expect("an ordering key");
        let before = last.insert(key.clone(), entry.seq).unwrap_or(0);
        assert!(before < entry.seq, "{key}: {} after {before}", entry.seq);
    }
    assert_eq!(last.len(), 64);
}

/// Delivered events of each key are in the order of insertion.
fn assert_in_order(sink: &FakeSink) {
    let mut last: HashMap<String, i64> = HashMap::new();
    let entries = sink.ledger();
    let delivered = entries
        .iter()
        .filter(|entry| entry.outcome == Some(Outcome::Delivered));
    for entry in delivered {
        let key = entry.key.clone().expect("an ordering key");
        let before = last.insert(key.clone(), entry.seq).unwrap_or(0);
        assert!(before < entry.seq, "{key}: {} after {before}", entry.seq);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_with_one_destination_each_deliver_all_keys() {
    let fixture = Fixture::new();
    let (mail, chat) = (FakeSink::willing(), FakeSink::willing());
    let workers = [
        fixture.start_with(vec![destination("mail", &mail)], vec![]),
        fixture.start_with(vec![destination("chat", &chat)], vec![]),
    ];
    for n in 0..100 {
        fixture.enqueue(keyed(&format!("key-{n}")).destination("mail"));
        fixture.enqueue(keyed(&format!("key-{n}")).destination("chat"));
    }
    let began = tokio::time::Instant::now();
    fixture.until(200, "delivered").await;
    assert!(began.elapsed() < s(10), "{:?}", began.elapsed());
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!((mail.delivered().len(), chat.delivered().len()), (100, 100));
}

/// A destination that this worker cannot reach.
fn cut_off() -> FakeSink {
    let sink = FakeSink::answering(|_| Outcome::unavailable("no route to host"));
    sink.set_away(true);
    sink
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_reach_a_destination_hands_its_keys_to_others() {
    let fixture = Fixture::new();
    let healthy = FakeSink::willing();
    let workers = [
        fixture.start(&cut_off()),
        fixture.start(&healthy),
        fixture.start(&cut_off()),
    ];
    for n in 0..300 {
        fixture.enqueue(keyed(&format!("key-{}", n % 100)));
    }
    let began = tokio::time::Instant::now();
    fixture.until(300, "delivered").await;
    assert!(began.elapsed() < s(60), "{:?}", began.elapsed());
    let began = tokio::time::Instant::now();
    for n in 0..300 {
        fixture.enqueue(keyed(&format!("key-{}", n % 100)));
    }
    fixture.until(600, "delivered").await;
    assert!(began.elapsed() < s(20), "{:?}", began.elapsed());
    for worker in workers {
        worker.stop().await;
    }
    assert_in_order(&healthy);
}

#[tokio::test(start_paused = true)]
async fn lanes_stay_where_they_are_while_no_worker_reaches_the_destination() {
    let fixture = Fixture::new();
    let sinks = [cut_off(), cut_off()];
    let workers = [fixture.start(&sinks[0]), fixture.start(&sinks[1])];
    for n in 0..300 {
        fixture.enqueue(keyed(&format!("key-{}", n % 100)).destination("there"));
    }
    until_shared(&fixture, 2).await;
    tokio::time::sleep(s(30)).await;
    let before = lanes(&fixture).await;
    for _ in 0..600 {
        tokio::time::sleep(ms(200)).await;
        assert_eq!(lanes(&fixture).await, before);
    }
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_event_is_not_sent_before_its_time() {
    let fixture = Fixture::new();
    let sink = FakeSink::willing();
    let worker = fixture.start(&sink);
    let at = crate::fixture::EPOCH + time::Duration::minutes(10);
    let later = fixture.enqueue(event().deliver_at(at));
    let now = fixture.enqueue(event());
    fixture.until(1, "delivered").await;
    assert_eq!(sink.delivered(), [now]);
    tokio::time::sleep(s(590)).await;
    assert_eq!(sink.delivered(), [now]);
    tokio::time::sleep(s(15)).await;
    assert_eq!(sink.delivered(), [now, later]);
    worker.stop().await;
    let refused = fixture.outbox.enqueue(keyed("k").deliver_at(at));
    assert!(refused.is_err_and(|error| error.to_string().contains("exclude each other")));
}
