//! Searches that only read, and the claims that follow.

use pillarbox::Event;
use pillarbox::clock::{Clock, SystemClock};
use pillarbox::sqlite::begin;
use pillarbox_store::operate::Filter;
use pillarbox_store::store::{Backlog, Share, Take};
use pillarbox_store::{Operate, Scope, Store};
use pillarbox_testkit::Harness;
use pillarbox_testkit::OPERATOR;
use uuid::Uuid;

use super::SqliteHarness;
use super::harness::request;

fn event(destination: &str) -> Event {
    Event::new("shop", "orders").destination(destination)
}

#[tokio::test]
async fn a_look_does_not_wait_for_a_writer() {
    let outbox = SqliteHarness::fresh().await;
    outbox.enqueue(&[event("broker")]).await.expect("accepted");
    outbox
        .store
        .pause(&OPERATOR, "chat", "too loud")
        .await
        .expect("a pause");
    let writer = begin(&outbox.application).await.expect("its turn");
    let look = outbox
        .store
        .find(&Scope::All, None, None, 10)
        .await
        .expect("a look");
    assert_eq!((look.due.len(), look.paused), (1, vec!["chat".to_owned()]));
    writer.rollback().await.expect("a rollback");
}

#[tokio::test]
async fn looks_go_from_source_to_source_through_both_kinds_of_rows() {
    let outbox = SqliteHarness::fresh().await;
    let later = SystemClock.wall() + time::Duration::hours(1);
    outbox
        .enqueue(&[
            event("d"),
            event("b").deliver_at(later),
            event("c").deliver_at(later),
            Event::new("till", "orders").destination("b"),
            Event::new("shop", "orders"),
            event("a"),
            event("a"),
        ])
        .await
        .expect("accepted");
    outbox.age(time::Duration::hours(2)).await;
    outbox
        .enqueue(&[event("e").deliver_at(later)])
        .await
        .expect("accepted");

    let mut seen = Vec::new();
    let mut after: Option<Backlog> = None;
    loop {
        let look = outbox
            .store
            .find(&Scope::All, None, after.as_ref(), 2)
            .await
            .expect("a look");
        after = look.due.last().map(|due| due.backlog.clone());
        let line = |due: pillarbox_store::store::Due| {
            let to = due.backlog.destination.unwrap_or_default();
            format!("{to} {} {:?} {}", due.backlog.namespace, due.lowest, due.waited)
        };
        seen.extend(look.due.into_iter().map(line));
        if !look.more {
            break;
        }
    }
    assert_eq!(
        seen,
        [
            " shop Some(5) false",
            "a shop Some(6) false",
            "b shop None true",
            "b till Some(4) false",
            "c shop None true",
            "d shop Some(1) false",
        ],
        "what is scheduled for later is not seen"
    );
}

#[tokio::test]
async fn a_time_to_deliver_is_kept_to_the_microsecond_and_never_early() {
    let outbox = SqliteHarness::fresh().await;
    let now = SystemClock.wall();
    let later = (now + time::Duration::hours(1))
        .replace_nanosecond(123_456_001)
        .expect("a nanosecond")
        .to_offset(time::UtcOffset::from_hms(5, 30, 0).expect("an offset"));
    let scheduled = event("broker").deliver_at(later);
    let overdue = event("broker").deliver_at(now - time::Duration::days(1_000_000));
    outbox
        .enqueue(&[scheduled.clone(), overdue.clone()])
        .await
        .expect("accepted");

    let row = outbox.store.show(&OPERATOR, scheduled.id).await.expect("a look");
    let due = row.expect("it is there").next_attempt_at;
    assert_eq!(due, later.replace_nanosecond(123_457_000).expect("a nanosecond"));
    let request = request(outbox.free(10).await);
    let claimed = outbox.store.claim(&request).await.expect("a claim");
    let ids: Vec<Uuid> = claimed.iter().map(|delivery| delivery.id).collect();
    assert_eq!(
        ids,
        [overdue.id],
        "what is overdue is due now, as if nothing had been said"
    );
}

#[tokio::test]
async fn tenants_have_their_turns_within_the_window() {
    let outbox = SqliteHarness::fresh().await;
    let (large, small) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut events: Vec<Event> = (0..1_000).map(|_| event("broker").tenant(large)).collect();
    events.extend((0..3).map(|_| event("broker").tenant(small)));
    outbox.enqueue(&events).await.expect("accepted");
    let share = Share {
        backlog: Backlog {
            destination: Some("broker".into()),
            namespace: "shop".into(),
        },
        limit: 10,
        floor: 0,
        fair: true,
        resume: false,
    };
    let claimed = outbox
        .store
        .claim(&request(Take::Free(vec![share])))
        .await
        .expect("a claim");
    let of = |tenant| {
        claimed
            .iter()
            .filter(|delivery| delivery.event.tenant_id == Some(tenant))
            .count()
    };
    assert_eq!((of(large), of(small)), (7, 3));
}

#[tokio::test]
async fn the_family_of_an_event_is_listed_whole() {
    let outbox = SqliteHarness::fresh().await;
    let parent = event("broker");
    outbox
        .enqueue(&[parent.clone(), event("broker")])
        .await
        .expect("accepted");
    outbox
        .run(
            "insert into outbox_events (seq, parent_id, namespace, topic, payload, destination)
             select seq, id, namespace, topic, payload, 'chat' from outbox_events order by seq limit 1",
        )
        .await;
    let family = Filter {
        event: Some(parent.id),
        ..Filter::default()
    };
    let rows = outbox.store.list(&OPERATOR, &family).await.expect("a list");
    let destinations: Vec<&str> = rows.iter().filter_map(|row| row.destination.as_deref()).collect();
    assert_eq!(destinations, ["chat", "broker"], "the newest first");
    assert!(rows.iter().all(|row| row.event.id == parent.id));
}
