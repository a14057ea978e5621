//! Exactly-once effects: 20,000 events, every third of them published more than once, consumed by processes that are
//! killed at random. At the end every event has one entry, and every account is in order.

use std::time::{Duration, Instant};

use pillarbox::Event;

use crate::ledger::{Ledger, entry};
use pillarbox_testkit::process::Process;

const EVENTS: i64 = 20_000;
const ACCOUNTS: i64 = 100;

/// At most this many processes are killed.
const KILLS: usize = 15;
/// Only a failing test takes this long.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Every event in order, with repetitions of earlier ones between them.
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

/// Keeps two processes running and kills one of them at random, until every event has an entry and the queue is empty.
async fn consume_and_kill(
    seed: u64,
    ledger: &Ledger,
    start: impl Fn(usize) -> Process,
    mut is_done: impl AsyncFnMut() -> bool,
) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let started = Instant::now();
    let mut processes = [Some(start(0)), Some(start(1))];
    let mut kills = 0;
    loop {
        // Not to wait for a fact: the moment of the kill is random.
        tokio::time::sleep(Duration::from_millis(random.u64(500..4_000))).await;
        let entries = ledger.len().await;
        assert!(entries <= EVENTS, "{entries} entries: some events have two");
        if entries == EVENTS && is_done().await {
            return kills;
        }
        assert!(
            started.elapsed() < TIMEOUT,
            "{entries} entries within {TIMEOUT:?}"
        );
        if entries < EVENTS && kills < KILLS {
            let victim = random.usize(0..2);
            // Killed before its successor starts: both have the same name.
            let killed = processes[victim].take().expect("it is running");
            killed.kill();
            processes[victim] = Some(start(victim));
            kills += 1;
        }
    }
}

async fn assert_exact(ledger: &Ledger) {
    let accounts = ledger.accounts().await;
    assert_eq!(accounts.len(), usize::try_from(ACCOUNTS).unwrap());
    let expected: Vec<i64> = (0..EVENTS / ACCOUNTS).collect();
    for (account, numbers) in accounts {
        assert_eq!(numbers, expected, "{account}");
    }
}

#[cfg(feature = "rabbitmq")]
mod on_rabbitmq {
    use pillarbox_testkit::wait::{Load, MachineLock};

    use super::{assert_exact, consume_and_kill, published};
    use crate::ledger::Ledger;
    use crate::process::{arguments, start_consumer};
    use crate::rabbitmq::Broker;
    use crate::running::Running;

    /// Not a test: a consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the test of this file"]
    async fn child() {
        let [exchange, queue, schema] = &arguments()[..] else {
            panic!("three arguments")
        };
        let broker = Broker::existing(exchange, queue).await;
        let running = Running::start(Ledger::existing(schema).consumer(), broker.config());
        running.forever().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_event_has_one_entry_in_order_although_consumers_are_killed() {
        let _lock = MachineLock::acquire(Load::Heavy).await;
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
        Running::start(ledger.consumer(), broker.config())
            .declare(&broker)
            .await;
        broker.publish(&published(seed)).await;
        let arguments = format!("{}|{}|{}", broker.exchange, broker.queue, ledger.schema);
        let start = |_| start_consumer("proof::on_rabbitmq::child", &arguments, None);
        let kills = consume_and_kill(seed, &ledger, start, async || {
            broker.waiting(&broker.queue).await == Some(0)
        })
        .await;
        println!("{kills} processes were killed");
        assert!(kills >= 3, "only {kills} processes were killed");
        assert_exact(&ledger).await;
        assert_eq!(broker.waiting(&broker.dead_queue()).await, Some(0));
        ledger.drop().await;
        broker.clean_up().await;
    }
}

#[cfg(feature = "kafka")]
mod on_kafka {
    use pillarbox_testkit::wait::{Load, MachineLock};

    use super::{assert_exact, consume_and_kill, published};
    use crate::kafka::Broker;
    use crate::ledger::Ledger;
    use crate::process::{arguments, start_consumer};
    use crate::running::Running;

    /// Not a test: a consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the test of this file"]
    async fn child() {
        let [topic, group, schema, member] = &arguments()[..] else {
            panic!("four arguments")
        };
        let broker = Broker::existing(topic, group);
        // A member that returns with its name gets its partitions at once. The group would wait for one without a name.
        // A member that was killed during a rebalance delays the group for a short time only.
        let config = broker
            .killable()
            .option("group.instance.id", member.as_str())
            .option("max.poll.interval.ms", "10000");
        let running = Running::start(Ledger::existing(schema).consumer(), config);
        running.forever().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_event_has_one_entry_in_order_although_consumers_are_killed() {
        let _lock = MachineLock::acquire(Load::Heavy).await;
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
        broker.publish(&published(seed)).await;
        let start = |member: usize| {
            let arguments = format!("{}|{}|{}|{member}", broker.topic, broker.group, ledger.schema);
            start_consumer("proof::on_kafka::child", &arguments, None)
        };
        let kills = consume_and_kill(seed, &ledger, start, async || broker.consumer_lag().await == 0).await;
        println!("{kills} processes were killed");
        assert!(kills >= 3, "only {kills} processes were killed");
        assert_exact(&ledger).await;
        assert!(broker.dead().await.is_empty());
        ledger.drop().await;
        broker.clean_up().await;
    }
}
