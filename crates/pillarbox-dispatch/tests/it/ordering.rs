//! Order per key: what blocks what, and who takes care of which lanes.

use std::collections::HashMap;
use std::sync::Arc;

use pillarbox::{Event, Outcome};
use pillarbox_dispatch::{Destination, OnDead};
use pillarbox_store::{Operate, Scope};
use pillarbox_testkit::fakes::{FakeSink, Fault};
use uuid::Uuid;

use crate::world::{World, destination, event, keyed, ms, policy, s, until};

/// Refuses what has the header `bad`: for good, or this time.
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
    let world = World::new();
    let sink = picky(Outcome::retry("not now"));
    let head = world.enqueue(bad("k"));
    let behind: Vec<Uuid> = (0..50).map(|_| world.enqueue(keyed("k"))).collect();
    let others: Vec<Uuid> = (0..50)
        .map(|n| world.enqueue(keyed(&format!("other-{n}"))))
        .collect();
    let worker = world.start(&sink);
    world.until(50, "delivered").await;
    let blocked = world
        .outbox
        .blocked(&Scope::All, 10)
        .await
        .expect("memory answers");
    assert_eq!(blocked.len(), 1);
    assert_eq!((blocked[0].head, blocked[0].ordering_key.as_str()), (head, "k"));
    assert_eq!(blocked[0].reason.as_deref(), Some("not now"));
    let mut delivered = sink.delivered();
    delivered.sort_unstable();
    assert_eq!(delivered, others);
    world.until(1, "dead").await;
    worker.stop().await;
    assert!(sink.ledger().iter().all(|entry| !behind.contains(&entry.event)));
}

#[tokio::test(start_paused = true)]
async fn a_dead_head_blocks_its_key_until_a_person_skips_it() {
    let world = World::new();
    let sink = picky(Outcome::reject("never"));
    let head = world.enqueue(bad("k"));
    let behind: Vec<Uuid> = (0..3).map(|_| world.enqueue(keyed("k"))).collect();
    let worker = world.start(&sink);
    world.until(1, "dead").await;
    tokio::time::sleep(s(100)).await;
    assert!(sink.delivered().is_empty());
    let blocked = world
        .outbox
        .blocked(&Scope::All, 10)
        .await
        .expect("memory answers");
    assert_eq!((blocked[0].head, blocked[0].status.as_str()), (head, "dead"));
    assert_eq!(world.outbox.skip(&[head]).await.expect("memory answers"), [head]);
    world.until(3, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), behind);
}

#[tokio::test(start_paused = true)]
async fn a_dead_head_that_a_person_retries_goes_before_those_that_waited() {
    let world = World::new();
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
    let head = world.enqueue(bad("k"));
    let next = world.enqueue(keyed("k"));
    let worker = world.start(&sink);
    world.until(1, "dead").await;
    mended.store(true, std::sync::atomic::Ordering::SeqCst);
    world.outbox.retry(&[head]).await.expect("memory answers");
    world.until(2, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), [head, next]);
}

#[tokio::test(start_paused = true)]
async fn where_the_policy_says_so_the_others_go_on_without_a_dead_head() {
    let world = World::new();
    let sink = picky(Outcome::reject("never"));
    let head = world.enqueue(bad("k"));
    let behind: Vec<Uuid> = (0..3).map(|_| world.enqueue(keyed("k"))).collect();
    let mut there = destination("there", &sink);
    there.policy.on_dead = OnDead::Continue;
    let worker = world.start_with(vec![there], vec![]);
    world.until(3, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), behind);
    let row = world.row(head).await;
    assert_eq!((row.status.as_str(), row.unordered), ("dead", true));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_changed_lets_keys_go_on_that_were_blocked() {
    let world = World::new();
    let sink = picky(Outcome::reject("never"));
    world.enqueue(bad("k"));
    let next = world.enqueue(keyed("k"));
    let worker = world.start(&sink);
    world.until(1, "dead").await;
    worker.stop().await;
    let sink = FakeSink::willing();
    let mut there = destination("there", &sink);
    there.policy.on_dead = OnDead::Continue;
    let worker = world.start_with(vec![there], vec![]);
    world.until(1, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), [next]);
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_claimed_in_runs_and_sent_one_after_another() {
    let world = World::new();
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(ms(1)).await;
        Outcome::Delivered
    });
    let ids: Vec<Uuid> = (0..3_000).map(|_| world.enqueue(keyed("hot"))).collect();
    let worker = world.start(&sink);
    world.until(3_000, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
    assert!(sink.ledger().iter().all(|entry| entry.company == 1));
    let claims = world.store.calls()["claim"];
    assert!(claims < 60, "{claims} claims for 3,000 rows");
}

