//! The process dies, is killed or is told to stop in the middle of an adopted table.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::seeds::{ARAP, FAMILY_HUB};
use super::system::{IN_FLIGHT, System};
use super::{arap, family_hub};
use crate::crash::broker::{Message, Queue};
use crate::crash::patience::Weight;
use crate::crash::services::variable;

/// What a dead daemon held comes back within seconds.
pub(super) const HASTY: Duration = Duration::from_secs(3);

/// Table and outbox tell the same story: whatever one says was sent, the other says too.
const BOTH_AGREE: &str = "select not exists (
    select from outbox.outbox_messages s join pillarbox.outbox_events e on e.id = s.\"Id\"
    where (s.\"ProcessedOnUtc\" is null) = (e.status = 'delivered'))";

fn ids(messages: &[Message]) -> BTreeSet<Uuid> {
    messages.iter().map(|message| message.id).collect()
}

/// Those that came more than once.
fn repeated(messages: &[Message]) -> BTreeSet<Uuid> {
    let mut seen = BTreeSet::new();
    let again = messages.iter().filter(|message| !seen.insert(message.id));
    again.map(|message| message.id).collect()
}

/// A daemon dies at the failpoint and another one ends what it began.
async fn dies_at(failpoint: &str, duplicates: RangeInclusive<usize>) {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let mut system = System::new(Weight::Light, &[ARAP]).await;
    let patient = std::mem::replace(&mut system.lease, HASTY);
    let queue = Queue::bound(&amqp, &system.name, "arap.#").await;
    let config = arap::config(&system, &amqp, "100ms");
    system.produce(ARAP, 100).await;
    let daemon = system.start_with(&config, &[("PILLARBOX_ABORT_AT", failpoint)]);
    daemon.aborts_at(failpoint).await;
    assert!(
        system.is_true(BOTH_AGREE).await,
        "{failpoint}: the tables disagree"
    );
    let is_processed = |row: &Value| !row["ProcessedOnUtc"].is_null();
    let mut told = system.rows(ARAP).await;
    told.retain(|_, row| is_processed(row));
    system.produce(ARAP, 10).await;
    system.lease = patient; // the one that lives repeats nothing of its own
    let daemon = system.start(&config);
    let rows = system.until_all(ARAP, "are processed", is_processed).await;
    daemon.stop().await;

    assert!(
        system.is_true(BOTH_AGREE).await,
        "{failpoint}: the tables disagree at the end"
    );
    let messages = queue.read().await;
    assert_eq!(ids(&messages), system.committed().await, "{failpoint}");
    assert!(
        repeated(&messages).iter().all(|id| !told.contains_key(id)),
        "{failpoint}: what the table called processed was sent again"
    );
    let again = messages.len() - rows.len();
    assert!(
        duplicates.contains(&again),
        "{failpoint}: {again} duplicates, not within {duplicates:?}"
    );
    for row in rows.values() {
        // One for the crash, and one for coming back in a small group.
        assert!(row["RetryCount"].as_i64() <= Some(2), "{failpoint}: {row}");
    }
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_right_after_an_import_loses_nothing_and_repeats_nothing() {
    dies_at("after_import", 0..=0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_between_a_settle_and_its_commit_leaves_the_table_untold_and_repeats_the_batch() {
    dies_at("in_settle", 1..=IN_FLIGHT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_right_after_a_settle_repeats_nothing_that_the_table_was_told() {
    dies_at("after_settle", 0..=IN_FLIGHT).await;
}

/// Waits until Family Hub's table says that more was sent.
async fn more_are_sent(system: &System) {
    let count = "select count(*) from auth.outbox_events where status = 1";
    let sent: i64 = sqlx::query_scalar(count)
        .fetch_one(&system.pool)
        .await
        .expect("counts");
    system
        .until_true("more is sent", &format!("select ({count}) > {}", sent + 50))
        .await;
    // Not a wait for a fact: the moment is the test's chance.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..300))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_while_family_hub_keeps_inserting_loses_nothing() {
    const KILLS: usize = 2;
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let mut system = System::new(Weight::Heavy, &[FAMILY_HUB]).await;
    system.lease = HASTY;
    let queue = Queue::bound(&amqp, &system.name, "FamilyHub.#").await;
    let config = family_hub::config(&system, &amqp, "\"100ms\"");
    let load = system.keep_busy(FAMILY_HUB);
    let mut daemon = system.start(&config);
    for _ in 0..KILLS {
        more_are_sent(&system).await;
        daemon.kill().await;
        daemon = system.start(&config);
    }
    more_are_sent(&system).await;
    load.stop().await;
    let rows = system
        .until_all(FAMILY_HUB, "are processed", family_hub::is_processed)
        .await;
    daemon.stop().await;

    let messages = queue.read().await;
    assert_eq!(ids(&messages), system.committed().await);
    assert_eq!(rows.len(), system.committed().await.len());
    let again = messages.len() - rows.len();
    assert!(again <= KILLS * IN_FLIGHT, "{again} duplicates");
    assert!(
        rows.values().all(|row| row["error_message"].is_null()),
        "{rows:?}"
    );
    assert!(
        system
            .is_of_now(FAMILY_HUB, "processed_at at time zone 'UTC'")
            .await
    );
    queue.delete().await;
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_told_to_stop_leaves_nothing_strange_and_the_next_one_goes_on_at_once() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Weight::Heavy, &[FAMILY_HUB]).await;
    let queue = Queue::bound(&amqp, &system.name, "FamilyHub.#").await;
    let config = family_hub::config(&system, &amqp, "\"100ms\"");
    let load = system.keep_busy(FAMILY_HUB);
    for _ in 0..3 {
        let daemon = system.start(&config);
        more_are_sent(&system).await;
        daemon.stop().await;
        for (what, sql) in [
            (
                "a row is in nobody's hands",
                "pillarbox.outbox_events where status = 'processing'",
            ),
            ("a row was not told", "pillarbox.adopted where write_back_pending"),
            (
                "nobody may import",
                "pillarbox.importers where leased_until >= now()",
            ),
        ] {
            let nothing = format!("select not exists (select from {sql})");
            assert!(system.is_true(&nothing).await, "{what}");
        }
    }
    load.stop().await;
    let daemon = system.start(&config);
    let rows = system
        .until_all(FAMILY_HUB, "are processed", family_hub::is_processed)
        .await;
    daemon.stop().await;
    let messages = queue.read().await;
    assert_eq!(ids(&messages), system.committed().await);
    assert_eq!(messages.len(), rows.len(), "a stop is not a fault");
    assert!(
        rows.values().all(|row| row["retry_count"] == 0),
        "attempts were given back"
    );
    queue.delete().await;
    system.remove().await;
}
