//! The daemon aborts, is killed or is stopped while it works on an adopted table.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::seeds::{ARAP, FAMILY_HUB};
use super::system::{IN_FLIGHT, System};
use super::{arap, family_hub};
use crate::crash::queue::{Message, Queue};
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::Load;

/// Rows of a daemon that died are claimed again within seconds.
pub(super) const SHORT_LEASE: Duration = Duration::from_secs(3);

/// Adopted table and outbox agree which rows were sent.
const BOTH_AGREE: &str = "select not exists (
    select from outbox.outbox_messages s join pillarbox.outbox_events e on e.id = s.\"Id\"
    where (s.\"ProcessedOnUtc\" is null) = (e.status = 'delivered'))";

fn ids(messages: &[Message]) -> BTreeSet<Uuid> {
    messages.iter().map(|message| message.id).collect()
}

/// The events that were received more than once.
fn repeated(messages: &[Message]) -> BTreeSet<Uuid> {
    let mut seen = BTreeSet::new();
    let again = messages.iter().filter(|message| !seen.insert(message.id));
    again.map(|message| message.id).collect()
}

/// A daemon dies at the failpoint and another one finishes its work.
async fn dies_at(failpoint: &str, duplicates: RangeInclusive<usize>) {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let mut system = System::new(Load::Light, &[ARAP]).await;
    let long_lease = std::mem::replace(&mut system.lease, SHORT_LEASE);
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
    let mut written_back = system.rows(ARAP).await;
    written_back.retain(|_, row| is_processed(row));
    system.produce(ARAP, 10).await;
    system.lease = long_lease; // the second daemon repeats nothing of its own
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
        repeated(&messages)
            .iter()
            .all(|id| !written_back.contains_key(id)),
        "{failpoint}: a row that the table has as processed was sent again"
    );
    let again = messages.len() - rows.len();
    assert!(
        duplicates.contains(&again),
        "{failpoint}: {again} duplicates, not within {duplicates:?}"
    );
    for row in rows.values() {
        // One for the crash, and one in a small group.
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
async fn dying_between_a_settle_and_its_commit_writes_nothing_back_and_repeats_the_batch() {
    dies_at("in_settle", 1..=IN_FLIGHT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs --features failpoints")]
async fn dying_right_after_a_settle_repeats_nothing_that_was_written_back() {
    dies_at("after_settle", 0..=IN_FLIGHT).await;
}

/// Waits until Family Hub's table has more sent rows, and then for a random time.
async fn until_more_are_sent(system: &System) {
    let count = "select count(*) from auth.outbox_events where status = 1";
    let sent: i64 = sqlx::query_scalar(count)
        .fetch_one(&system.pool)
        .await
        .expect("counts");
    system
        .until_true("more rows are sent", &format!("select ({count}) > {}", sent + 50))
        .await;
    // Not a wait for a fact: the fault happens at a random moment.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..300))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_while_family_hub_keeps_inserting_loses_nothing() {
    const KILLS: usize = 2;
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let mut system = System::new(Load::Heavy, &[FAMILY_HUB]).await;
    system.lease = SHORT_LEASE;
    let queue = Queue::bound(&amqp, &system.name, "FamilyHub.#").await;
    let config = family_hub::config(&system, &amqp, "\"100ms\"");
    let load = system.start_load(FAMILY_HUB);
    let mut daemon = system.start(&config);
    for _ in 0..KILLS {
        until_more_are_sent(&system).await;
        daemon.kill();
        daemon = system.start(&config);
    }
    until_more_are_sent(&system).await;
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
async fn a_stopped_daemon_leaves_no_lease_and_the_next_one_continues_at_once() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let system = System::new(Load::Heavy, &[FAMILY_HUB]).await;
    let queue = Queue::bound(&amqp, &system.name, "FamilyHub.#").await;
    let config = family_hub::config(&system, &amqp, "\"100ms\"");
    let load = system.start_load(FAMILY_HUB);
    for _ in 0..3 {
        let daemon = system.start(&config);
        until_more_are_sent(&system).await;
        daemon.stop().await;
        for (what, sql) in [
            (
                "a row is still in flight",
                "pillarbox.outbox_events where status = 'processing'",
            ),
            (
                "a write-back is pending",
                "pillarbox.adopted where write_back_pending",
            ),
            (
                "a stopped daemon still holds the import lease",
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
        "released rows keep their attempts"
    );
    queue.delete().await;
    system.remove().await;
}
