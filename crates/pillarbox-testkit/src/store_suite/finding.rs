//! What a search finds, and what a claim takes of it.

use std::collections::BTreeSet;

use pillarbox::Event;
use pillarbox_store::Scope;
use pillarbox_store::store::{Backlog, Due, Share, Take};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, NO_ROWS, backlog, event, free_from, ids, retry, settlement, share};
use super::harness::{Capability, Field};
use crate::OPERATOR;

/// Each with its lowest fresh row, whether something has waited, and whether something has a key.
pub async fn a_search_names_the_backlogs_with_due_rows(bench: Bench) -> Ran {
    bench.needs(&[Field::Destination, Field::OrderingKey, Field::Namespace])?;
    bench.put(event().destination("chat")).await;
    let tried = bench.claim_one().await;
    bench.settle(&tried, retry(30)).await;
    bench.put(event().ordering_key("a")).await;
    let fresh = bench
        .put_all(&[event().destination("broker"), event().destination("broker")])
        .await;
    bench.put(Event::new("till", "orders")).await;
    bench.age(60).await;

    let due = bench.find().await.due;
    let lowest = bench.show(fresh[0]).await.seq;
    let seen: Vec<(Option<&str>, &str)> = due
        .iter()
        .map(|due| (due.backlog.destination.as_deref(), due.backlog.namespace.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (None, "shop"),
            (None, "till"),
            (Some("broker"), "shop"),
            (Some("chat"), "shop")
        ]
    );
    let flags = |due: &Due| (due.lowest.is_some(), due.waited, due.keyed);
    assert_eq!(flags(&due[0]), (false, false, true));
    assert_eq!(flags(&due[1]), (true, false, false));
    assert_eq!((due[2].lowest, due[2].waited), (Some(lowest), false));
    assert_eq!(flags(&due[3]), (false, true, false));
    Ok(())
}

/// There may be forty thousand of them.
pub async fn a_search_continues_where_the_last_one_ended(bench: Bench) -> Ran {
    bench.needs(&[Field::Destination])?;
    let events: Vec<Event> = (0..7).map(|n| event().destination(format!("d{n}"))).collect();
    bench.put_all(&events).await;
    let mut after: Option<Backlog> = None;
    let mut seen = Vec::new();
    for expected in [3, 3, 1] {
        let look = bench
            .store()
            .find(&Scope::All, None, after.as_ref(), 3)
            .await
            .expect("a search");
        assert_eq!((look.due.len(), look.more), (expected, expected == 3));
        seen.extend(look.due.iter().map(|due| due.backlog.destination.clone()));
        after = look.due.last().map(|due| due.backlog.clone());
    }
    let expected: Vec<Option<String>> = events.into_iter().map(|event| event.destination).collect();
    assert_eq!(seen, expected);
    Ok(())
}

/// Producers can name any number of destinations that no worker has.
pub async fn a_search_passes_over_destinations_that_are_not_served(bench: Bench) -> Ran {
    bench.needs(&[Field::Destination, Field::Namespace])?;
    let mut events = Vec::new();
    for name in ["a", "b", "bb", "c", "d", "e", "unknown-1", "unknown-2", "x"] {
        for namespace in ["shop", "till"] {
            events.push(pillarbox::Event::new(namespace, "orders").destination(name));
        }
    }
    events.push(event());
    bench.put_all(&events).await;
    let served = async |names: &[&str], limit: usize| -> Vec<String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let (mut after, mut seen): (Option<Backlog>, Vec<String>) = (None, Vec::new());
        loop {
            let store = bench.store();
            let found = store.find(&Scope::All, Some(&names), after.as_ref(), limit);
            let found = found.await.expect("a search");
            assert!(found.due.len() <= limit);
            seen.extend(found.due.iter().map(|due| {
                let name = due.backlog.destination.as_deref().unwrap_or("-");
                format!("{name} {}", due.backlog.namespace)
            }));
            after = found.due.last().map(|due| due.backlog.clone());
            if !found.more {
                return seen;
            }
        }
    };
    for limit in [1, 2, 3, 100] {
        assert_eq!(served(&[], limit).await, ["- shop"]);
        let of_two = ["- shop", "c shop", "c till", "x shop", "x till"];
        assert_eq!(served(&["x", "c", "none", "zz"], limit).await, of_two);
        assert_eq!(served(&["bb"], limit).await, ["- shop", "bb shop", "bb till"]);
        assert_eq!(
            served(&["unknown-2"], limit).await.len(),
            3,
            "once it is configured"
        );
    }
    Ok(())
}

