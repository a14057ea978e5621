//! Transactions that overlap: one key, crossing keys, and the lock of a key.

use pillarbox::{Enqueued, Event};
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::harness::PostgresHarness;
use super::super::order::until_waiting;
use super::{enqueue, enqueue_many};

fn keyed(key: &str) -> Event {
    Event::new("shop", "orders").dedupe_key(key)
}

/// Two transactions use one key, and the second waits. Returns its answer after the end of the first.
async fn second_of_two(many: bool, first_commits: bool) -> (Uuid, Event, Enqueued) {
    let harness = PostgresHarness::direct().await;
    let (first, second) = (keyed("k"), keyed("k"));
    let mut holder = harness.pool.begin().await.expect("begins");
    enqueue(&harness, &mut holder, &first).await.expect("enqueues");
    let waits = async {
        let mut transaction = harness.pool.begin().await.expect("begins");
        let enqueued = if many {
            let answer = enqueue_many(&harness, &mut transaction, std::slice::from_ref(&second)).await;
            answer.expect("enqueues")[0]
        } else {
            enqueue(&harness, &mut transaction, &second)
                .await
                .expect("enqueues")
        };
        transaction.commit().await.expect("commits");
        enqueued
    };
    let ends = async {
        until_waiting(&harness, harness.store.schema()).await;
        if first_commits {
            holder.commit().await.expect("commits");
        } else {
            holder.rollback().await.expect("rolls back");
        }
    };
    let (enqueued, ()) = tokio::join!(waits, ends);
    harness.clean_up().await;
    (first.id, second, enqueued)
}

#[tokio::test]
async fn the_loser_of_a_race_for_a_key_receives_the_id_of_the_first() {
    for many in [false, true] {
        let (first, _, enqueued) = second_of_two(many, true).await;
        assert_eq!(enqueued, Enqueued::Duplicate(first));
    }
}

#[tokio::test]
async fn a_transaction_that_waited_for_a_rollback_enqueues_a_new_event() {
    for many in [false, true] {
        let (_, second, enqueued) = second_of_two(many, false).await;
        assert_eq!(enqueued, Enqueued::New(second.id));
    }
}

