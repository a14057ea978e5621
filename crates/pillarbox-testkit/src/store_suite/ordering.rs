//! Rows of one key, one after another.

use pillarbox::Event;
use pillarbox_store::Verdict;
use pillarbox_store::store::{ClaimRequest, Member, Routed, Routing, Settlement, SweepRequest, Take};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, NO_ROWS, backlog, dead, event, ids, keyed_from, release, retry, settlement};
use super::harness::Field;
use crate::wait::until;

fn of(key: &str) -> Event {
    event().ordering_key(key)
}

/// All that is due of every key, in the order of insertion.
pub async fn a_keyed_claim_takes_the_beginning_of_every_key(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let put = bench
        .put_all(&[of("a"), of("b"), of("a"), of("b"), of("a")])
        .await;
    let claimed = bench.claim_keyed(100).await;
    assert_eq!(ids(&claimed), put);
    assert!(claimed.iter().all(|row| row.lane.is_some() && row.attempts == 1));
    assert_eq!(bench.claim(10).await, [], "no free claim takes them");
    Ok(())
}

/// In backoff or dead, it holds up what is behind it and nothing else.
pub async fn a_blocked_head_holds_its_key_and_no_other(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let put = bench.put_all(&[of("a"), of("b"), of("a"), of("b")]).await;
    let claimed = bench.claim_keyed(100).await;
    let verdicts = [retry(500), dead(), release(0), release(0)];
    for (delivery, verdict) in claimed.iter().zip(verdicts) {
        bench.settle(delivery, verdict).await;
    }
    let other = bench.put(of("c")).await;
    assert_eq!(ids(&bench.claim_keyed(100).await), [other]);
    bench.age(600).await;
    assert_eq!(
        ids(&bench.claim_keyed(100).await),
        [put[0], put[2]],
        "b is dead for good"
    );
    Ok(())
}

/// The next run begins when the last one is done with.
pub async fn a_key_in_flight_is_not_claimed(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let put = bench.put_all(&[of("a"), of("a"), of("a")]).await;
    let first = bench.claim_keyed(2).await;
    assert_eq!(ids(&first), put[..2]);
    assert_eq!(bench.claim_keyed(2).await, []);
    bench.settle(&first[0], Verdict::Delivered).await;
    assert_eq!(bench.claim_keyed(2).await, [], "one of the run is still out");
    bench.settle(&first[1], Verdict::Delivered).await;
    assert_eq!(ids(&bench.claim_keyed(2).await), put[2..]);
    Ok(())
}

/// No key takes all the room.
pub async fn keys_share_a_claim(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let events: Vec<Event> = (0..30).map(|n| of(["a", "b", "c"][n % 3])).collect();
    let put = bench.put_all(&events).await;
    assert_eq!(ids(&bench.claim_keyed(12).await), put[..12]);
    Ok(())
}

/// Its rows come before those of the other keys, and none of them can be claimed.
pub async fn many_rows_of_a_key_in_flight_hold_up_no_other_key(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let long: Vec<Event> = (0..400).map(|_| of("a")).collect();
    bench.put_all(&long).await;
    assert_eq!(bench.claim_keyed(10).await.len(), 10);
    let others: Vec<Event> = (0..100).map(|n| of(&format!("key-{n}"))).collect();
    let mut left = bench.put_all(&others).await;
    until("the others are claimed", async || {
        let claimed = ids(&bench.claim_keyed(20).await);
        left.retain(|id| !claimed.contains(id));
        left.is_empty()
    })
    .await;
    Ok(())
}

/// A row that does not fit is not overtaken by one that does.
pub async fn a_cut_by_bytes_leaves_a_beginning(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::Bytes])?;
    let sized = |bytes: usize| of("a").bytes(vec![7; bytes], "application/octet-stream");
    let put = bench
        .put_all(&[sized(400), sized(400), sized(5_000), sized(10)])
        .await;
    bench.lease_lanes(["shop"]).await;
    let claim = async || {
        let request = bench.request(keyed_from([backlog(None)], 100));
        bench
            .claim_as(ClaimRequest {
                max_bytes: 1_000,
                ..request
            })
            .await
    };
    for expected in [&put[..2], &put[2..3], &put[3..]] {
        let claimed = claim().await;
        assert_eq!(ids(&claimed), expected);
        for delivery in &claimed {
            bench.settle(delivery, Verdict::Delivered).await;
        }
    }
    Ok(())
}

/// Where it will go is not known, so it may be the same place.
pub async fn a_row_without_a_destination_blocks_later_ones_of_its_key(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::Destination])?;
    let to = |key: &str| of(key).destination("broker");
    let put = bench.put_all(&[to("a"), of("a"), to("a"), to("b")]).await;
    bench
        .lease_backlogs([backlog(None), backlog(Some("broker"))])
        .await;
    let request = bench.request(keyed_from([backlog(Some("broker"))], 100));
    assert_eq!(ids(&bench.claim_as(request).await), [put[0], put[3]]);
    let unrouted = bench
        .claim_as(bench.request(keyed_from([backlog(None)], 100)))
        .await;
    assert_eq!(
        ids(&unrouted),
        [put[1]],
        "a row of another destination does not block one without a destination"
    );
    Ok(())
}

