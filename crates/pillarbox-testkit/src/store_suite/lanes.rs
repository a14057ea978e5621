//! Who takes care of which keys.

use std::collections::{BTreeMap, BTreeSet};

use pillarbox::Event;
use pillarbox_store::Scope;
use pillarbox_store::store::{BreakerState, Heartbeat, LANES, LaneRequest, OpenBreaker, Range, Serves};

use super::Ran;
use super::bench::{Bench, LEASE, NO_ROWS, backlog, event, ids, keyed_from};
use super::harness::{Capability, Field};
use crate::OPERATOR;

/// Every worker asks in turn, and gives up what it is to leave, until nothing changes any more.
async fn settle_down(workers: &[Bench]) -> Vec<Vec<Range>> {
    let mut before = Vec::new();
    for _ in 0..10 {
        let mut now = Vec::new();
        for worker in workers {
            worker.heartbeat().await;
            let held = worker.lease_lanes(["shop"]).await;
            let release = held.into_iter().filter(|range| range.leaving).collect();
            let request = LaneRequest {
                release,
                ..worker.lane_request(["shop"])
            };
            now.push(worker.lease_lanes_as(request).await);
        }
        if now == before {
            return now;
        }
        before = now;
    }
    panic!("the workers do not agree: {before:?}");
}

fn lanes(ranges: &[Range]) -> Vec<u16> {
    ranges.iter().flat_map(|range| range.first..=range.last).collect()
}

async fn claim_keyed(worker: &Bench) -> Vec<uuid::Uuid> {
    let take = keyed_from([backlog(None)], 1_000);
    ids(&worker.claim_as(worker.request(take)).await)
}

fn keyed(count: usize) -> Vec<Event> {
    (0..count)
        .map(|n| event().ordering_key(format!("key-{n}")))
        .collect()
}

/// Each range has one owner, and no worker has two more than another.
pub async fn lanes_are_shared_evenly(bench: Bench) -> Ran {
    bench.harness.can(Capability::ManyRanges)?;
    let mut workers = vec![bench.clone()];
    for count in 1..=5 {
        let shares = settle_down(&workers).await;
        let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        assert!(
            most <= least.map(|least| least + 1).as_ref(),
            "{count}: {sizes:?}"
        );
        let all: Vec<u16> = shares.iter().flat_map(|ranges| lanes(ranges)).collect();
        assert_eq!(all.len(), usize::from(LANES), "{count}: none twice");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), (0..LANES).collect());
        workers.push(bench.rival());
    }
    Ok(())
}

/// Each worker claims the keys of its own lanes only.
pub async fn a_worker_claims_from_its_own_lanes(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    bench.harness.can(Capability::ManyRanges)?;
    let put: BTreeSet<_> = bench.put_all(&keyed(40)).await.into_iter().collect();
    let workers = [bench.clone(), bench.rival(), bench.rival()];
    assert_eq!(claim_keyed(&bench).await, NO_ROWS, "it has no lanes");
    settle_down(&workers).await;
    let mut all = Vec::new();
    for worker in &workers {
        let claimed = claim_keyed(worker).await;
        assert!(
            !claimed.is_empty() && claimed.len() < 40,
            "forty keys are everywhere"
        );
        all.extend(claimed);
    }
    assert_eq!(all.len(), 40);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), put);
    Ok(())
}

