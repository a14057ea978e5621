//! What is refused: events, passwords, certificates.

use pillarbox::Outcome;

use super::bench::{Bench, delivery, order, reason};
use crate::captured_logs::CapturedLogs;
use crate::store_suite::Ran;

pub async fn an_event_that_can_never_be_accepted_is_rejected(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let poison = bench.harness.poison()?;
    let outcome = sink.deliver(&delivery(poison)).await;
    assert_eq!(outcome.name(), "reject", "{outcome:?}");
    assert!(!reason(&outcome).trim().is_empty());
    Ok(())
}

pub async fn a_rejected_event_harms_no_other(bench: Bench) -> Ran {
    let sink = bench.harness.sink().await;
    let poison = delivery(bench.harness.poison()?);
    let mut sent: Vec<_> = (0..20).map(order).collect();
    sent.insert(10, poison.clone());
    for (id, outcome) in bench.deliver_all(&sink, sent).await {
        if id == poison.event.id {
            assert_eq!(outcome.name(), "reject", "{outcome:?}");
        } else {
            assert_eq!(outcome, Outcome::Delivered, "{id}");
        }
    }
    let arrived = bench.arrived(20).await;
    assert!(arrived.iter().all(|one| one.id != poison.event.id));
    Ok(())
}

pub async fn wrong_credentials_say_so_and_do_not_print_the_password(bench: Bench) -> Ran {
    let logs = CapturedLogs::of_process();
    let (sink, password) = bench.harness.with_wrong_password().await?;
    let outcome = sink.deliver(&order(1)).await;
    assert_ne!(outcome, Outcome::Delivered);
    assert_ne!(outcome.name(), "reject", "the event is not at fault: {outcome:?}");
    let said = reason(&outcome);
    let names_it = ["password", "credentials", "authentication", "401"];
    assert!(
        names_it.iter().any(|word| said.to_lowercase().contains(word)),
        "{said}"
    );
    assert!(!said.contains(&password), "{said}");
    if let Err(said) = sink.check().await {
        assert!(!said.contains(&password), "{said}");
    }
    for line in logs.lines() {
        assert!(!format!("{line:?}").contains(&password), "{line:?}");
    }
    Ok(())
}

pub async fn tls_with_a_private_ca_works(bench: Bench) -> Ran {
    let sink = bench.harness.with_tls(true).await?;
    assert_eq!(sink.check().await, Ok(()));
    let sent = order(1);
    assert_eq!(sink.deliver(&sent).await, Outcome::Delivered);
    assert_eq!(bench.arrived(1).await[0].id, sent.event.id);
    Ok(())
}

pub async fn an_unknown_ca_is_refused(bench: Bench) -> Ran {
    let sink = bench.harness.with_tls(false).await?;
    let outcome = sink.deliver(&order(1)).await;
    assert_eq!(outcome.name(), bench.harness.when_gone(), "{outcome:?}");
    let said = sink.check().await.expect_err("the certificate is not known");
    assert!(said.to_lowercase().contains("certificate"), "{said}");
    Ok(())
}
