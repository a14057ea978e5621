//! Two modules share one table without seeing each other.

use crate::OPERATOR;
use pillarbox::Event;
use pillarbox_store::Scope;
use pillarbox_store::operate::Filter;
use pillarbox_store::store::{Backlog, ClaimRequest, SweepRequest, Take};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, LIMIT, event, free_from, has_work, ids, retry};
use super::harness::Field;

async fn put_two(bench: &Bench) -> (Uuid, Uuid) {
    let ours = bench.put(Event::new("shop", "orders")).await;
    let theirs = bench.put(Event::new("till", "orders")).await;
    (ours, theirs)
}

fn shop(request: ClaimRequest) -> ClaimRequest {
    ClaimRequest {
        scope: Scope::of(["shop", "kiosk"]),
        ..request
    }
}

/// Neither when it is fresh nor when its lease ran out.
pub async fn a_row_outside_the_scope_is_not_claimed(bench: Bench) -> Ran {
    bench.needs(&[Field::Namespace])?;
    let (ours, theirs) = put_two(&bench).await;
    let foreign = Backlog {
        destination: None,
        namespace: "till".into(),
    };
    let outside = shop(bench.request(free_from([foreign], 10)));
    assert_eq!(bench.claim_as(outside).await, []);
    for _ in 0..2 {
        assert_eq!(ids(&bench.claim_changed(10, shop).await), [ours]);
        assert_eq!(ids(&bench.claim(10).await), [theirs]);
        bench.age(100).await;
    }
    let alone = async || bench.claim_as(shop(bench.request(Take::LoneSuspect))).await;
    assert_eq!(ids(&alone().await), [ours]);
    assert_eq!(alone().await, []);
    Ok(())
}

/// And does not ask to be alone.
pub async fn a_row_outside_the_scope_is_not_swept(bench: Bench) -> Ran {
    bench.needs(&[Field::Namespace])?;
    let (ours, theirs) = put_two(&bench).await;
    assert_eq!(bench.claim(10).await.len(), 2);
    bench.age(300).await;
    let sweep = |max_attempts| SweepRequest {
        scope: Scope::of(["shop"]),
        max_attempts,
        ..bench.sweep_request()
    };
    assert_eq!(bench.sweep_as(sweep(1)).await.dead, [ours]);
    assert_eq!(bench.show(theirs).await.status, "processing");

    assert_eq!(ids(&bench.claim(10).await), [theirs]);
    bench.age(300).await;
    assert!(!bench.sweep_as(sweep(LIMIT)).await.lone_suspect);
    assert!(bench.sweep().await.lone_suspect);
    Ok(())
}

/// Rows outside of the scope wake no worker.
pub async fn a_row_outside_the_scope_is_not_due(bench: Bench) -> Ran {
    bench.needs(&[Field::Namespace])?;
    bench.put(Event::new("till", "orders")).await;
    let due = async |scope: Scope| bench.find_in(&scope).await.due.iter().any(has_work);
    assert!(!due(Scope::of(["shop"])).await);
    assert!(due(Scope::of(["till"])).await);
    assert!(due(Scope::All).await);
    bench.claim_one().await;
    bench.age(100).await;
    let suspects = async |scope: Scope| {
        let sweep = SweepRequest {
            scope,
            ..bench.sweep_request()
        };
        bench.sweep_as(sweep).await.suspects
    };
    assert!(!suspects(Scope::of(["shop"])).await);
    assert!(suspects(Scope::of(["till"])).await);
    Ok(())
}

/// An empty list names nothing, whoever made it.
pub async fn an_empty_scope_sees_nothing(bench: Bench) -> Ran {
    bench.needs(&[Field::OrderingKey])?;
    bench.put(event()).await;
    bench.put(event().ordering_key("k")).await;
    bench
        .operate()
        .pause(&OPERATOR, "chat", "too loud")
        .await
        .expect("pauses");
    let nothing = Scope::of([""; 0]);
    let nowhere = |request: ClaimRequest| ClaimRequest {
        scope: nothing.clone(),
        ..request
    };
    assert_eq!(bench.find_in(&nothing).await.due, []);
    assert_eq!(bench.claim_changed(10, nowhere).await, []);
    let head = bench.claim_keyed(10).await;
    bench.settle(&head[0], retry(100)).await;

    let operate = bench.operate();
    let filter = Filter {
        scope: nothing.clone(),
        ..Filter::default()
    };
    let stats = operate.stats(&OPERATOR, &nothing).await.expect("stats");
    assert_eq!((stats.pending, stats.processing, stats.delivered), (0, 0, 0));
    assert_eq!(operate.list(&OPERATOR, &filter).await.expect("a list"), []);
    assert_eq!(
        operate
            .blocked(&OPERATOR, &Scope::All, 10)
            .await
            .expect("keys")
            .len(),
        1
    );
    assert_eq!(operate.blocked(&OPERATOR, &nothing, 10).await.expect("keys"), []);
    assert_eq!(
        operate
            .destinations(&OPERATOR, &nothing, &[])
            .await
            .expect("destinations"),
        []
    );
    assert!(!bench.rows().await.is_empty());
    Ok(())
}