/// A range that is leaving is not claimed from, and it moves only when its owner gives it up.
pub async fn lanes_follow_a_new_worker(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    bench.harness.can(Capability::ManyRanges)?;
    let newcomer = bench.rival();
    bench.heartbeat().await;
    assert_eq!(
        lanes(&bench.lease_lanes(["shop"]).await).len(),
        usize::from(LANES)
    );
    newcomer.heartbeat().await;
    assert_eq!(newcomer.lease_lanes(["shop"]).await, [], "nothing is free yet");

    let (leaving, staying): (Vec<Range>, Vec<Range>) = bench
        .lease_lanes(["shop"])
        .await
        .into_iter()
        .partition(|range| range.leaving);
    assert_eq!(lanes(&leaving).len(), lanes(&staying).len());
    bench.put_all(&keyed(40)).await;
    let taken = claim_keyed(&bench).await.len();
    assert!(taken > 0 && taken < 40, "only from what stays: {taken}");
    assert_eq!(
        newcomer.lease_lanes(["shop"]).await,
        [],
        "they are not given up yet"
    );

    let release = LaneRequest {
        release: leaving.clone(),
        ..bench.lane_request(["shop"])
    };
    assert_eq!(bench.lease_lanes_as(release).await, staying);
    let theirs = newcomer.lease_lanes(["shop"]).await;
    assert_eq!(lanes(&theirs), lanes(&leaving));
    assert_eq!(claim_keyed(&newcomer).await.len(), 40 - taken);
    Ok(())
}

/// It has to ask again, and finds that others were there.
pub async fn a_worker_whose_lane_lease_expired_cannot_claim(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    bench.heartbeat().await;
    assert_eq!(
        lanes(&bench.lease_lanes(["shop"]).await).len(),
        usize::from(LANES)
    );
    bench.age(100).await;
    let put = bench.put_all(&keyed(3)).await;
    assert_eq!(claim_keyed(&bench).await, NO_ROWS);

    let rival = bench.rival();
    rival.heartbeat().await;
    assert_eq!(
        lanes(&rival.lease_lanes(["shop"]).await).len(),
        usize::from(LANES)
    );
    assert_eq!(claim_keyed(&bench).await, NO_ROWS);
    assert_eq!(bench.lease_lanes(["shop"]).await, []);
    let mut claimed = claim_keyed(&rival).await;
    claimed.sort();
    let mut put = put;
    put.sort();
    assert_eq!(claimed, put);
    Ok(())
}

/// After a lease if the owner died, at once if it deregistered.
pub async fn lanes_are_free_when_their_owner_has_died_or_deregistered(bench: Bench) -> Ran {
    let heir = bench.rival();
    bench.lease_lanes(["shop"]).await;
    assert_eq!(heir.lease_lanes(["shop"]).await, []);
    bench.age(100).await;
    assert_eq!(lanes(&heir.lease_lanes(["shop"]).await).len(), usize::from(LANES));

    heir.store().deregister(heir.worker).await.expect("leaves");
    assert_eq!(
        lanes(&bench.lease_lanes(["shop"]).await).len(),
        usize::from(LANES)
    );
    Ok(())
}

/// Until then no worker leases a lane by the old number of ranges or by the new.
pub async fn a_new_number_of_ranges_starts_when_all_are_free(bench: Bench) -> Ran {
    bench.harness.can(Capability::ManyRanges)?;
    let other = bench.rival();
    settle_down(&[bench.clone(), other.clone()]).await;
    let latest = other.rival();
    let four = Heartbeat {
        worker: latest.worker,
        ttl: LEASE,
        serves: Serves {
            lane_ranges: 4,
            ..Serves::default()
        },
        ..Heartbeat::default()
    };
    bench.age(1).await;
    bench.store().heartbeat(&four).await.expect("a heartbeat");
    let held = bench.lease_lanes(["shop"]).await;
    assert_eq!(held.len(), 16);
    assert!(held.iter().all(|range| range.leaving));
    let release = |worker: &Bench, release: Vec<Range>| LaneRequest {
        release,
        ..worker.lane_request(["shop"])
    };
    assert_eq!(
        bench.lease_lanes_as(release(&bench, held)).await,
        [],
        "the other's still hold"
    );
    let held = other.lease_lanes(["shop"]).await;
    assert!(held.iter().all(|range| range.leaving));
    let new = other.lease_lanes_as(release(&other, held)).await;
    let widths: BTreeSet<u16> = new.iter().map(|range| range.last - range.first + 1).collect();
    assert_eq!(widths, BTreeSet::from([LANES / 4]), "a third of four");
    let shares = [bench.clone(), other, latest];
    let shares = shares.map(|worker| async move { worker.lease_lanes(["shop"]).await });
    let all = futures_util::future::join_all(shares).await.concat();
    assert_eq!(lanes(&all).len(), usize::from(LANES));
    Ok(())
}