/// A dead row that is unordered does not block others, and any worker claims a pending one.
pub async fn an_unordered_row_neither_waits_nor_blocks(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let put = bench.put_all(&[of("a"), of("a"), of("a")]).await;
    let claimed = bench.claim_keyed(100).await;
    let unordered = |delivery, verdict| Settlement {
        unordered: true,
        ..settlement(delivery, verdict)
    };
    let batch = [
        unordered(&claimed[0], dead()),
        settlement(&claimed[1], retry(500)),
        unordered(&claimed[2], release(0)),
    ];
    assert_eq!(bench.settle_all(&batch).await, NO_ROWS);
    let free = bench.claim_one().await;
    assert_eq!((free.id, free.lane), (put[2], None), "it does not wait");
    let row = bench.show(put[0]).await;
    assert_eq!((row.status.as_str(), row.unordered), ("dead", true));
    bench.age(600).await;
    assert_eq!(
        ids(&bench.claim_keyed(100).await),
        [put[1]],
        "the dead one does not block"
    );
    Ok(())
}

/// By the lane's owner, from the beginning of the key, and as few as are asked for.
pub async fn rows_of_a_key_whose_lease_expired_are_claimed_in_order(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let put = bench.put_all(&[of("a"), of("a"), of("a")]).await;
    assert_eq!(bench.claim_keyed(100).await.len(), 3);
    bench.age(100).await;
    assert!(!bench.sweep().await.suspects, "no worker has the lane now");
    assert_eq!(bench.claim_as(bench.request(Take::Suspects(2))).await, []);
    assert!(
        bench.find().await.due.iter().any(|due| due.keyed),
        "but a worker should lease it"
    );

    bench.lease_lanes(["shop"]).await;
    assert!(bench.sweep().await.suspects);
    let suspects = bench.claim_as(bench.request(Take::Suspects(2))).await;
    assert_eq!(ids(&suspects), put[..2]);
    assert_eq!(bench.claim_as(bench.request(Take::Suspects(2))).await, []);
    for delivery in &suspects {
        bench.settle(delivery, Verdict::Delivered).await;
    }
    assert_eq!(
        ids(&bench.claim_as(bench.request(Take::Suspects(2))).await),
        put[2..]
    );
    Ok(())
}

/// Two workers own the lanes of the two backlogs. The later row must not overtake the earlier one.
pub async fn an_expired_row_waits_for_an_earlier_one_in_the_lane_of_another_worker(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey, Field::Destination])?;
    let put = bench.put_all(&[of("a"), of("a")]).await;
    let claimed = bench.claim_keyed(100).await;
    assert_eq!(ids(&claimed), put);
    // The first stays without a destination, because it has one only. The second becomes a family.
    let member = |id, destination: &str| Member {
        id,
        destination: destination.to_owned(),
        max_attempts: None,
    };
    let routings = [
        vec![member(put[0], "broker")],
        vec![member(put[1], "broker"), member(Uuid::now_v7(), "chat")],
    ];
    let routings: Vec<Routing> = std::iter::zip(&claimed, routings)
        .map(|(delivery, members)| Routing {
            id: delivery.id,
            claim: delivery.claim,
            members,
        })
        .collect();
    let routed = bench
        .store()
        .route(bench.worker, &routings)
        .await
        .expect("routes");
    assert_eq!(routed, Routed::default());
    bench.age(100).await;

    let other = bench.rival();
    // Only one of them is alive for the store, so that neither has a part of the other's lanes.
    bench.heartbeat_serving(&[], &[]).await;
    bench.lease_backlogs([backlog(None)]).await;
    other.lease_backlogs([backlog(Some("broker"))]).await;
    let suspects = async |worker: &Bench| worker.claim_as(worker.request(Take::Suspects(10))).await;
    assert!(!other.sweep().await.suspects, "it may not claim the second");
    assert_eq!(suspects(&other).await, []);
    let first = suspects(&bench).await;
    assert_eq!(ids(&first), put[..1]);
    assert_eq!(suspects(&other).await, [], "the first is in flight");
    bench.settle(&first[0], Verdict::Delivered).await;
    assert_eq!(ids(&suspects(&other).await), put[1..]);
    Ok(())
}

/// A row that came back twice goes alone, and holds up what is behind it.
pub async fn a_suspect_head_of_a_key_is_claimed_alone(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    let put = bench.put_all(&[of("a"), of("a")]).await;
    bench.claim_keyed(100).await;
    for take in [Take::Suspects(1), Take::LoneSuspect] {
        bench.age(100).await;
        bench.lease_lanes(["shop"]).await;
        let swept = bench.sweep().await;
        assert_eq!(
            (swept.suspects, swept.lone_suspect),
            (take == Take::Suspects(1), take == Take::LoneSuspect)
        );
        assert_eq!(ids(&bench.claim_as(bench.request(take)).await), [put[0]]);
    }
    Ok(())
}

/// Rows of an excluded destination stay, also those whose lease expired.
pub async fn rows_of_an_excluded_destination_are_not_claimed_again(bench: Bench) -> Ran {
    bench.needs(&[Field::Destination])?;
    let row = bench.put(event().destination("broker")).await;
    assert_eq!(bench.claim(10).await.len(), 1);
    bench.age(100).await;
    let excluded = vec!["broker".to_owned()];
    let sweep = SweepRequest {
        excluded: excluded.clone(),
        ..bench.sweep_request()
    };
    assert!(!bench.sweep_as(sweep).await.suspects);
    let recover = bench.request(Take::Suspects(10));
    let with_closed = ClaimRequest {
        excluded,
        ..recover.clone()
    };
    assert_eq!(bench.claim_as(with_closed).await, []);
    assert_eq!(ids(&bench.claim_as(recover).await), [row]);
    Ok(())
}
