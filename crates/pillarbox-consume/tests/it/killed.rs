//! The process is killed at every point of an event's path through a consumer, and another one goes on.

use std::time::Duration;

use pillarbox::Event;
use pillarbox_consume::{Consumer, Handler, HandlerError, Received};
use sqlx::{PgPool, PgTransaction};

use crate::books::{Books, Entry, Keeper, entry};
use crate::children::Consuming;

/// Keeps the book, and wants no negative numbers in it.
struct Picky(Keeper);

impl Handler<PgTransaction<'static>, Entry> for Picky {
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

fn consumer(books: &Books) -> Consumer<PgPool> {
    Consumer::new("books", books.pool.clone())
        .inbox(books.inbox())
        .grace(Duration::from_secs(5))
        .on("EntryMade", 1, Picky(books.keeper()))
}

/// Six entries of one account, of which the second is refused.
fn events() -> Vec<Event> {
    [1, -2, 3, 4, 5, 6].map(|number| entry("a", number)).into()
}

const EXPECTED: [i64; 5] = [1, 3, 4, 5, 6];

/// Lets a process consume until it is killed at the failpoint, and looks at what it has left.
async fn killed_at(child: &str, place: &str, failpoint: &str, left: &[i64], books: &Books) {
    dies_at(failpoint, Consuming::start(child, place, Some(failpoint))).await;
    assert_eq!(books.account("a").await, left);
}

async fn dies_at(failpoint: &str, mut process: Consuming) {
    let ended = std::thread::spawn(move || process.ended());
    crate::environment::until("the process is killed", || async { ended.is_finished() }).await;
    let (status, said) = ended.join().unwrap();
    let name = failpoint.split(':').next().unwrap();
    assert!(said.contains(&format!("failpoint {name}: ")), "{said}");
    assert!(!status.success());
}

/// The failpoints, and what is in the book when the process is killed there.
macro_rules! points {
    ($($name:ident: $failpoint:literal leaves $left:expr,)+) => {
        #[cfg(feature = "rabbitmq")]
        mod on_rabbitmq {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[cfg_attr(not(feature = "failpoints"), ignore = "wants the feature `failpoints`")]
                async fn $name() {
                    super::rabbitmq::killed($failpoint, &$left).await;
                }
            )+
        }

        #[cfg(feature = "kafka")]
        mod on_kafka {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[cfg_attr(not(feature = "failpoints"), ignore = "wants the feature `failpoints`")]
                async fn $name() {
                    super::kafka::killed($failpoint, &$left).await;
                }
            )+
        }
    };
}

points! {
    dying_with_a_message_in_hand: "consume_received:1" leaves [],
    dying_after_the_mark: "consume_marked:4" leaves [1, 3],
    dying_after_the_handler: "consume_handled:3" leaves [1, 3],
    dying_after_the_commit: "consume_committed:3" leaves [1, 3, 4],
    dying_after_the_acknowledgement: "consume_acked:4" leaves [1, 3, 4],
    dying_after_the_dead_letter: "consume_dead:1" leaves [1],
}

#[cfg(feature = "rabbitmq")]
mod rabbitmq {
    use super::{EXPECTED, consumer, events, killed_at};
    use crate::books::Books;
    use crate::children::place;
    use crate::environment::until;
    use crate::rabbitmq::Broker;
    use crate::running::Running;

    /// Not a test of its own: the consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the tests of this file"]
    async fn child() {
        let [exchange, queue, schema] = &place()[..] else {
            panic!("said in three parts")
        };
        let broker = Broker::existing(exchange, queue).await;
        let running = Running::start(consumer(&Books::existing(schema)), broker.config());
        running.forever().await;
    }