/// Who works for others has no part, and lanes of one namespace are not those of another.
pub async fn only_workers_of_a_namespace_lease_its_lanes(bench: Bench) -> Ran {
    bench.heartbeat().await;
    let stranger = bench.rival();
    let heartbeat = Heartbeat {
        worker: stranger.worker,
        host: "elsewhere".into(),
        version: "1".into(),
        scope: Scope::of(["till"]),
        ttl: LEASE,
        ..Heartbeat::default()
    };
    stranger.store().heartbeat(&heartbeat).await.expect("a heartbeat");
    let mine = bench.lease_lanes(["shop"]).await;
    assert_eq!(lanes(&mine).len(), usize::from(LANES));
    assert!(
        mine.iter()
            .all(|range| range.backlog == backlog(None) && !range.leaving)
    );
    bench.store().deregister(bench.worker).await.expect("leaves");
    let theirs = stranger.lease_lanes(["till"]).await;
    assert_eq!(lanes(&theirs).len(), usize::from(LANES));
    assert!(theirs.iter().all(|range| range.backlog.namespace == "till"));
    Ok(())
}

/// Each asks for its own only, and has all of it.
pub async fn lanes_are_shared_among_workers_that_serve_the_destination(bench: Bench) -> Ran {
    let (mail, chat) = (backlog(Some("mail")), backlog(Some("chat")));
    let other = bench.rival();
    bench.heartbeat_serving(&["mail"], &[]).await;
    other.heartbeat_serving(&["chat", "mail \"2\""], &[]).await;
    let mine = bench.lease_backlogs([mail.clone()]).await;
    assert_eq!(lanes(&mine).len(), usize::from(LANES));
    assert!(mine.iter().all(|range| range.backlog == mail && !range.leaving));
    let theirs = other.lease_backlogs([chat.clone()]).await;
    assert_eq!(lanes(&theirs).len(), usize::from(LANES));
    assert!(theirs.iter().all(|range| range.backlog == chat && !range.leaving));
    assert_eq!(other.lease_backlogs([mail]).await, [], "it does not serve it");
    Ok(())
}

/// How many lanes of `mail` each of these has in the end.
async fn shares_of_mail(workers: [&Bench; 2]) -> [usize; 2] {
    let mail = || [backlog(Some("mail"))];
    for _ in 0..3 {
        for worker in workers {
            let held = worker.lease_backlogs(mail()).await;
            let release = held.into_iter().filter(|range| range.leaving).collect();
            let request = LaneRequest {
                release,
                ..worker.lane_request_for(mail())
            };
            worker.lease_lanes_as(request).await;
        }
    }
    let mut shares = [0; 2];
    for (share, worker) in shares.iter_mut().zip(workers) {
        *share = lanes(&worker.lease_backlogs(mail()).await).len();
    }
    shares
}

/// If none can reach it, the lanes stay where they are.
pub async fn lanes_leave_a_worker_that_cannot_reach_the_destination(bench: Bench) -> Ran {
    let other = bench.rival();
    let workers = [&bench, &other];
    let all = usize::from(LANES);
    bench.heartbeat_serving(&["mail"], &[]).await;
    other.heartbeat_serving(&["mail"], &[]).await;
    let before = shares_of_mail(workers).await;
    assert_eq!(before.iter().sum::<usize>(), all);
    bench.heartbeat_serving(&["mail"], &["mail"]).await;
    assert_eq!(shares_of_mail(workers).await, [0, all]);
    other.heartbeat_serving(&["mail"], &["mail"]).await;
    assert_eq!(
        shares_of_mail(workers).await,
        before,
        "none is better than the other"
    );
    bench.heartbeat_serving(&["mail"], &[]).await;
    assert_eq!(shares_of_mail(workers).await, [all, 0]);
    other.heartbeat_serving(&["mail"], &[]).await;
    assert_eq!(shares_of_mail(workers).await, before);
    Ok(())
}

