//! Where a row goes, and families.

use crate::OPERATOR;
use pillarbox::{Delivery, Event};
use pillarbox_store::operate::Filter;
use pillarbox_store::store::{Family, Member, Parked, Routed, Routing, Settlement, UNROUTED};
use pillarbox_store::{Scope, Verdict};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, NO_ROWS, backlog, event, ids, keyed_from, release, retry, settlement};
use super::harness::Field;

/// To these destinations, the row itself first.
fn to(delivery: &Delivery, destinations: &[&str]) -> Routing {
    let members = destinations.iter().enumerate().map(|(place, name)| Member {
        id: if place == 0 { delivery.id } else { Uuid::now_v7() },
        destination: (*name).to_owned(),
        max_attempts: Some(7),
    });
    Routing {
        id: delivery.id,
        claim: delivery.claim,
        members: members.collect(),
    }
}

async fn route(bench: &Bench, routings: &[Routing]) -> Routed {
    bench.store().route(bench.worker, routings).await.expect("routes")
}

/// One write less for every event that goes to one place.
pub async fn a_row_with_one_destination_stays_as_it_is(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let before = bench.show(delivery.id).await;
    assert_eq!(
        route(&bench, &[to(&delivery, &["broker"])]).await,
        Routed::default()
    );
    assert_eq!(bench.show(delivery.id).await, before);
    let known = Settlement {
        destination: Some("broker".into()),
        max_attempts: Some(7),
        ..settlement(&delivery, Verdict::Delivered)
    };
    assert_eq!(bench.settle_all(&[known]).await, NO_ROWS);
    assert_eq!(
        bench.show(delivery.id).await.destination.as_deref(),
        Some("broker")
    );
    Ok(())
}

/// For the log: what has become of an event's rows.
pub async fn a_family_tells_how_its_rows_have_ended(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let routing = to(&delivery, &["broker", "chat", "mail"]);
    route(&bench, std::slice::from_ref(&routing)).await;
    let unknown = Uuid::now_v7();
    let families = async || {
        let asked = [delivery.event.id, unknown];
        bench.store().families(&asked).await.expect("an answer")
    };
    let mut expected = Family {
        event: delivery.event.id,
        delivered: 0,
        dead: 0,
        unfinished: 3,
        errors: vec![],
    };
    assert_eq!(families().await, [expected.clone()]);
    let dead = |reason: &str| Verdict::Dead {
        reason: reason.to_owned(),
    };
    let ends = [dead("closed"), dead("no such channel"), Verdict::Delivered];
    let ends = routing
        .members
        .iter()
        .zip(ends)
        .map(|(member, verdict)| Settlement {
            id: member.id,
            ..settlement(&delivery, verdict)
        });
    assert_eq!(bench.settle_all(&ends.collect::<Vec<_>>()).await, NO_ROWS);
    (expected.delivered, expected.dead, expected.unfinished) = (1, 2, 0);
    expected.errors = vec!["broker: closed".to_owned(), "chat: no such channel".to_owned()];
    assert_eq!(families().await, [expected]);
    Ok(())
}

/// Its members have the content, claim, lease and attempt of the row. Each ends by itself.
pub async fn a_family_is_written_under_the_claim(bench: Bench) -> Ran {
    bench.needs(&[Field::DedupeKey, Field::Headers, Field::Bytes])?;
    let parent = bench
        .put(
            event()
                .dedupe_key("once")
                .header("h", "v")
                .bytes(vec![1, 2], "x/y"),
        )
        .await;
    let delivery = bench.claim_one().await;
    let routing = to(&delivery, &["broker", "chat", "mail"]);
    assert_eq!(
        route(&bench, std::slice::from_ref(&routing)).await,
        Routed::default()
    );

    let family = bench
        .list(Filter {
            event: Some(parent),
            ..Filter::default()
        })
        .await;
    let mut found: Vec<(Uuid, Option<&str>)> = family
        .iter()
        .map(|row| (row.id, row.destination.as_deref()))
        .collect();
    found.sort();
    let mut expected: Vec<(Uuid, Option<&str>)> = routing
        .members
        .iter()
        .map(|member| (member.id, Some(member.destination.as_str())))
        .collect();
    expected.sort();
    assert_eq!(found, expected);
    for row in &family {
        assert_eq!((row.event.id, row.seq), (parent, delivery.seq));
        assert_eq!((row.status.as_str(), row.attempts), ("processing", 1));
        assert_eq!((row.locked_by, row.max_attempts), (Some(bench.worker), Some(7)));
        assert_eq!((&row.headers["h"], row.body_bytes), (&"v".into(), Some(2)));
        assert_eq!(row.dedupe_key.is_some(), row.id == parent);
    }
    let end = |place: usize, verdict| Settlement {
        id: routing.members[place].id,
        ..settlement(&delivery, verdict)
    };
    let ends = [end(0, Verdict::Delivered), end(1, retry(0)), end(2, retry(500))];
    assert_eq!(bench.settle_all(&ends).await, NO_ROWS);
    let again = bench.claim_one().await;
    assert_eq!(again.id, routing.members[1].id);
    assert_eq!(again.event.id, parent, "its event's id");
    assert_eq!(again.event.dedupe_key.as_deref(), Some("once"), "and dedupe key");
    assert_eq!(
        bench
            .harness
            .enqueue(&[event().dedupe_key("once")])
            .await
            .expect("accepted")[0]
            .id(),
        parent
    );
    Ok(())
}