/// A listing is bounded, and has every destination that the caller asks for.
pub async fn a_listing_of_destinations_is_bounded(bench: Bench) -> Ran {
    bench.needs(&[Field::Destination])?;
    let most = pillarbox_store::operate::MOST_NAMES;
    let events: Vec<Event> = (0..most + 50)
        .map(|n| event().destination(format!("d{n:05}")))
        .collect();
    bench.put_all(&events).await;
    bench
        .operate()
        .pause(&OPERATOR, "paused", "by hand")
        .await
        .expect("pauses");
    let last = format!("d{:05}", most + 49);
    let known = [last.clone(), "without-rows".to_owned()];
    let listed = bench
        .operate()
        .destinations(&OPERATOR, &Scope::All, &known)
        .await
        .expect("lists");
    let names: Vec<&str> = listed.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(names.len(), most + 2, "{names:?}");
    assert_eq!(names[most..], [last.as_str(), "paused"]);
    assert!(
        listed
            .iter()
            .all(|record| record.pending == u64::from(record.paused.is_none()))
    );
    Ok(())
}

/// A claim takes no row below its floor, and a search still names it.
pub async fn a_search_names_rows_below_the_floor(bench: Bench) -> Ran {
    bench.harness.can(Capability::OwnTable)?;
    bench.harness.can(Capability::ConcurrentTransactions)?;
    let mut early = bench.harness.begin().await;
    let late = early.enqueue(&[event()]).await.expect("accepted")[0].id();
    let first = bench.put_and_claim().await;
    early.commit().await;

    let claim = async |floor| {
        let above = Share {
            floor,
            ..share(backlog(None), 10)
        };
        ids(&bench.claim_as(bench.request(Take::Free(vec![above]))).await)
    };
    assert_eq!(claim(first.seq).await, NO_ROWS);
    let lowest = bench.find().await.due[0].lowest.expect("it is seen");
    assert!(lowest < first.seq);
    assert_eq!(claim(lowest).await, [late]);
    Ok(())
}

/// Each backlog has its own limit, and other backlogs keep their rows.
pub async fn a_claim_takes_from_the_backlogs_that_it_names(bench: Bench) -> Ran {
    bench.needs(&[Field::Destination])?;
    let to = |name: &str| event().destination(name);
    let put = bench
        .put_all(&[to("a"), to("b"), to("a"), to("b"), to("c"), event()])
        .await;
    let request = bench.request(free_from([backlog(Some("a")), backlog(Some("b"))], 1));
    assert_eq!(ids(&bench.claim_as(request).await), put[..2]);
    let request = bench.request(free_from([backlog(Some("b")), backlog(None)], 10));
    assert_eq!(ids(&bench.claim_as(request).await), [put[3], put[5]]);
    Ok(())
}

/// Who has many waits for who has few.
pub async fn every_tenant_gets_its_turn(bench: Bench) -> Ran {
    bench.needs(&[Field::Tenant])?;
    let tenants: Vec<Option<Uuid>> = vec![Some(Uuid::new_v4()), Some(Uuid::new_v4()), None];
    for (tenant, count) in tenants.iter().zip([20, 2, 1]) {
        let events: Vec<Event> = (0..count)
            .map(|_| tenant.map_or_else(event, |tenant| event().tenant(tenant)))
            .collect();
        bench.put_all(&events).await;
    }
    let claimed = bench.claim_as(bench.request(fair(6))).await;
    let of = |tenant: &Option<Uuid>| {
        claimed
            .iter()
            .filter(|row| row.event.tenant_id == *tenant)
            .count()
    };
    assert_eq!(tenants.iter().map(of).collect::<Vec<_>>(), [3, 2, 1]);
    Ok(())
}

/// In every class of rows, also with ids that lie close together, as those of tenants often do.
pub async fn every_tenant_gets_its_turn_in_small_claims(bench: Bench) -> Ran {
    bench.needs(&[Field::Tenant])?;
    for waited in [false, true] {
        let tenants: BTreeSet<Uuid> = (1..=5).map(Uuid::from_u128).collect();
        let flood = (0..120).map(|_| event().tenant(Uuid::from_u128(1)));
        let others = tenants.iter().skip(1).map(|tenant| event().tenant(*tenant));
        bench.put_all(&flood.chain(others).collect::<Vec<_>>()).await;
        if waited {
            let rows = bench.claim(200).await;
            let settlements: Vec<_> = rows.iter().map(|row| settlement(row, retry(30))).collect();
            assert_eq!(bench.settle_all(&settlements).await, NO_ROWS);
            bench.age(60).await;
        }
        let mut served = BTreeSet::new();
        for _ in 0..100 {
            let claimed = bench.claim_as(bench.request(fair(1))).await;
            assert_eq!(claimed.len(), 1);
            served.extend(claimed[0].event.tenant_id);
            if served == tenants {
                break;
            }
        }
        assert_eq!(served, tenants, "one tenant has many rows");
        // Nothing is left for the next round.
        bench.claim(200).await;
    }
    Ok(())
}