/// A lease that is valid keeps them, and they come back when they are asked for.
pub async fn lanes_that_no_worker_leases_are_pruned(bench: Bench) -> Ran {
    let prune = async || bench.store().prune_lanes().await.expect("prunes");
    bench.heartbeat().await;
    bench.lease_lanes(["shop", "till"]).await;
    assert_eq!(prune().await, 0);
    bench.age(100).await;
    bench.lease_lanes(["shop"]).await;
    assert_eq!(prune().await, 1);
    assert_eq!(prune().await, 0);
    assert_eq!(
        lanes(&bench.lease_lanes(["till"]).await).len(),
        usize::from(LANES)
    );
    Ok(())
}

/// Their heartbeat, whether they are alive, and how many lanes they have.
pub async fn workers_are_listed(bench: Bench) -> Ran {
    bench.heartbeat().await;
    bench.lease_lanes(["shop", "till"]).await;
    bench.age(30).await;
    let late = bench.rival();
    late.heartbeat().await;
    let workers = bench.operate().workers(&OPERATOR).await.expect("workers");
    let ids: Vec<_> = workers.iter().map(|worker| worker.id).collect();
    assert_eq!(ids, [late.worker, bench.worker], "the latest start first");
    let first = &workers[1];
    assert_eq!((first.host.as_str(), first.version.as_str()), ("bench", "1.2.3"));
    assert_eq!((first.claimed, first.delivered, first.failed), (3, 2, 1));
    assert_eq!((first.scope.as_ref(), first.alive), (None, true));
    assert_eq!((first.lanes, workers[0].lanes), (2 * u32::from(LANES), 0));

    bench.age(50).await;
    late.heartbeat().await;
    let workers = bench.operate().workers(&OPERATOR).await.expect("workers");
    assert_eq!((workers[0].alive, workers[1].alive), (true, false));
    assert_eq!(workers[1].lanes, 0, "their lease is over");
    late.store().deregister(late.worker).await.expect("leaves");
    let workers = bench.operate().workers(&OPERATOR).await.expect("workers");
    assert_eq!(workers.len(), 1);
    Ok(())
}

/// The breakers that are not closed, as the last heartbeat of each worker has them.
pub async fn open_breakers_are_listed_by_worker(bench: Bench) -> Ran {
    let open = |state, reason: &str| OpenBreaker {
        state,
        since: time::macros::datetime!(2026-11-18 01:02:03.5 UTC),
        reason: reason.to_owned(),
    };
    let heartbeat = |breakers: &[(&str, OpenBreaker)]| Heartbeat {
        worker: bench.worker,
        host: "bench".into(),
        version: "1".into(),
        ttl: LEASE,
        breakers: breakers
            .iter()
            .map(|(name, breaker)| ((*name).to_owned(), breaker.clone()))
            .collect(),
        ..Heartbeat::default()
    };
    let breakers = async || {
        let workers = bench.operate().workers(&OPERATOR).await.expect("workers");
        workers
            .into_iter()
            .map(|worker| worker.breakers)
            .collect::<Vec<_>>()
    };
    let first = heartbeat(&[
        ("mail", open(BreakerState::Open, "it's \"down\" \\u0000 <b>")),
        ("chat", open(BreakerState::HalfOpen, "timeout")),
    ]);
    bench.store().heartbeat(&first).await.expect("a heartbeat");
    assert_eq!(breakers().await, [first.breakers]);
    let second = heartbeat(&[("mail", open(BreakerState::Open, "refused"))]);
    bench.store().heartbeat(&second).await.expect("a heartbeat");
    assert_eq!(breakers().await, [second.breakers], "closed ones are gone");
    let nul = heartbeat(&[("mail", open(BreakerState::Open, "a\0b"))]);
    bench
        .store()
        .heartbeat(&nul)
        .await
        .expect("NUL does not stop a heartbeat");
    bench.heartbeat().await;
    assert_eq!(breakers().await, [BTreeMap::new()]);
    Ok(())
}