/// Whatever crashed, there is one family.
pub async fn routing_twice_finds_the_rows_lost(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    let routing = to(&delivery, &["broker", "chat"]);
    assert_eq!(
        route(&bench, std::slice::from_ref(&routing)).await,
        Routed::default()
    );
    let lost = Routed {
        lost: vec![delivery.id],
        waiting: Vec::new(),
    };
    assert_eq!(route(&bench, std::slice::from_ref(&routing)).await, lost);
    assert_eq!(route(&bench, &[to(&delivery, &["broker", "chat"])]).await, lost);
    assert_eq!(bench.rows().await.len(), 2);
    Ok(())
}

/// Neither another worker's nor an older claim's.
pub async fn a_stale_claim_cannot_route(bench: Bench) -> Ran {
    let old = bench.put_and_claim().await;
    bench.age(100).await;
    let rival = bench.rival();
    let new = rival.claim_one().await;
    assert_eq!(route(&bench, &[to(&old, &["a", "b"])]).await.lost, [old.id]);
    assert_eq!(route(&bench, &[to(&new, &["a", "b"])]).await.lost, [old.id]);
    assert_eq!(bench.rows().await.len(), 1);
    assert_eq!(route(&rival, &[to(&new, &["a", "b"])]).await, Routed::default());
    Ok(())
}

/// Nothing overtakes at a destination, and nothing waits where it need not.
pub async fn a_member_waits_behind_an_earlier_row_at_its_destination(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::Destination])?;
    let of = || event().ordering_key("a");
    let first = bench.put(of().destination("chat")).await;
    bench.put(of()).await;
    bench.lease_backlogs([backlog(None), backlog(Some("chat"))]).await;
    let claimed = bench
        .claim_as(bench.request(keyed_from([backlog(None)], 10)))
        .await;
    let routing = to(&claimed[0], &["broker", "chat"]);
    let member = routing.members[1].id;
    let routed = route(&bench, &[routing]).await;
    assert_eq!((routed.lost, routed.waiting), (vec![], vec![member]));
    let row = bench.show(member).await;
    assert_eq!(
        (row.status.as_str(), row.attempts, row.locked_by),
        ("pending", 0, None)
    );
    assert_eq!(row.destination.as_deref(), Some("chat"));

    bench.settle(&claimed[0], Verdict::Delivered).await;
    let chat = async || {
        let request = bench.request(keyed_from([backlog(Some("chat"))], 10));
        bench.claim_as(request).await
    };
    assert_eq!(ids(&chat().await), [first, member], "one after the other");
    Ok(())
}

/// Also if it is the only one.
pub async fn a_row_that_would_overtake_is_released(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::Destination])?;
    let of = || event().ordering_key("a");
    bench.put(of().destination("chat")).await;
    let second = bench.put(of()).await;
    bench.lease_backlogs([backlog(None), backlog(Some("chat"))]).await;
    let claimed = bench
        .claim_as(bench.request(keyed_from([backlog(None)], 10)))
        .await;
    let routed = route(&bench, &[to(&claimed[0], &["chat"])]).await;
    assert_eq!(routed.waiting, [second]);
    assert_eq!(
        bench.try_settle(&claimed[0], Verdict::Delivered).await,
        [second],
        "it is not ours any more"
    );
    Ok(())
}

/// No route matches, so no search finds them until they are unparked.
pub async fn unrouted_rows_are_held_and_unparked(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::DedupeKey, Field::Headers])?;
    let held = bench
        .put(event().ordering_key("a").dedupe_key("k").header("h", "v"))
        .await;
    let delivery = bench.claim_keyed(10).await.remove(0);
    let hold = Settlement {
        destination: Some(UNROUTED.into()),
        unordered: true,
        ..settlement(&delivery, release(0))
    };
    assert_eq!(bench.settle_all(&[hold]).await, NO_ROWS);
    assert!(!bench.is_due().await);
    let stats = bench
        .operate()
        .stats(&OPERATOR, &Scope::All)
        .await
        .expect("stats");
    assert_eq!((stats.pending, stats.unrouted), (1, 1));

    let parked = async |after| {
        let look = bench
            .store()
            .parked(Parked::Unrouted, &Scope::All, after, 10)
            .await;
        look.expect("a list")
    };
    let stubs = parked(None).await;
    let mut expected = Event::new("shop", "orders")
        .id(held)
        .ordering_key("a")
        .dedupe_key("k")
        .header("h", "v");
    expected.destination = Some(UNROUTED.into());
    assert_eq!((stubs[0].id, stubs[0].event.clone()), (held, expected));
    assert_eq!(parked(Some(stubs[0].seq)).await, []);
    let other = bench
        .store()
        .parked(Parked::Unrouted, &Scope::of(["till"]), None, 10)
        .await;
    assert_eq!(other.expect("a list"), []);

    let unpark = async || {
        bench
            .store()
            .unpark(Parked::Unrouted, &[held])
            .await
            .expect("unparks")
    };
    assert_eq!(unpark().await, [held]);
    assert_eq!(unpark().await, NO_ROWS);
    let again = bench.claim_one().await;
    assert_eq!(
        (again.id, again.attempts, &again.event.destination),
        (held, 1, &None)
    );
    Ok(())
}

/// As if it had never been there, if it is still ours.
pub async fn a_row_with_verdict_delete_is_deleted(bench: Bench) -> Ran {
    let delivery = bench.put_and_claim().await;
    assert_eq!(
        bench.rival().try_settle(&delivery, Verdict::Delete).await,
        [delivery.id]
    );
    bench.settle(&delivery, Verdict::Delete).await;
    assert_eq!(bench.rows().await, []);
    assert_eq!(bench.try_settle(&delivery, Verdict::Delete).await, [delivery.id]);
    Ok(())
}
