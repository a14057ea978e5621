//! The audit: one line for each change, in its transaction.

use pillarbox_store::actor::{Kind, Permission, Reach};
use pillarbox_store::audit::{Action, AuditFilter, AuditRecord};
use pillarbox_store::{Actor, Scope};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Ran;
use super::bench::{Bench, dead, event, retry};
use super::harness::Field;
use crate::OPERATOR;

fn alice() -> Actor {
    Actor::new(Kind::Operator, "alice", Reach::System, Permission::ALL).because("the partner is back")
}

/// Newest first, without the migration.
async fn lines(bench: &Bench, filter: AuditFilter) -> Vec<AuditRecord> {
    let mut lines = bench.operate().audit(&OPERATOR, &filter).await.expect("lines");
    lines.retain(|line| line.action != Action::Migrate.as_str());
    lines
}

async fn all(bench: &Bench) -> Vec<AuditRecord> {
    lines(bench, AuditFilter::default()).await
}

/// The action, the number of rows, what they were and what they are.
fn change(line: &AuditRecord) -> (&str, u64, Option<Value>, Option<Value>) {
    (&line.action, line.count, line.before.clone(), line.after.clone())
}

/// However many rows it changes.
pub async fn a_change_writes_one_line(bench: Bench) -> Ran {
    let put = bench.put_many(3).await;
    for (delivery, verdict) in bench.claim(3).await.iter().zip([dead(), dead(), retry(100)]) {
        bench.settle(delivery, verdict).await;
    }
    let operate = bench.operate();
    operate.retry(&alice(), &put).await.expect("a retry");
    let written = all(&bench).await;
    assert_eq!(written.len(), 1, "{written:?}");
    let line = &written[0];
    assert_eq!(
        change(line),
        (
            "events.retry",
            3,
            Some(json!({ "dead": 2, "pending": 1 })),
            Some(json!({ "pending": 3 }))
        )
    );
    let (mut objects, mut ids) = (
        line.objects.clone(),
        put.iter().map(Uuid::to_string).collect::<Vec<_>>(),
    );
    objects.sort();
    ids.sort();
    assert_eq!(objects, ids);
    assert_eq!(
        (line.subject.as_str(), line.kind.as_str(), line.reason.as_deref()),
        ("alice", "operator", Some("the partner is back"))
    );
    assert_eq!(line.tenant_id, None);

    operate.delete(&OPERATOR, &put[..1]).await.expect("a delete");
    let line = all(&bench).await.remove(0);
    assert_eq!(
        change(&line),
        ("events.delete", 1, Some(json!({ "pending": 1 })), None)
    );
    assert_eq!((line.objects, line.reason), (vec![put[0].to_string()], None));
    Ok(())
}

/// A skip, a pause, its end, and a destination that asked for no more events.
pub async fn each_kind_of_change_has_its_line(bench: Bench) -> Ran {
    // An adopted row is in the outbox only after a claim has imported it.
    bench.needs(&[Field::OrderingKey, Field::Destination])?;
    let head = bench.put(event().ordering_key("k")).await;
    let operate = bench.operate();
    operate.skip(&alice(), &[head]).await.expect("a skip");
    operate.pause(&alice(), "chat", "too loud").await.expect("pauses");
    operate.resume(&alice(), "chat").await.expect("resumes");
    let canary = "410 Gone: token=canary";
    bench
        .store()
        .disable(bench.worker, "mail", canary)
        .await
        .expect("disables");
    operate.resume(&alice(), "mail").await.expect("resumes");
    let written = all(&bench).await;
    let seen: Vec<_> = written.iter().rev().map(change).collect();
    let state = |name: &str, is: bool| Some(json!({ name: is }));
    assert_eq!(
        seen,
        [
            (
                "events.skip",
                1,
                Some(json!({ "pending": 1 })),
                Some(json!({ "dead": 1 }))
            ),
            (
                "destinations.pause",
                1,
                state("paused", false),
                state("paused", true)
            ),
            (
                "destinations.resume",
                1,
                state("paused", true),
                state("paused", false)
            ),
            (
                "destinations.disable",
                1,
                state("disabled", false),
                state("disabled", true)
            ),
            (
                "destinations.resume",
                1,
                state("disabled", true),
                state("disabled", false)
            ),
        ]
    );
    assert_eq!(written[3].reason.as_deref(), Some("too loud"));
    let worker = &written[1];
    assert_eq!(
        (worker.kind.as_str(), worker.subject.as_str()),
        ("worker", bench.worker.to_string().as_str())
    );
    Ok(())
}

