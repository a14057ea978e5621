//! The inbox on the memory store.

use pillarbox::StoreError;
use pillarbox::inbox::Inbox;
use pillarbox::inbox::{Handled, Key, OnceError};
use pillarbox::{Event, Outbox};
use pillarbox_store::stores::memory::Memory;
use uuid::Uuid;

const CONSUMER: &str = "notifications";

async fn handled(store: &Memory, id: Uuid) -> Handled<()> {
    let mut transaction = store.begin();
    let handled = Inbox::default()
        .once(&mut transaction, CONSUMER, id, async |_| Ok::<_, StoreError>(()))
        .await
        .expect("the handler succeeds");
    transaction.commit();
    handled
}

#[tokio::test]
async fn a_handler_enqueues_its_events_once() {
    let (store, outbox, id) = (Memory::default(), Outbox::default(), Uuid::now_v7());
    for expected in [Handled::Now(7), Handled::Before, Handled::Before] {
        let mut transaction = store.begin();
        let handled = Inbox::default()
            .once(&mut transaction, CONSUMER, id, async |transaction| {
                let event = Event::new("shop", "notifications");
                outbox.enqueue(transaction, &event).await.map(|_| 7)
            })
            .await;
        assert_eq!(handled.expect("the handler succeeds"), expected);
        transaction.commit();
    }
    assert_eq!(store.events().len(), 1);
}

#[tokio::test]
async fn a_handler_that_fails_leaves_no_mark_even_if_the_caller_commits() {
    let (store, id) = (Memory::default(), Uuid::now_v7());
    let mut transaction = store.begin();
    let failed = Inbox::default()
        .once(&mut transaction, CONSUMER, id, async |_| Err::<(), _>("no paper"))
        .await;
    assert!(
        matches!(failed, Err(OnceError::Handler("no paper"))),
        "{failed:?}"
    );
    transaction.commit();
    assert_eq!(handled(&store, id).await, Handled::Now(()));
    assert_eq!(handled(&store, id).await, Handled::Before);
}

#[tokio::test]
async fn many_at_once_are_handled_each_once_and_in_their_order() {
    let store = Memory::default();
    let ids: Vec<Uuid> = (0..4).map(|_| Uuid::now_v7()).collect();
    assert_eq!(handled(&store, ids[1]).await, Handled::Now(()));
    let events = [ids[3], ids[1], ids[0], ids[3], ids[2]];
    for expected in [Handled::Now(vec![ids[3], ids[0], ids[2]]), Handled::Before] {
        let mut transaction = store.begin();
        let handled = Inbox::default()
            .once_all(
                &mut transaction,
                CONSUMER,
                &events,
                |id| Key::event(*id),
                async |_, new| Ok::<_, StoreError>(new.into_iter().copied().collect::<Vec<Uuid>>()),
            )
            .await
            .expect("the handler succeeds");
        assert_eq!(handled, expected);
        transaction.commit();
    }
}

/// A consumer's task has to be able to move between threads.
#[tokio::test]
async fn a_handler_can_be_spawned() {
    let (store, id) = (Memory::default(), Uuid::now_v7());
    let task = tokio::spawn(async move { handled(&store, id).await });
    assert_eq!(task.await.expect("no panic"), Handled::Now(()));
}