#[tokio::test]
async fn under_repeatable_read_the_loser_is_asked_to_try_again() {
    let harness = PostgresHarness::direct().await;
    for many in [false, true] {
        let key = format!("k-{many}");
        let mut loser = harness
            .pool
            .begin_with("begin isolation level repeatable read")
            .await
            .expect("begins");
        sqlx::raw_sql("select 1")
            .execute(&mut *loser)
            .await
            .expect("takes its snapshot");
        let mut winner = harness.pool.acquire().await.expect("connects");
        enqueue(&harness, &mut winner, &keyed(&key))
            .await
            .expect("enqueues");
        let answer = if many {
            enqueue_many(&harness, &mut loser, &[keyed(&key)])
                .await
                .map(|_| ())
        } else {
            enqueue(&harness, &mut loser, &keyed(&key)).await.map(|_| ())
        };
        let error = answer.expect_err("cannot see the winner");
        let code = error.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("40001"), "{error}");
        loser.rollback().await.expect("rolls back");

        let mut alone = harness
            .pool
            .begin_with("begin isolation level repeatable read")
            .await
            .expect("begins");
        let again = enqueue_many(&harness, &mut alone, &[keyed(&key), keyed("new")]).await;
        let again: Vec<bool> = again
            .expect("sees the winner")
            .into_iter()
            .map(Enqueued::is_new)
            .collect();
        assert_eq!(again, [false, true]);
        alone.rollback().await.expect("rolls back");
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn two_callers_with_the_same_keys_in_opposite_order_do_not_deadlock() {
    let harness = PostgresHarness::direct().await;
    let keys: Vec<String> = (0..200).map(|n| format!("key-{n:03}")).collect();
    let forward: Vec<Event> = keys.iter().map(|key| keyed(key)).collect();
    let backward: Vec<Event> = keys.iter().rev().map(|key| keyed(key)).collect();
    for round in 0..20 {
        harness.execute("delete from pillarbox.outbox_events").await;
        let by_function = async {
            let mut transaction = harness.pool.begin().await.expect("begins");
            let enqueued = enqueue_many(&harness, &mut transaction, &forward).await;
            transaction.commit().await.expect("commits");
            enqueued.expect("no deadlock")
        };
        // Every other round against the library: both take keys in one order.
        let other = async {
            let mut transaction = harness.pool.begin().await.expect("begins");
            let enqueued = if round % 2 == 0 {
                enqueue_many(&harness, &mut transaction, &backward)
                    .await
                    .expect("no deadlock")
            } else {
                let enqueued = harness.outbox().enqueue_all(&mut transaction, &backward).await;
                enqueued.expect("no deadlock")
            };
            transaction.commit().await.expect("commits");
            enqueued
        };
        let (one, other) = tokio::join!(by_function, other);
        let new = one.iter().chain(&other).filter(|one| one.is_new()).count();
        assert_eq!(new, keys.len());
    }
    harness.clean_up().await;
}

#[tokio::test]
async fn serialised_writers_of_a_key_wait_for_each_other_whatever_they_call() {
    let harness = PostgresHarness::direct().await;
    let calls = [
        "select id from pillarbox.enqueue('shop', 'orders', ordering_key => 'a', serialised => true)",
        r#"select id from pillarbox.enqueue_many('[{"namespace": "shop", "topic": "orders", "ordering_key": "a"}]', true)"#,
    ];
    for call in calls {
        harness.execute("delete from pillarbox.outbox_events").await;
        let first = Event::new("shop", "orders").ordering_key("a");
        let mut holder = harness.pool.begin().await.expect("begins");
        let by_library = harness.outbox().serialised();
        by_library.enqueue(&mut holder, &first).await.expect("enqueues");
        let waits = async {
            let query = sqlx::query_scalar::<_, Uuid>(AssertSqlSafe(harness.sql(call)));
            query.fetch_one(&harness.pool).await.expect("enqueues")
        };
        let ends = async {
            until_waiting(&harness, harness.store.schema()).await;
            let later = Event::new("shop", "orders").ordering_key("a");
            by_library.enqueue(&mut holder, &later).await.expect("enqueues");
            holder.commit().await.expect("commits");
        };
        let (second, ()) = tokio::join!(waits, ends);
        let last = harness.sql("select id from pillarbox.outbox_events order by seq desc limit 1");
        let last: Uuid = sqlx::query_scalar(AssertSqlSafe(last))
            .fetch_one(&harness.pool)
            .await
            .expect("reads");
        assert_eq!(last, second, "it drew its place when the first had committed");
    }
    harness.clean_up().await;
}

/// Makes the event with the key go away between the attempt to write another and the look for it: the first time, or
/// every time.
async fn let_it_go(harness: &PostgresHarness, always: bool) {
    let comes = "create function pillarbox.comes() returns trigger language plpgsql as $$begin
           if pg_trigger_depth() = 1 then
             insert into pillarbox.outbox_events (namespace, topic, dedupe_key, payload)
             values ('shop', 'orders', 'k', '{}') on conflict do nothing;
           end if;
           return null;
         end$$;
         create trigger comes before insert on pillarbox.outbox_events execute function pillarbox.comes()";
    let goes = "create function pillarbox.goes() returns trigger language plpgsql as $$begin
           if pg_trigger_depth() = 1 then
             delete from pillarbox.outbox_events where dedupe_key = 'k' and event_type is null;
           end if;
           return null;
         end$$;
         create trigger goes after insert on pillarbox.outbox_events execute function pillarbox.goes()";
    if always {
        harness.execute(comes).await;
    }
    harness.execute(goes).await;
}

#[tokio::test]
async fn an_event_that_is_gone_when_it_is_looked_for_makes_room() {
    for many in [false, true] {
        let harness = PostgresHarness::direct().await;
        harness.enqueue(&[keyed("k")]).await.expect("enqueues");
        let_it_go(&harness, false).await;
        let mut connection = harness.pool.acquire().await.expect("connects");
        let event = keyed("k").event_type("second");
        let enqueued = if many {
            let events = [keyed("other"), event.clone()];
            enqueue_many(&harness, &mut connection, &events)
                .await
                .expect("enqueues")[1]
        } else {
            enqueue(&harness, &mut connection, &event)
                .await
                .expect("enqueues")
        };
        assert_eq!(enqueued, Enqueued::New(event.id));
        drop(connection);
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn an_event_that_comes_and_goes_is_not_waited_for_for_ever() {
    let harness = PostgresHarness::direct().await;
    let_it_go(&harness, true).await;
    let mut connection = harness.pool.acquire().await.expect("connects");
    let event = keyed("k").event_type("second");
    let one = enqueue(&harness, &mut connection, &event).await.map(|_| ());
    let many = enqueue_many(&harness, &mut connection, &[event])
        .await
        .map(|_| ());
    for answer in [one, many] {
        let error = answer.expect_err("never sees it");
        let error = error.as_database_error().expect("by the database");
        assert_eq!(error.code().as_deref(), Some("40001"), "{error}");
        assert!(error.message().contains("retry the transaction"), "{error}");
    }
    drop(connection);
    harness.clean_up().await;
}

/// The claims of keys count on it: a number that was drawn before belongs to a transaction that holds the lock, or has ended.
#[tokio::test]
async fn numbers_are_drawn_under_the_lock_of_the_table() {
    let harness = PostgresHarness::direct().await;
    let mut holder = harness.pool.begin().await.expect("begins");
    // No other session draws a number until this transaction ends.
    let sequence = harness.sql("alter sequence pillarbox.outbox_seq increment by 1");
    let altered = sqlx::raw_sql(AssertSqlSafe(sequence)).execute(&mut *holder);
    altered.await.expect("locks the sequence");
    let draws = async {
        let mut transaction = harness.pool.begin().await.expect("begins");
        let enqueued = enqueue_many(&harness, &mut transaction, &[keyed("k")]).await;
        enqueued.expect("enqueues");
        transaction.commit().await.expect("commits");
    };
    let looks = async {
        until_waiting(&harness, harness.store.schema()).await;
        let locks = harness.sql(
            "select count(*) from pg_locks where relation = 'pillarbox.outbox_events'::regclass and mode = 'RowExclusiveLock'",
        );
        let locks: i64 = sqlx::query_scalar(AssertSqlSafe(locks))
            .fetch_one(&harness.pool)
            .await
            .expect("reads");
        holder.rollback().await.expect("rolls back");
        locks
    };
    let ((), locks) = tokio::join!(draws, looks);
    assert_eq!(locks, 1);
    harness.clean_up().await;
}