/// Neither a row that is not there, nor a second pause.
pub async fn a_call_that_changes_nothing_writes_no_line(bench: Bench) -> Ran {
    let operate = bench.operate();
    let unknown = [Uuid::new_v4()];
    operate.retry(&OPERATOR, &unknown).await.expect("a retry");
    operate.delete(&OPERATOR, &unknown).await.expect("a delete");
    operate.skip(&OPERATOR, &unknown).await.expect("a skip");
    operate.resume(&OPERATOR, "chat").await.expect("resumes");
    operate.stats(&OPERATOR, &Scope::All).await.expect("stats");
    assert_eq!(all(&bench).await, []);
    operate.pause(&OPERATOR, "chat", "first").await.expect("pauses");
    operate.pause(&OPERATOR, "chat", "second").await.expect("pauses");
    bench
        .store()
        .disable(bench.worker, "chat", "410")
        .await
        .expect("disables");
    assert_eq!(all(&bench).await.len(), 1);
    Ok(())
}

/// Payloads, headers, and what receivers answered.
pub async fn content_never_enters_the_audit(bench: Bench) -> Ran {
    bench.needs(&[Field::Headers, Field::Json])?;
    let secret = event()
        .header("authorization", "canary")
        .json(&json!({ "card": "canary" }))
        .expect("JSON");
    let id = bench.put(secret).await;
    let delivery = bench.claim_one().await;
    let refused = pillarbox_store::Verdict::Dead {
        reason: "401 canary".into(),
    };
    bench.settle(&delivery, refused).await;
    let operate = bench.operate();
    bench
        .store()
        .disable(bench.worker, "chat", "410 canary")
        .await
        .expect("disables");
    operate.resume(&OPERATOR, "chat").await.expect("resumes");
    operate.retry(&OPERATOR, &[id]).await.expect("a retry");
    operate.delete(&OPERATOR, &[id]).await.expect("a delete");
    let written = all(&bench).await;
    assert_eq!(written.len(), 4);
    let text = serde_json::to_string(&written).expect("JSON");
    assert!(!text.contains("canary"), "{text}");
    Ok(())
}

/// Each page ends where the next begins.
pub async fn lines_are_filtered_and_come_in_pages(bench: Bench) -> Ran {
    let operate = bench.operate();
    let names: Vec<String> = (0..5).map(|n| format!("d{n}")).collect();
    for name in &names {
        operate.pause(&OPERATOR, name, "a test").await.expect("pauses");
    }
    operate.resume(&alice(), "d3").await.expect("resumes");
    let objects = async |filter: AuditFilter| -> Vec<String> {
        let lines = lines(&bench, filter).await;
        lines.into_iter().flat_map(|line| line.objects).collect()
    };
    let by = AuditFilter::default;
    let of_alice = AuditFilter {
        subject: Some("alice".into()),
        ..by()
    };
    let of_d3 = AuditFilter {
        object: Some("d3".into()),
        ..by()
    };
    let pauses = AuditFilter {
        action: Some(Action::PauseDestination.as_str().into()),
        limit: 2,
        ..by()
    };
    assert_eq!(objects(of_alice).await, ["d3"]);
    assert_eq!(objects(of_d3.clone()).await, ["d3", "d3"]);
    let first = lines(&bench, pauses.clone()).await;
    let next = AuditFilter {
        before: first.last().map(|line| line.seq),
        ..pauses.clone()
    };
    assert_eq!(objects(pauses).await, ["d4", "d3"]);
    assert_eq!(objects(next).await, ["d2", "d1"]);
    let (oldest, newest) = {
        let lines = all(&bench).await;
        (lines[lines.len() - 1].at, lines[0].at)
    };
    let second = time::Duration::SECOND;
    let after = AuditFilter {
        since: Some(newest + second),
        ..by()
    };
    let earlier = AuditFilter {
        until: Some(oldest),
        ..of_d3.clone()
    };
    let within = AuditFilter {
        since: Some(oldest - second),
        until: Some(newest + second),
        ..of_d3
    };
    assert_eq!(objects(after).await, Vec::<String>::new());
    assert_eq!(objects(earlier).await, Vec::<String>::new());
    assert_eq!(objects(within).await.len(), 2);
    Ok(())
}
