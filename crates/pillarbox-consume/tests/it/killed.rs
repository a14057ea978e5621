//! The process dies at every failpoint of an event's path through a consumer, and another one continues.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use sqlx::{PgPool, PgTransaction};

use crate::ledger::{Entry, Ledger, WriteEntry, entry};
use crate::process::start_consumer;

/// Writes entries and rejects negative numbers.
struct RejectNegative(WriteEntry);

impl Handler<PgTransaction<'static>, Entry> for RejectNegative {
    async fn handle(
        &self,
        transaction: &mut PgTransaction<'static>,
        event: Received<Entry>,
    ) -> Result<(), HandlerError> {
        if event.body.number < 0 {
            return Err(HandlerError::reject("it is negative"));
        }
        self.0.handle(transaction, event).await
    }
}

fn consumer(ledger: &Ledger) -> Consumer<PgPool> {
    Consumer::new("ledger", ledger.pool.clone())
        .inbox(ledger.inbox())
        .grace(Duration::from_secs(5))
        .on("EntryMade", 1, RejectNegative(ledger.write_entry()))
}

/// Six entries of one account. The second is rejected.
fn events() -> Vec<Event> {
    [1, -2, 3, 4, 5, 6].map(|number| entry("a", number)).into()
}

const EXPECTED: [i64; 5] = [1, 3, 4, 5, 6];

/// A process consumes until it dies at the failpoint. Then the account has these entries.
async fn killed_at(child: &str, arguments: &str, failpoint: &str, left: &[i64], ledger: &Ledger) {
    let process = start_consumer(child, arguments, Some(failpoint));
    process.aborts_at(failpoint).await;
    assert_eq!(ledger.account("a").await, left);
}

/// The failpoints, and the entries when the process dies there.
macro_rules! points {
    ($($name:ident: $failpoint:literal leaves $left:expr,)+) => {
        #[cfg(feature = "rabbitmq")]
        mod on_rabbitmq {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
                async fn $name() {
                    super::rabbitmq::killed($failpoint, &$left).await;
                }
            )+
        }

        #[cfg(feature = "kafka")]
        mod on_kafka {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
                async fn $name() {
                    super::kafka::killed($failpoint, &$left).await;
                }
            )+
        }
    };
}

points! {
    dying_after_the_receipt: "consume_received:1" leaves [],
    dying_after_the_mark: "consume_marked:4" leaves [1, 3],
    dying_after_the_handler: "consume_handled:3" leaves [1, 3],
    dying_after_the_commit: "consume_committed:3" leaves [1, 3, 4],
    dying_after_the_acknowledgement: "consume_acked:4" leaves [1, 3, 4],
    dying_after_the_dead_letter: "consume_dead:1" leaves [1],
}

#[cfg(feature = "rabbitmq")]
mod rabbitmq {
    use super::{EXPECTED, consumer, events, killed_at};
    use crate::ledger::Ledger;
    use crate::process::arguments;
    use crate::rabbitmq::Broker;
    use crate::running::Running;
    use pillarbox_testkit::wait::until;

    /// Not a test: the consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the tests of this file"]
    async fn child() {
        let [exchange, queue, schema] = &arguments()[..] else {
            panic!("three arguments")
        };
        let broker = Broker::existing(exchange, queue).await;
        let running = Running::start(consumer(&Ledger::existing(schema)), broker.config());
        running.forever().await;
    }

    pub(super) async fn killed(failpoint: &str, left: &[i64]) {
        let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
        Running::start(consumer(&ledger), broker.config())
            .declare(&broker)
            .await;
        broker.publish(&events()).await;
        let arguments = format!("{}|{}|{}", broker.exchange, broker.queue, ledger.schema);
        killed_at("killed::rabbitmq::child", &arguments, failpoint, left, &ledger).await;

        let running = Running::start(consumer(&ledger), broker.config());
        until("the rest is handled", || async { ledger.len().await >= 5 }).await;
        until("all are acknowledged", || async {
            broker.waiting(&broker.queue).await == Some(0)
        })
        .await;
        running.stop().await;
        assert_eq!(ledger.account("a").await, EXPECTED, "once each and in order");
        let reasons = broker.reasons().await;
        // A process that dies between the dead letter and the acknowledgement leaves two. An acknowledgement that was just sent
        // may be lost with the process.
        let letters = match failpoint.split(':').next() {
            Some("consume_dead") => 2..=2,
            Some("consume_acked") => 1..=2,
            _ => 1..=1,
        };
        assert!(letters.contains(&reasons.len()), "{reasons:?}");
        assert!(
            reasons.iter().all(|reason| reason == "it is negative"),
            "{reasons:?}"
        );
        ledger.drop().await;
        broker.clean_up().await;
    }
}

