//! Exactly-once effects: 20,000 events, every third of them published more than once, consumed by processes that are
//! killed at random. The book is exactly right at the end, and every account is in order.

use std::fs::File;
use std::time::{Duration, Instant};

use pillarbox::Event;

use crate::books::{Books, entry};
use crate::children::Consuming;

const EVENTS: i64 = 20_000;
const ACCOUNTS: i64 = 100;

/// How many processes are killed at the most; then the rest is consumed in peace.
const KILLS: usize = 15;
/// How long all of it may take; only a failing proof takes that long.
const PATIENCE: Duration = Duration::from_secs(600);

/// One proof at a time: each of them wants the whole machine. Given up when the file is closed.
fn take_turns() -> File {
    let file = File::create(std::env::temp_dir().join("pillarbox-consume-proof.lock")).unwrap();
    file.lock().unwrap();
    file
}

/// Every event once, in its order, with repetitions of earlier ones strewn in.
fn published(seed: u64) -> Vec<Event> {
    let mut random = fastrand::Rng::with_seed(seed);
    let events: Vec<Event> = (0..EVENTS)
        .map(|number| entry(&format!("account-{}", number % ACCOUNTS), number / ACCOUNTS))
        .collect();
    let mut published = Vec::with_capacity(events.len() * 2);
    for (index, event) in events.iter().enumerate() {
        published.push(event.clone());
        if random.u8(0..3) == 0 {
            let earlier = index - random.usize(0..=index.min(2_000));
            published.push(events[earlier].clone());
        }
    }
    published
}

/// Keeps two processes running and kills one of them every now and then, until the book is full and nothing waits.
async fn consume_and_kill(
    seed: u64,
    books: &Books,
    start: impl Fn(usize) -> Consuming,
    mut is_done: impl AsyncFnMut() -> bool,
) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let started = Instant::now();
    let mut processes = [start(0), start(1)];
    let mut kills = 0;
    loop {
        // Not to wait for a fact: the moment of the kill is random.
        tokio::time::sleep(Duration::from_millis(random.u64(500..4_000))).await;
        let entries = books.len().await;
        assert!(entries <= EVENTS, "{entries} entries: some are there twice");
        if entries == EVENTS && is_done().await {
            return kills;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{entries} entries within {PATIENCE:?}"
        );
        if entries < EVENTS && kills < KILLS {
            let victim = random.usize(0..2);
            processes[victim].kill();
            processes[victim] = start(victim);
            kills += 1;
        }
    }
}

async fn assert_exact(books: &Books) {
    let accounts = books.accounts().await;
    assert_eq!(accounts.len(), usize::try_from(ACCOUNTS).unwrap());
    let expected: Vec<i64> = (0..EVENTS / ACCOUNTS).collect();
    for (account, numbers) in accounts {
        assert_eq!(numbers, expected, "{account}");
    }
}

#[cfg(feature = "rabbitmq")]
mod on_rabbitmq {
    use super::{assert_exact, consume_and_kill, published, take_turns};
    use crate::books::Books;
    use crate::children::{Consuming, place};
    use crate::rabbitmq::Broker;
    use crate::running::Running;

    /// Not a test of its own: a consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the test of this file"]
    async fn child() {
        let [exchange, queue, schema] = &place()[..] else {
            panic!("said in three parts")
        };
        let broker = Broker::existing(exchange, queue).await;
        let running = Running::start(Books::existing(schema).consumer(), broker.config());
        running.forever().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn effects_are_there_exactly_once_and_in_order_whatever_is_killed() {
        let _turn = take_turns();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let (books, broker) = (Books::open().await, Broker::fresh().await);
        Running::start(books.consumer(), broker.config())
            .declare(&broker)
            .await;
        broker.publish(&published(seed)).await;
        let place = format!("{}|{}|{}", broker.exchange, broker.queue, books.schema);
        let start = |_| Consuming::start("proof::on_rabbitmq::child", &place, None);
        let kills = consume_and_kill(seed, &books, start, async || {
            broker.waiting(&broker.queue).await == Some(0)
        })
        .await;
        println!("{kills} processes were killed");
        assert!(kills >= 3, "only {kills} processes were killed");
        assert_exact(&books).await;
        assert_eq!(broker.waiting(&broker.dead_queue()).await, Some(0));
        books.close().await;
        broker.clean_up().await;
    }
}

#[cfg(feature = "kafka")]
mod on_kafka {
    use super::{assert_exact, consume_and_kill, published, take_turns};
    use crate::books::Books;
    use crate::children::{Consuming, place};
    use crate::kafka::Broker;
    use crate::running::Running;

    /// Not a test of its own: a consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the test of this file"]
    async fn child() {
        let [topic, group, schema, member] = &place()[..] else {
            panic!("said in four parts")
        };
        let broker = Broker::existing(topic, group);
        // One that comes back under its name gets its partitions at once; the group would wait for a dead one.
        // And one that was killed while the group was being shared out is not waited for for long.
        let config = broker
            .mortal()
            .option("group.instance.id", member.as_str())
            .option("max.poll.interval.ms", "10000");
        let running = Running::start(Books::existing(schema).consumer(), config);
        running.forever().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn effects_are_there_exactly_once_and_in_order_whatever_is_killed() {
        let _turn = take_turns();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let (books, broker) = (Books::open().await, Broker::fresh().await);
        broker.publish(&published(seed)).await;
        let start = |member: usize| {
            let place = format!("{}|{}|{}|{member}", broker.topic, broker.group, books.schema);
            Consuming::start("proof::on_kafka::child", &place, None)
        };
        let kills = consume_and_kill(seed, &books, start, async || broker.behind().await == 0).await;
        println!("{kills} processes were killed");
        assert!(kills >= 3, "only {kills} processes were killed");
        assert_exact(&books).await;
        assert!(broker.dead().await.is_empty());
        books.close().await;
        broker.clean_up().await;
    }
}