    pub(super) async fn killed(failpoint: &str, left: &[i64]) {
        let (books, broker) = (Books::open().await, Broker::fresh().await);
        Running::start(consumer(&books), broker.config())
            .declare(&broker)
            .await;
        broker.publish(&events()).await;
        let place = format!("{}|{}|{}", broker.exchange, broker.queue, books.schema);
        killed_at("killed::rabbitmq::child", &place, failpoint, left, &books).await;

        let running = Running::start(consumer(&books), broker.config());
        until("the rest is handled", || async { books.len().await >= 5 }).await;
        until("all are acknowledged", || async {
            broker.waiting(&broker.queue).await == Some(0)
        })
        .await;
        running.stop().await;
        assert_eq!(books.account("a").await, EXPECTED, "once each and in order");
        let reasons = broker.reasons().await;
        // Killed between the letter and the acknowledgement, there are two.
        let letters = if failpoint.starts_with("consume_dead") {
            2
        } else {
            1
        };
        assert_eq!(reasons, vec!["it is negative"; letters]);
        books.close().await;
        broker.clean_up().await;
    }
}

#[cfg(feature = "kafka")]
mod kafka {
    use super::{EXPECTED, consumer, dies_at, events, killed_at};
    use crate::books::{Books, entry};
    use crate::children::{Consuming, place};
    use crate::environment::until;
    use crate::kafka::Broker;
    use crate::running::Running;

    const HANDED_OVER: &str = "consume_handed_over:1";
    const NAMELESS: &str = "";

    /// A member, with a name that it keeps or without. The group does not wait for a dead one if it is back under its name.
    fn start(books: &Books, broker: &Broker, name: &str) -> Running {
        let config = match name {
            NAMELESS => broker.mortal(),
            _ => broker.mortal().option("group.instance.id", name),
        };
        Running::start(consumer(books), config)
    }

    fn place_for(name: &str, books: &Books, broker: &Broker) -> String {
        format!("{}|{}|{}|{name}", broker.topic, broker.group, books.schema)
    }

    /// Not a test of its own: the consumer that is killed.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by the tests of this file"]
    async fn child() {
        let [topic, group, schema, name] = &place()[..] else {
            panic!("said in four parts")
        };
        let broker = Broker::existing(topic, group);
        start(&Books::existing(schema), &broker, name).forever().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[cfg_attr(not(feature = "failpoints"), ignore = "wants the feature `failpoints`")]
    async fn dying_while_partitions_change_hands_leaves_none_to_nobody() {
        dies_while_partitions_change_hands("first", "second").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[cfg_attr(not(feature = "failpoints"), ignore = "wants the feature `failpoints`")]
    async fn dying_without_a_name_while_partitions_change_hands_leaves_none_to_nobody() {
        dies_while_partitions_change_hands(NAMELESS, NAMELESS).await;
    }

    async fn dies_while_partitions_change_hands(first: &str, second: &str) {
        let (books, broker) = (Books::open().await, Broker::fresh().await);
        let place = place_for(first, &books, &broker);
        let doomed = Consuming::start("killed::kafka::child", &place, Some(HANDED_OVER));
        let round = |number| (0..40).map(move |account| entry(&account.to_string(), number));
        broker.publish(&round(0).collect::<Vec<_>>()).await;
        until("the first one has all partitions", || async {
            books.len().await == 40
        })
        .await;

        let second = start(&books, &broker, second);
        dies_at(HANDED_OVER, doomed).await;
        let first = start(&books, &broker, first);
        broker.publish(&round(1).collect::<Vec<_>>()).await;
        until("every partition is somebody's", || async {
            books.len().await == 80
        })
        .await;
        until("all are done", || async { broker.behind().await == 0 }).await;
        first.stop().await;
        second.stop().await;
        books.close().await;
        broker.clean_up().await;
    }

    pub(super) async fn killed(failpoint: &str, left: &[i64]) {
        let (books, broker) = (Books::open().await, Broker::fresh().await);
        broker.publish(&events()).await;
        let place = place_for("first", &books, &broker);
        killed_at("killed::kafka::child", &place, failpoint, left, &books).await;

        let running = start(&books, &broker, "first");
        until("the rest is handled", || async { books.len().await >= 5 }).await;
        until("all are done", || async { broker.behind().await == 0 }).await;
        running.stop().await;
        assert_eq!(books.account("a").await, EXPECTED, "once each and in order");
        // Killed before the group was told that the letter's record is done, there are two.
        let letters = broker.dead().await.len();
        assert!((1..=2).contains(&letters), "{letters} letters");
        books.close().await;
        broker.clean_up().await;
    }
}