#[tokio::test(start_paused = true)]
async fn pipelined_rows_of_a_key_do_not_wait_for_each_other() {
    let world = World::new();
    let sink = FakeSink::scripted(|_| async {
        tokio::time::sleep(s(1)).await;
        Outcome::Delivered
    });
    let ids: Vec<Uuid> = (0..40).map(|_| world.enqueue(keyed("k"))).collect();
    let mut there = destination("there", &sink);
    there.policy.pipelined = true;
    let worker = world.start_with(vec![there], vec![]);
    let began = tokio::time::Instant::now();
    world.until(40, "delivered").await;
    assert!(began.elapsed() < s(3), "{:?}", began.elapsed());
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_row_that_is_refused_gives_order_up_for_itself_only() {
    let world = World::new();
    let sink = FakeSink::scripted(|delivery| async move {
        tokio::time::sleep(ms(10)).await;
        match delivery.attempts == 1 && delivery.event.headers.contains_key("bad") {
            true => Outcome::retry("not now"),
            false => Outcome::Delivered,
        }
    });
    let first = world.enqueue(keyed("k"));
    let refused = world.enqueue(bad("k"));
    let rest: Vec<Uuid> = (0..200).map(|_| world.enqueue(keyed("k"))).collect();
    let mut there = destination("there", &sink);
    there.policy.pipelined = true;
    there.concurrency = 4;
    let worker = world.start_with(vec![there], vec![]);
    world.until(202, "delivered").await;
    worker.stop().await;
    let delivered = sink.delivered();
    let place = delivered
        .iter()
        .position(|id| *id == refused)
        .expect("it arrived");
    assert!(place <= 4, "only what was under way went before it: {place}");
    let others: Vec<Uuid> = delivered.into_iter().filter(|id| *id != refused).collect();
    assert_eq!(others, [vec![first], rest].concat());
}

async fn lanes(world: &World) -> Vec<u32> {
    let mut lanes: Vec<u32> = world
        .outbox
        .workers()
        .await
        .expect("memory answers")
        .iter()
        .map(|worker| worker.lanes)
        .collect();
    lanes.sort_unstable();
    lanes
}

/// Waits until each of so many workers has about its part of the lanes.
async fn until_shared(world: &World, workers: u32) {
    let began = tokio::time::Instant::now();
    loop {
        let lanes = lanes(world).await;
        let even = lanes.iter().all(|lanes| lanes.abs_diff(4096 / workers) <= 128);
        if lanes.len() == usize::try_from(workers).expect("few") && even && lanes.iter().sum::<u32>() == 4096
        {
            return;
        }
        assert!(began.elapsed() < s(90), "{lanes:?}");
        tokio::time::sleep(ms(100)).await;
    }
}

/// Events with many keys, as long as the guard lives.
fn chatter(world: &World) -> tokio::task::JoinHandle<()> {
    let outbox = world.outbox.clone();
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
async fn lanes_are_shared_out_evenly_and_follow_workers_that_come_and_go() {
    let world = World::new();
    let chatter = chatter(&world);
    let mut workers = Vec::new();
    for count in 1..=4 {
        let began = tokio::time::Instant::now();
        workers.push(world.start(&FakeSink::willing()));
        until_shared(&world, count).await;
        assert!(began.elapsed() < s(10), "{count}: {:?}", began.elapsed());
    }
    workers.remove(0).stop().await;
    let began = tokio::time::Instant::now();
    until_shared(&world, 3).await;
    assert!(
        began.elapsed() < s(10),
        "those of one that left: {:?}",
        began.elapsed()
    );
    workers.remove(0).kill().await;
    let began = tokio::time::Instant::now();
    loop {
        let all: u32 = lanes(&world).await.iter().sum();
        let alive = world.outbox.workers().await.expect("memory answers");
        let alive: u32 = alive
            .iter()
            .filter(|worker| worker.alive)
            .map(|worker| worker.lanes)
            .sum();
        if all == 4096 && alive == 4096 {
            break;
        }
        assert!(began.elapsed() < s(65), "those of one that died: {all}");
        tokio::time::sleep(ms(100)).await;
    }
    chatter.abort();
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_ranges_can_be_changed_while_workers_run() {
    let mut world = World::new();
    let chatter = chatter(&world);
    let old = world.start(&FakeSink::willing());
    until_shared(&world, 1).await;
    world.settings.lane_ranges = 3;
    let new = world.start(&FakeSink::willing());
    let began = tokio::time::Instant::now();
    loop {
        // Three ranges among two workers: 1,366 lanes or 1,365 each.
        let lanes = lanes(&world).await;
        if lanes.len() == 2 && lanes[0].abs_diff(1365) <= 1 && lanes[1].abs_diff(2731) <= 1 {
            break;
        }
        assert!(began.elapsed() < s(30), "{lanes:?}");
        tokio::time::sleep(ms(100)).await;
    }
    chatter.abort();
    world.until(0, "pending").await;
    old.stop().await;
    new.stop().await;
    assert_eq!(world.count("dead").await, 0);
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_worker_that_died_come_back_in_their_order() {
    let world = World::new();
    let hanging = FakeSink::hanging();
    let ids: Vec<Uuid> = (0..30).map(|_| world.enqueue(keyed("k"))).collect();
    let worker = world.start(&hanging);
    until("it is under way", || hanging.under_way() == 1).await;
    worker.kill().await;
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    world.until(30, "delivered").await;
    worker.stop().await;
    assert_eq!(sink.delivered(), ids);
}

#[tokio::test(start_paused = true)]
async fn four_workers_keep_the_order_of_every_key() {
    let world = World::failing(|_| match fastrand::u32(..20) {
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
    // So many attempts that none of two thousand uses them up by chance.
    let there = || Destination {
        policy: policy(25),
        ..destination("there", &sink)
    };
    let workers: Vec<_> = (0..4).map(|_| world.start_with(vec![there()], vec![])).collect();
    for n in 0..2_000 {
        world.enqueue(keyed(&format!("key-{}", n % 64)));
    }
    world.until(2_000, "delivered").await;
    for worker in workers {
        worker.stop().await;
    }
    let mut last: HashMap<String, i64> = HashMap::new();
    for entry in sink
        .ledger()
        .iter()
        .filter(|entry| entry.outcome == Some(Outcome::Delivered))
    {
        let key = entry.key.clone().expect("all have one");
        let before = last.insert(key.clone(), entry.seq).unwrap_or(0);
        assert!(before < entry.seq, "{key}: {} after {before}", entry.seq);
    }
    assert_eq!(last.len(), 64);
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_event_is_not_sent_before_its_time() {
    let world = World::new();
    let sink = FakeSink::willing();
    let worker = world.start(&sink);
    let at = crate::world::EPOCH + time::Duration::minutes(10);
    let later = world.enqueue(event().deliver_at(at));
    let now = world.enqueue(event());
    world.until(1, "delivered").await;
    assert_eq!(sink.delivered(), [now]);
    tokio::time::sleep(s(590)).await;
    assert_eq!(sink.delivered(), [now]);
    tokio::time::sleep(s(15)).await;
    assert_eq!(sink.delivered(), [now, later]);
    worker.stop().await;
    let refused = world.outbox.enqueue(keyed("k").deliver_at(at));
    assert!(refused.is_err_and(|error| error.to_string().contains("exclude each other")));
}
