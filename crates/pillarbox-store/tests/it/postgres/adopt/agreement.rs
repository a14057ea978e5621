//! Checks that a table shows the state of its rows. Derived from the documents of the seeds, not from the layouts.

use serde_json::Value;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::harness::Adopted;

/// The state that a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Pending,
    Delivered,
    Dead,
}

/// The state that a table shows for a row, and its counter if there is one. `limit` is the limit of attempts.
pub(super) fn shown(seed: &str, row: &Value, limit: Option<u32>) -> (Shown, Option<i64>) {
    let number = |column: &str| row[column].as_i64().expect("a number");
    let status = |column: &str| row[column].to_string();
    let by = |status: &str, delivered: &str, dead: &str| match status {
        status if status == delivered => Shown::Delivered,
        status if status == dead => Shown::Dead,
        _ => Shown::Pending,
    };
    match seed {
        "arap" => {
            let count = number("RetryCount");
            let given_up = limit.is_some_and(|limit| count >= i64::from(limit));
            let said = match (&row["ProcessedOnUtc"], given_up) {
                (Value::Null, false) => Shown::Pending,
                (Value::Null, true) => Shown::Dead,
                _ => Shown::Delivered,
            };
            (said, Some(count))
        }
        "modkit" => (
            by(&status("status"), "\"delivered\"", "\"dead\""),
            Some(number("attempts")),
        ),
        "rediver" => {
            let said = by(&status("status"), "\"completed\"", "\"dead\"");
            assert_eq!(said == Shown::Delivered, !row["processed_at"].is_null(), "{row}");
            let tried = number("retry_count") > 0;
            if said == Shown::Pending && row["status"] != "processing" {
                assert_eq!(row["status"], if tried { "failed" } else { "pending" }, "{row}");
            }
            (said, Some(number("retry_count")))
        }
        "family-hub" => {
            let said = by(&status("status"), "1", "2");
            assert_eq!(said == Shown::Delivered, !row["processed_at"].is_null(), "{row}");
            (said, Some(number("retry_count")))
        }
        "order-service" => {
            let said = by(&status("status"), "\"SENT\"", "\"FAILED\"");
            assert_eq!(said == Shown::Delivered, !row["sent_at"].is_null(), "{row}");
            (said, None)
        }
        // What is there was not sent.
        "debezium" => (Shown::Pending, None),
        other => panic!("{other}: what does it say?"),
    }
}

/// The counter after this many attempts.
pub(super) fn counted(seed: &str, said: Shown, attempts: i64, limit: Option<u32>) -> i64 {
    let failures = if said == Shown::Delivered {
        attempts - 1
    } else {
        attempts
    };
    let limit = limit.map_or(i64::MAX, i64::from);
    match seed {
        "modkit" => attempts.max(0),
        // The last attempt is no retry.
        "rediver" => failures.clamp(0, limit - 1),
        // Only the counter tells that a row is given up on.
        "arap" if said == Shown::Dead => failures.max(limit),
        _ => failures.max(0),
    }
}

/// Events by their native rows and by their mapping rows. The seeds' row ids are the event ids.
const EVENTS: &str = "select n.id::text, a.ended, a.write_back_pending,
    (select to_jsonb(s) from {place} s where {key} = n.id) as said,
    array(select e.status from pillarbox.outbox_events e where n.id in (e.id, e.parent_id)) as statuses,
    (select max(e.attempts) from pillarbox.outbox_events e where n.id in (e.id, e.parent_id)) as attempts
  from (select coalesce(parent_id, id) as id from pillarbox.outbox_events
    union select event_id from pillarbox.adopted) n
  left join pillarbox.adopted a on a.event_id = n.id";

/// Asserts that the adopted table, the native rows and the mapping rows agree for every row that is not in flight.
pub(super) async fn assert_agree(adopted: &Adopted, limit: Option<u32>) {
    assert_agree_except(adopted, limit, &[]).await;
}

/// The same, but for these rows.
pub(super) async fn assert_agree_except(adopted: &Adopted, limit: Option<u32>, except: &[Uuid]) {
    let strays = adopted.outbox.sql(
        "select count(*) from pillarbox.outbox_events e where e.status in ('pending', 'processing') and not exists
           (select from pillarbox.adopted a where a.event_id = coalesce(e.parent_id, e.id))",
    );
    let strays: i64 = sqlx::query_scalar(AssertSqlSafe(strays))
        .fetch_one(&adopted.outbox.pool)
        .await
        .expect("counts");
    assert_eq!(strays, 0, "every unfinished native row has a mapping row");
    let sql = EVENTS
        .replace("{place}", &adopted.place())
        .replace("{key}", adopted.seed.id);
    let rows = sqlx::query(AssertSqlSafe(adopted.outbox.sql(&sql)))
        .fetch_all(&adopted.outbox.pool)
        .await
        .expect("reads");
    for row in rows {
        let event: String = row.get(0);
        if except.iter().any(|id| id.to_string() == event) {
            continue;
        }
        // What was sent needs no note: the table says so itself.
        let ended = row.get::<Option<bool>, _>(1).unwrap_or(true);
        let pending = row.get::<Option<bool>, _>(2).unwrap_or(false);
        let said: Option<Value> = row.get(3);
        let statuses: Vec<String> = row.get(4);
        let has = |status: &str| statuses.iter().any(|one| one == status);
        assert!(
            !pending,
            "{event}: no row is locked, so every state is written back"
        );
        if statuses.is_empty() {
            assert!(ended, "{event}: it was deleted here");
            continue;
        }
        if statuses
            .iter()
            .any(|one| !matches!(one.as_str(), "pending" | "dead" | "delivered"))
        {
            continue;
        }
        let expected = match (has("pending"), has("dead")) {
            (true, _) => Shown::Pending,
            (false, true) => Shown::Dead,
            (false, false) => Shown::Delivered,
        };
        assert_eq!(ended, expected != Shown::Pending, "{event}: {statuses:?}");
        let attempts = i64::from(row.get::<i32, _>(5));
        let seed = adopted.seed.name;
        let Some(said) = said else {
            assert!(ended, "{event}: its row is gone, and it goes on");
            continue;
        };
        // Where its row is gone, what is noted of a dead one goes too.
        let is_noted = row.get::<Option<bool>, _>(1).is_some();
        assert!(is_noted || expected == Shown::Delivered, "{event}: {statuses:?}");
        let (is, count) = shown(seed, &said, limit);
        // A counter at its limit may be that of a row which has more attempts here, or is to be swept.
        let is_used_up = limit.is_some_and(|limit| attempts >= i64::from(limit));
        let is_open = expected == Shown::Pending && seed == "arap" && is_used_up;
        if seed != "debezium" && !is_open {
            assert_eq!(is, expected, "{event}: {statuses:?}, {said}");
        }
        if let Some(count) = count {
            assert_eq!(
                count,
                counted(seed, expected, attempts, limit),
                "{event}: {attempts} attempts, {said}"
            );
        }
    }
}