/// However small the claims are, and wherever the walk over the tenants begins.
pub async fn scheduled_rows_of_many_tenants_delay_no_other(bench: Bench) -> Ran {
    bench.needs(&[Field::Tenant, Field::DeliverAt])?;
    let tenant = |n: u128| Uuid::from_u128(n << 96 | n);
    let first = bench.put(event().tenant(tenant(7))).await;
    let later = bench.show(first).await.created_at + time::Duration::days(30);
    let scheduled: Vec<Event> = (1..200)
        .map(|n| event().tenant(tenant(n)).deliver_at(later))
        .collect();
    bench.put_all(&scheduled).await;
    let mut due = vec![first];
    for n in [0, 1, 100, 500] {
        due.push(bench.put(event().tenant(tenant(n))).await);
    }
    due.push(bench.put(event()).await);
    let mut claimed = Vec::new();
    while claimed.len() < due.len() {
        let rows = bench.claim_as(bench.request(fair(2))).await;
        assert!(
            !rows.is_empty(),
            "{} of {} were claimed",
            claimed.len(),
            due.len()
        );
        claimed.extend(ids(&rows));
    }
    claimed.sort_unstable();
    due.sort_unstable();
    assert_eq!(claimed, due);
    assert_eq!(ids(&bench.claim_as(bench.request(fair(2))).await), NO_ROWS);
    Ok(())
}

fn fair(limit: usize) -> Take {
    Take::Free(vec![Share {
        fair: true,
        ..share(backlog(None), limit)
    }])
}

/// Until an operator resumes it. The first pause keeps its reason.
pub async fn every_search_sees_a_pause(bench: Bench) -> Ran {
    bench.needs(&[Field::Destination])?;
    bench.put(event().destination("chat")).await;
    let paused = async || bench.find().await.paused;
    assert!(paused().await.is_empty());
    bench
        .operate()
        .pause(&OPERATOR, "chat", "too loud")
        .await
        .expect("pauses");
    bench
        .store()
        .disable(bench.worker, "chat", "410 Gone")
        .await
        .expect("pauses");
    bench
        .store()
        .disable(bench.worker, "mail", "410 Gone")
        .await
        .expect("pauses");
    assert_eq!(paused().await, ["chat", "mail"]);

    let records = bench
        .operate()
        .destinations(&OPERATOR, &Scope::All, &[])
        .await
        .expect("destinations");
    let seen: Vec<(&str, u64, &str, bool)> = records
        .iter()
        .map(|record| {
            let paused = record.paused.as_ref().expect("paused");
            (
                record.name.as_str(),
                record.pending,
                paused.reason.as_str(),
                paused.disabled,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [("chat", 1, "too loud", false), ("mail", 0, "410 Gone", true)]
    );
    assert!(bench.operate().resume(&OPERATOR, "chat").await.expect("resumes"));
    assert!(!bench.operate().resume(&OPERATOR, "chat").await.expect("resumes"));
    assert_eq!(paused().await, ["mail"]);
    Ok(())
}

/// Not before, and by the store's clock.
pub async fn an_event_is_delivered_at_its_time(bench: Bench) -> Ran {
    bench.needs(&[Field::DeliverAt])?;
    let past = bench.put(event()).await;
    let now = bench.show(past).await.created_at;
    let later = bench
        .put(event().deliver_at(now + time::Duration::seconds(500)))
        .await;
    let overdue = bench.put(event().deliver_at(now - time::Duration::days(9))).await;
    assert_eq!(ids(&bench.claim(10).await), [past, overdue]);
    let row = bench.show(overdue).await;
    assert!(
        row.next_attempt_at >= row.created_at,
        "a time in the past is now: it blocks no row"
    );
    bench.age(300).await;
    assert!(!bench.is_due().await);
    bench.age(300).await;
    assert!(bench.is_due().await);
    assert_eq!(bench.claim_free(10, |request| request).await[0].id, later);
    Ok(())
}
