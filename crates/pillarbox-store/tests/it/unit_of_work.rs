//! Units of work on the memory store, with commits that fail in every way.

use std::time::Duration;

use pillarbox::internal::sealed;
use pillarbox::{
    Aggregate, CommitError, Connection, EnqueueError, Enqueued, Event, Outbox, Recorded, StoreError,
    Transaction, UnitOfWork, Wake,
};
use pillarbox_store::stores::memory::{self, Memory};
use serde::Serialize;
use uuid::Uuid;

const NOTHING: [Uuid; 0] = [];

/// What comes of a commit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Committed,
    Refused,
    /// It happened, and the answer was lost.
    AnswerLost,
}

/// A transaction of the memory store, with a fate.
#[derive(Debug)]
struct Fateful(memory::Transaction, Fate);

impl sealed::Sealed for Fateful {}
impl Connection for Fateful {
    type Backend = memory::Transaction;

    fn backend(&mut self) -> &mut memory::Transaction {
        &mut self.0
    }
}

impl Transaction for Fateful {
    async fn commit(self) -> Result<(), StoreError> {
        let lost = || StoreError::Unavailable("the connection was closed".to_owned());
        match self.1 {
            Fate::Committed => drop(self.0.commit()),
            Fate::Refused => return Err(lost()),
            Fate::AnswerLost => {
                drop(self.0.commit());
                return Err(lost());
            }
        }
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Member {
    recorded: Recorded,
}

impl Member {
    fn say(&mut self, what: &str) -> Uuid {
        let event = Event::new("family", "members").event_type(what);
        self.recorded.record(&event);
        event.id
    }
}

impl Aggregate for Member {
    fn recorded(&mut self) -> &mut Recorded {
        &mut self.recorded
    }
}

async fn commit(
    store: &Memory,
    fate: Fate,
    aggregates: &mut [&mut dyn Aggregate],
) -> Result<Vec<Enqueued>, CommitError> {
    let outbox = Outbox::default();
    let work = UnitOfWork::new(&outbox, Fateful(store.begin(), fate));
    work.commit(aggregates).await
}

fn ids(store: &Memory) -> Vec<Uuid> {
    store.events().iter().map(|event| event.id).collect()
}

#[tokio::test]
async fn recorded_events_are_enqueued_and_cleared() {
    let (store, mut member) = (Memory::default(), Member::default());
    let said = [member.say("Invited"), member.say("Joined")];
    let enqueued = commit(&store, Fate::Committed, &mut [&mut member]).await.unwrap();
    assert_eq!(enqueued, said.map(Enqueued::New));
    assert_eq!(ids(&store), said);
    assert!(member.recorded.is_empty());
}

#[tokio::test]
async fn events_of_several_aggregates_keep_the_order_of_recording() {
    let store = Memory::default();
    let (mut ada, mut bob) = (Member::default(), Member::default());
    let said = [ada.say("1"), bob.say("2"), ada.say("3"), bob.say("4")];
    commit(&store, Fate::Committed, &mut [&mut bob, &mut ada])
        .await
        .unwrap();
    assert_eq!(ids(&store), said);
}

#[tokio::test]
async fn a_commit_that_fails_leaves_everything_recorded_and_the_next_one_has_the_same_events() {
    let (store, mut member) = (Memory::default(), Member::default());
    let said = [member.say("Invited"), member.say("Joined")];
    for _ in 0..3 {
        let refused = commit(&store, Fate::Refused, &mut [&mut member]).await;
        assert!(matches!(refused, Err(CommitError::Commit(_))), "{refused:?}");
        assert_eq!(ids(&store), NOTHING);
        assert_eq!(member.recorded.len(), 2);
    }
    let enqueued = commit(&store, Fate::Committed, &mut [&mut member]).await.unwrap();
    assert_eq!(enqueued, said.map(Enqueued::New));
    assert_eq!(ids(&store), said);
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_not_repeated() {
    let (store, mut member) = (Memory::default(), Member::default());
    let said = [member.say("Invited"), member.say("Joined")];
    let lost = commit(&store, Fate::AnswerLost, &mut [&mut member]).await;
    assert!(matches!(lost, Err(CommitError::Commit(_))), "{lost:?}");
    assert_eq!(member.recorded.len(), 2, "not committed yet");
    let later = member.say("Renamed");
    let enqueued = commit(&store, Fate::Committed, &mut [&mut member]).await.unwrap();
    assert_eq!(
        enqueued,
        [
            Enqueued::Duplicate(said[0]),
            Enqueued::Duplicate(said[1]),
            Enqueued::New(later)
        ]
    );
    assert_eq!(ids(&store), [said[0], said[1], later]);
    assert!(member.recorded.is_empty());
}

#[tokio::test]
async fn it_can_be_asked_whether_a_lost_commit_happened() {
    let outbox = Outbox::default();
    for (fate, happened) in [(Fate::AnswerLost, true), (Fate::Refused, false)] {
        let (store, mut member) = (Memory::default(), Member::default());
        member.say("Invited");
        let mut work = UnitOfWork::new(&outbox, store.begin());
        assert!(!work.was_committed(&mut [&mut member]).await.unwrap());
        commit(&store, fate, &mut [&mut member]).await.unwrap_err();

        let mut work = UnitOfWork::new(&outbox, store.begin());
        assert_eq!(work.was_committed(&mut [&mut member]).await.unwrap(), happened);
        assert_eq!(member.recorded.is_empty(), happened);
    }
}

#[tokio::test]
async fn events_recorded_after_a_lost_commit_were_not_committed_by_it() {
    let (store, outbox, mut member) = (Memory::default(), Outbox::default(), Member::default());
    member.say("Invited");
    commit(&store, Fate::AnswerLost, &mut [&mut member])
        .await
        .unwrap_err();
    member.say("Joined");
    let mut work = UnitOfWork::new(&outbox, store.begin());
    assert!(!work.was_committed(&mut [&mut member]).await.unwrap());
    assert_eq!(member.recorded.len(), 2);
}

#[tokio::test]
async fn a_unit_of_work_that_is_dropped_clears_and_enqueues_nothing() {
    let (store, outbox, mut member) = (Memory::default(), Outbox::default(), Member::default());
    member.say("Invited");
    drop(UnitOfWork::new(&outbox, store.begin()));
    assert_eq!(ids(&store), NOTHING);
    assert_eq!(member.recorded.len(), 1);
}

#[tokio::test]
async fn an_event_that_is_refused_stops_the_commit_and_stays_recorded() {
    let (store, mut member) = (Memory::default(), Member::default());
    member.say("Invited");
    member.recorded.record(&Event::new("family", ""));
    let refused = commit(&store, Fate::Committed, &mut [&mut member]).await;
    assert!(
        matches!(refused, Err(CommitError::Enqueue(EnqueueError::Invalid(_)))),
        "{refused:?}"
    );
    assert_eq!(ids(&store), NOTHING);
    assert_eq!(member.recorded.len(), 2);
}

#[derive(Serialize, pillarbox::Event)]
#[event(topic = "members", type = "Counted")]
struct Counted {
    by: std::collections::BTreeMap<Vec<u8>, u8>,
}

#[tokio::test]
async fn a_value_without_a_json_form_comes_out_at_every_commit() {
    let (store, mut member) = (Memory::default(), Member::default());
    member.recorded.record(&Counted {
        by: [(vec![1], 1)].into(),
    });
    for _ in 0..2 {
        let refused = commit(&store, Fate::Committed, &mut [&mut member]).await;
        assert!(
            matches!(&refused, Err(CommitError::Enqueue(EnqueueError::NoJson(error)))
                if error.to_string().contains("key must be a string")),
            "{refused:?}"
        );
        assert_eq!(member.recorded.len(), 1);
    }
    assert_eq!(ids(&store), NOTHING);
}

#[tokio::test]
async fn a_dedupe_key_that_is_taken_is_already_enqueued_and_cleared() {
    let (store, mut member) = (Memory::default(), Member::default());
    let first = Event::new("family", "members").dedupe_key("once");
    store.enqueue(first.clone()).unwrap();
    member
        .recorded
        .record(&Event::new("family", "members").dedupe_key("once"));
    let enqueued = commit(&store, Fate::Committed, &mut [&mut member]).await.unwrap();
    assert_eq!(enqueued, [Enqueued::Duplicate(first.id)]);
    assert!(member.recorded.is_empty());
}

#[tokio::test]
async fn nothing_recorded_is_a_plain_commit() {
    let (store, mut member) = (Memory::default(), Member::default());
    let enqueued = commit(&store, Fate::Committed, &mut [&mut member]).await.unwrap();
    assert_eq!(enqueued, []);
}

#[tokio::test]
async fn repositories_see_the_transaction() {
    let (store, outbox, mut member) = (Memory::default(), Outbox::default(), Member::default());
    let audit = Event::new("family", "audit");
    let said = member.say("Invited");
    let mut work = UnitOfWork::new(&outbox, store.begin());
    outbox.enqueue(&mut *work, &audit).await.unwrap();
    assert_eq!(outbox.enqueued(&mut *work).await.unwrap().len(), 1);
    work.commit(&mut [&mut member]).await.unwrap();
    assert_eq!(ids(&store), [audit.id, said]);
}

#[test]
fn the_future_of_a_commit_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let (store, outbox, mut member) = (Memory::default(), Outbox::default(), Member::default());
    let work = UnitOfWork::new(&outbox, store.begin());
    let mut aggregates: [&mut dyn Aggregate; 1] = [&mut member];
    is_send(&work.commit(&mut aggregates));
}

#[tokio::test]
async fn the_memory_store_shows_what_was_committed_as_it_was_said() {
    let (store, outbox, mut member) = (Memory::default(), Outbox::default(), Member::default());
    let large = Event::new("family", "albums")
        .json(&"album ".repeat(300_000))
        .unwrap();
    member.recorded.record(&large);
    outbox.enqueue(&mut store.begin(), &large).await.unwrap(); // never commits
    commit(&store, Fate::Committed, &mut [&mut member]).await.unwrap();
    assert_eq!(store.events(), std::slice::from_ref(&large));
    let mut transaction = store.begin();
    assert_eq!(
        outbox.enqueued_by(&mut transaction, "family").await.unwrap(),
        [large]
    );
    assert_eq!(outbox.enqueued_by(&mut transaction, "shop").await.unwrap(), []);
}

/// Was the wake notified? Looks once, without waiting.
async fn was_notified(wake: &Wake) -> bool {
    tokio::time::timeout(Duration::ZERO, wake.notified())
        .await
        .is_ok()
}

#[tokio::test]
async fn a_commit_wakes_the_dispatcher() {
    let (store, wake, mut member) = (Memory::default(), Wake::default(), Member::default());
    let outbox = Outbox::default().wakes(&wake);
    UnitOfWork::new(&outbox, store.begin())
        .commit(&mut [&mut member])
        .await
        .unwrap();
    assert!(!was_notified(&wake).await, "nothing was enqueued");

    member.say("Invited");
    let refused = UnitOfWork::new(&outbox, Fateful(store.begin(), Fate::Refused));
    refused.commit(&mut [&mut member]).await.unwrap_err();
    assert!(!was_notified(&wake).await, "nothing was committed");

    let work = UnitOfWork::new(&outbox, store.begin());
    work.commit(&mut [&mut member]).await.unwrap();
    assert!(was_notified(&wake).await);
    assert!(!was_notified(&wake).await, "one commit notifies once");
}

/// A command that fails is handled again with a copy from before it.
#[tokio::test]
async fn what_was_recorded_in_an_earlier_unit_of_work_and_dropped_fails_no_later_one() {
    let (store, outbox) = (Memory::default(), Outbox::default());
    let mut ada = Member::default();
    let mut work = UnitOfWork::new(&outbox, Fateful(store.begin(), Fate::Refused));
    work.track(&mut ada);
    let before = ada.clone();
    ada.say("Invited");
    work.commit(&mut [&mut ada]).await.expect_err("is refused");

    let mut ada = before;
    let mut work = UnitOfWork::new(&outbox, store.begin());
    work.track(&mut ada);
    let said = ada.say("Invited");
    work.commit(&mut [&mut ada]).await.expect("commits");
    assert_eq!(ids(&store), [said]);

    let mut work = UnitOfWork::new(&outbox, store.begin());
    work.track(&mut ada);
    ada.say("Invited again");
    let refused = work.commit(&mut []).await;
    assert!(
        matches!(refused, Err(CommitError::NotListed { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_tracked_aggregate_cannot_be_left_out_even_when_it_was_dropped() {
    let (store, outbox) = (Memory::default(), Outbox::default());
    let (mut ada, mut bob) = (Member::default(), Member::default());
    bob.say("Invited before it is tracked");
    let mut work = UnitOfWork::new(&outbox, store.begin());
    work.track(&mut ada);
    work.track(&mut bob);
    let said = ada.say("Invited");
    bob.recorded
        .record(&Event::new("family", "members").aggregate("member", "<b>bob\n"));
    drop(bob);
    let refused = work.commit(&mut [&mut ada]).await;
    assert!(
        matches!(&refused, Err(CommitError::NotListed { aggregate: "it::unit_of_work::Member", id: Some(id), events: 2 })
            if id == "<b>bob\n"),
        "{refused:?}"
    );
    let text = refused.expect_err("bob is missing").to_string();
    assert!(
        text.contains(r#"`it::unit_of_work::Member` with the id "<b>bob\n""#),
        "{text}"
    );
    assert_eq!(ids(&store), NOTHING);
    assert_eq!(ada.recorded.len(), 1, "everything stays recorded");

    let mut work = UnitOfWork::new(&outbox, store.begin());
    work.track(&mut ada);
    work.commit(&mut [&mut ada]).await.unwrap();
    assert_eq!(ids(&store), [said]);
}

#[tokio::test]
async fn a_tracked_aggregate_without_events_need_not_be_listed() {
    let (store, outbox) = (Memory::default(), Outbox::default());
    let (mut silent, mut cleared, mut listed) = (Member::default(), Member::default(), Member::default());
    let mut work = UnitOfWork::new(&outbox, store.begin());
    for member in [&mut silent, &mut cleared, &mut listed] {
        work.track(member);
    }
    cleared.say("Invited by mistake");
    cleared.recorded.clear();
    let said = listed.say("Invited");
    work.commit(&mut [&mut listed]).await.unwrap();
    assert_eq!(ids(&store), [said]);
    // What was committed is settled for every unit of work that tracks it.
    let mut work = UnitOfWork::new(&outbox, store.begin());
    work.track(&mut listed);
    assert_eq!(work.commit(&mut []).await.unwrap(), []);
}

#[tokio::test]
async fn a_clone_of_a_tracked_aggregate_may_be_listed_and_cannot_be_left_out_either() {
    let (store, outbox, mut member) = (Memory::default(), Outbox::default(), Member::default());
    let mut work = UnitOfWork::new(&outbox, store.begin());
    work.track(&mut member);
    let invited = member.say("Invited");
    let mut changed = Member {
        recorded: member.recorded.clone(),
    };
    let joined = changed.say("Joined");
    let refused = work.commit(&mut [&mut member]).await;
    assert!(
        matches!(refused, Err(CommitError::NotListed { events: 1, .. })),
        "{refused:?}"
    );
    let mut work = UnitOfWork::new(&outbox, store.begin());
    work.track(&mut member);
    work.commit(&mut [&mut changed]).await.unwrap();
    assert_eq!(ids(&store), [invited, joined]);
}
