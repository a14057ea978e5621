//! Says what happens: the log of the sagas and what customers are told, as they are committed.
//!
//! Numbers are given before the commit, so that a line may appear below one that was seen: the last ones are looked at again.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::Result;

const PAUSE: Duration = Duration::from_millis(200);
/// How far below the newest line a late one may be.
const BEHIND: i64 = 500;
/// How many lines are remembered, so that none is said twice.
const REMEMBERED: usize = 1000;

const LINES: &str = "
    select l.seq * 2, format('order %-5s %-12s %s', s.id, l.what, concat_ws(' ',
             l.step, case when l.action = 'compensation' then '(undo)' end,
             'attempt ' || nullif(l.attempt, 1), l.detail))
    from pillarbox.saga_log l join pillarbox.sagas s on s.seq = l.saga where l.seq * 2 > $1
    union all
    select position * 2 + 1, 'customer told: ' || words from notifications.sent where position * 2 + 1 > $2
    order by 1";

/// Says it until the shop closes. What was there before is not said again.
pub(crate) async fn watch(pool: PgPool, shutdown: CancellationToken) -> Result<()> {
    let mut seen = Seen::default();
    let mut is_first = true;
    while !shutdown.is_cancelled() {
        match lines(&pool, &seen).await {
            Ok(lines) => {
                for (number, line) in lines {
                    if seen.is_new(number) && !is_first {
                        println!("{line}");
                    }
                }
                is_first = false;
            }
            Err(error) => tracing::warn!(%error, "what happens cannot be read; trying again"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = sleep(PAUSE) => {}
        }
    }
    Ok(())
}

async fn lines(pool: &PgPool, seen: &Seen) -> Result<Vec<(i64, String)>, sqlx::Error> {
    sqlx::query_as(LINES)
        .bind(seen.floor(0))
        .bind(seen.floor(1))
        .fetch_all(pool)
        .await
}

/// Which lines were said: even numbers are the sagas', odd ones the customers'.
#[derive(Default)]
struct Seen([BTreeSet<i64>; 2]);

impl Seen {
    fn of(&mut self, number: i64) -> &mut BTreeSet<i64> {
        &mut self.0[usize::from(number % 2 != 0)]
    }

    fn is_new(&mut self, number: i64) -> bool {
        let seen = self.of(number);
        let is_new = seen.insert(number);
        if seen.len() > REMEMBERED {
            seen.pop_first();
        }
        is_new
    }

    /// Nothing below is looked at any more.
    fn floor(&self, which: usize) -> i64 {
        let newest = self.0[which].last().copied().unwrap_or_default();
        newest - BEHIND
    }
}
