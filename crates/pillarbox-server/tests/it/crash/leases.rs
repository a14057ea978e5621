//! A worker that sleeps through its lease.

use std::time::Duration;

use rustix::process::Signal;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::door::{Door, Manners};
use super::patience::{Weight, eventually};
use super::world::{Tuning, World};

type Row = (Uuid, String, i32, OffsetDateTime);

async fn rows(world: &World) -> Vec<Row> {
    sqlx::query_as("select id, status, attempts, updated_at from pillarbox.outbox_events order by id")
        .fetch_all(&world.pool)
        .await
        .expect("the database answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_through_its_lease_changes_nothing() {
    let world = World::new(Weight::Light).await;
    let manners = Manners {
        delay: Duration::from_millis(100),
        ..Manners::default()
    };
    let door = Door::open(world.amqp(), manners).await;
    let slow = Tuning {
        concurrency: 8,
        amqp: Some(door.url(world.amqp())),
        ..Tuning::hasty()
    };
    world.producer.commit(200).await;
    // Enough for ten seconds: on a busy machine it may take long until it is told to sleep.
    world.producer.transaction(600).await.expect("commits");
    let sleeper = world.start(&slow);
    world.more_than(0, "delivered").await;
    sleeper.signal(Signal::STOP);
    let held = world.count("processing").await;
    assert!(held > 0, "it fell asleep with nothing in its hands");

    let other = world.start(&Tuning::hasty());
    world.done().await;
    let before = rows(&world).await;
    let sent = world.queue.len().await;
    sleeper.signal(Signal::CONT);
    eventually("the sleeper notices", Duration::from_secs(60), || async {
        sleeper.said().contains("lease lost before").then_some(())
    })
    .await;
    let said = sleeper.stop().await;
    other.stop().await;

    let lost = number_after(&said, " lost=");
    assert!(lost > Some(0), "it lost nothing, so nothing was tested: {said}");
    assert_eq!(rows(&world).await, before, "a stale worker changed rows");
    // A send that had begun when it fell asleep may go on. None begins, or all that it held would.
    let sent_awake = usize::try_from(world.queue.len().await - sent).expect("a small number");
    assert!(
        sent_awake <= slow.concurrency,
        "{sent_awake} of {held} were sent after the lease"
    );
    let report = world.reckon("SIGSTOP past the lease", &[]).await;
    assert!(report.duplicates <= slow.in_flight, "{report}");
}

/// The number after the last occurrence of these words.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(words)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}