#[cfg(feature = "kafka")]
mod kafka {
    use super::{EXPECTED, consumer, events, killed_at};
    use crate::kafka::Broker;
    use crate::ledger::{Ledger, entry};
    use crate::process::{arguments, start_consumer};
    use crate::running::Running;
    use pillarbox_testkit::wait::until;

    const HANDED_OVER: &str = "consume_handed_over:1";
    const NO_NAME: &str = "";

    /// A group member with or without a name. The group does not wait for a dead member that returns with its name.
    fn start(ledger: &Ledger, broker: &Broker, name: &str) -> Running {
        let config = match name {
            NO_NAME => broker.killable(),
            _ => broker.killable().option("group.instance.id", name),
        };
        Running::start(consumer(ledger), config)
    }

    fn arguments_for(name: &str, ledger: &Ledger, broker: &Broker) -> String {
        format!("{}|{}|{}|{name}", broker.topic, broker.group, ledger.schema)
    }

    /// Not a test: the consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the tests of this file"]
    async fn child() {
        let [topic, group, schema, name] = &arguments()[..] else {
            panic!("four arguments")
        };
        let broker = Broker::existing(topic, group);
        start(&Ledger::existing(schema), &broker, name).forever().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
    async fn dying_in_a_rebalance_leaves_no_partition_without_a_consumer() {
        dies_in_a_rebalance("first", "second").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[cfg_attr(not(feature = "failpoints"), ignore = "needs the feature `failpoints`")]
    async fn dying_without_a_name_in_a_rebalance_leaves_no_partition_without_a_consumer() {
        dies_in_a_rebalance(NO_NAME, NO_NAME).await;
    }

    async fn dies_in_a_rebalance(first: &str, second: &str) {
        let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
        let arguments = arguments_for(first, &ledger, &broker);
        let dying = start_consumer("killed::kafka::child", &arguments, Some(HANDED_OVER));
        let round = |number| (0..40).map(move |account| entry(&account.to_string(), number));
        broker.publish(&round(0).collect::<Vec<_>>()).await;
        until("the first one has all partitions", || async {
            ledger.len().await == 40
        })
        .await;

        let second = start(&ledger, &broker, second);
        dying.aborts_at(HANDED_OVER).await;
        let first = start(&ledger, &broker, first);
        broker.publish(&round(1).collect::<Vec<_>>()).await;
        until("every partition has a consumer", || async {
            ledger.len().await == 80
        })
        .await;
        until("all are done", || async { broker.consumer_lag().await == 0 }).await;
        first.stop().await;
        second.stop().await;
        ledger.drop().await;
        broker.clean_up().await;
    }

    pub(super) async fn killed(failpoint: &str, left: &[i64]) {
        let (ledger, broker) = (Ledger::create().await, Broker::fresh().await);
        broker.publish(&events()).await;
        let arguments = arguments_for("first", &ledger, &broker);
        killed_at("killed::kafka::child", &arguments, failpoint, left, &ledger).await;

        let running = start(&ledger, &broker, "first");
        until("the rest is handled", || async { ledger.len().await >= 5 }).await;
        until("all are done", || async { broker.consumer_lag().await == 0 }).await;
        running.stop().await;
        assert_eq!(ledger.account("a").await, EXPECTED, "once each and in order");
        // A process that dies before it commits the offset of the dead letter leaves two.
        let letters = broker.dead().await.len();
        assert!((1..=2).contains(&letters), "{letters} letters");
        ledger.drop().await;
        broker.clean_up().await;
    }
}
