//! A destination that is unavailable, silent or cut off.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use pillarbox::Outcome;

use super::bench::{Bench, order, reason};
use crate::captured_logs::{CapturedLogs, Line};
use crate::store_suite::{Ran, Skipped};

pub async fn check_says_yes_when_there(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    assert_eq!(sink.check().await, Ok(()));
    assert_eq!(sink.check().await, Ok(()), "the second time too");
    Ok(())
}

pub async fn check_says_no_when_gone(bench: Bench) -> Ran {
    bench.harness.go_away().await?;
    let sink = bench.harness.sink().await;
    let said = sink.check().await.expect_err("it is unavailable");
    assert!(!said.trim().is_empty());
    bench.harness.come_back().await;
    assert_eq!(sink.check().await, Ok(()));
    Ok(())
}

pub async fn check_sends_nothing(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    assert_eq!(sink.check().await, Ok(()));
    let sent = order(1);
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    let arrived = bench.arrived(1).await;
    assert_eq!(arrived.len(), 1, "{arrived:?}");
    assert_eq!(arrived[0].id, sent.event.id);
    Ok(())
}

pub async fn an_unreachable_place_is_not_delivered(bench: Bench) -> Ran {
    bench.harness.go_away().await?;
    let sink = bench.harness.sink().await;
    for (_, outcome) in bench.deliver_all(&sink, (0..20).map(order).collect()).await {
        assert_eq!(outcome.name(), bench.harness.when_gone(), "{outcome:?}");
        assert!(!reason(&outcome).trim().is_empty(), "{outcome:?}");
    }
    bench.harness.come_back().await;
    assert_eq!(bench.harness.arrived().await, []);
    Ok(())
}

pub async fn it_recovers_when_the_place_is_back(bench: Bench) -> Ran {
    bench.harness.go_away().await?;
    let sink = bench.harness.sink().await;
    let first = order(1);
    assert_ne!(sink.deliver(&first).await, Outcome::Delivered);
    bench.harness.come_back().await;
    bench.deliver_until_done(sink.as_ref(), &first).await;
    bench.harness.go_away().await?;
    bench.harness.come_back().await;
    let second = order(2);
    bench.deliver_until_done(sink.as_ref(), &second).await;
    let ids: BTreeSet<_> = bench.arrived(2).await.into_iter().map(|one| one.id).collect();
    assert_eq!(ids, BTreeSet::from([first.event.id, second.event.id]));
    Ok(())
}

pub async fn a_connection_is_logged_when_established_lost_and_recovered(bench: Bench) -> Ran {
    let logs = CapturedLogs::of_process();
    let host = bench.harness.connection_host();
    let host = host.ok_or(Skipped("keeps no connection open"))?;
    let messages = || -> Vec<String> {
        let of_host = |line: &Line| line.field("host") == Some(&host) && line.field("destination").is_some();
        let lines = logs.lines().into_iter().filter(of_host);
        lines.map(|line| line.message).collect()
    };
    let sink = bench.harness.sink().await;
    for number in 1..=2 {
        assert_eq!(sink.deliver(&order(number)).await, Outcome::Delivered);
    }
    assert_eq!(messages(), ["connected"]);
    bench.harness.fall_silent().await?; // can it be cut at all?
    bench.harness.come_back().await;
    bench.harness.go_away().await?;
    assert_ne!(sink.deliver(&order(3)).await, Outcome::Delivered);
    bench.harness.come_back().await;
    bench.deliver_until_done(sink.as_ref(), &order(4)).await;
    let messages = messages();
    assert_eq!(messages[1], "connection lost; reconnecting", "{messages:?}");
    assert_eq!(
        messages.last().map(String::as_str),
        Some("connection recovered"),
        "{messages:?}"
    );
    let attempts = messages.iter().filter(|it| *it == "not connected; retrying");
    assert!(attempts.count() <= 1, "{messages:?}");
    Ok(())
}

pub async fn an_unanswered_event_is_not_delivered_even_if_it_arrived(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    assert_eq!(sink.deliver(&order(1)).await, Outcome::Delivered);
    bench.harness.fall_silent().await?;
    let sent = order(2);
    let outcome = {
        let attempt = sink.deliver(&sent);
        let arrival = async {
            bench.arrived(2).await;
            bench.harness.cut().await;
        };
        let (outcome, ()) = tokio::join!(attempt, arrival);
        outcome
    };
    // It arrived, and the sink cannot know.
    assert_eq!(outcome.name(), "connection_lost", "{outcome:?}");
    bench.harness.come_back().await;
    bench.deliver_until_done(sink.as_ref(), &sent).await;
    let arrived = bench.arrived(1 + bench.copies_of_two()).await;
    assert_eq!(arrived.last().map(|one| one.id), Some(sent.event.id));
    Ok(())
}

pub async fn a_connection_cut_mid_flight_is_never_reported_as_delivered_unless_it_arrived(
    bench: Bench,
) -> Ran {
    bench.harness.fall_silent().await?; // can it be cut at all?
    bench.harness.come_back().await;
    let sink = bench.harness.sink().await;
    let sent: Vec<_> = (0..500).map(order).collect();
    let cutting = async {
        bench.arrived(50).await;
        bench.harness.cut().await;
    };
    let (outcomes, ()) = tokio::join!(bench.deliver_all(&sink, sent), cutting);
    let confirmed: BTreeSet<_> = outcomes
        .iter()
        .filter(|(_, outcome)| *outcome == Outcome::Delivered)
        .map(|(id, _)| *id)
        .collect();
    bench.arrived_all(&confirmed).await;
    for (id, outcome) in outcomes {
        assert!(
            matches!(
                outcome.name(),
                "delivered" | "connection_lost" | "retry" | "unavailable"
            ),
            "{id}: {outcome:?}"
        );
    }
    Ok(())
}

pub async fn a_dropped_delivery_leaves_the_sink_usable(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    for number in 0..50 {
        // Polled once and dropped, as when a lease is lost: before, while or after it was sent.
        let delivery = order(number);
        let _: Option<Outcome> = sink.deliver(&delivery).now_or_never();
    }
    let sent: Vec<_> = (50..100).map(order).collect();
    let ids: BTreeSet<_> = sent.iter().map(|delivery| delivery.event.id).collect();
    for (id, outcome) in bench.deliver_all(&sink, sent).await {
        assert_eq!(outcome, Outcome::Delivered, "{id}");
    }
    // What was dropped may have arrived as well: wait until all of ours are there.
    let mut seen = ids.len();
    loop {
        let arrived = bench.arrived(seen).await;
        seen = arrived.len() + 1;
        let arrived: BTreeSet<_> = arrived.into_iter().map(|one| one.id).collect();
        if ids.is_subset(&arrived) {
            return Ok(());
        }
    }
}

pub async fn a_closed_sink_can_be_built_again(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    assert_eq!(sink.deliver(&order(1)).await, Outcome::Delivered);
    sink.close().await;
    let sink = bench.harness.sink().await;
    assert_eq!(sink.deliver(&order(2)).await, Outcome::Delivered);
    sink.close().await;
    bench.arrived(2).await;
    Ok(())
}
