//! Prints committed lines: the log of the sagas, and the notifications of customers.
//!
//! The database assigns numbers before the commit, so a late line can have a lower number than a printed one. The last lines are
//! therefore read again.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::Result;

const PAUSE: Duration = Duration::from_millis(200);
/// How far below the newest line a late line may be.
const LATE_BY: i64 = 500;
/// How many line numbers are kept, so that no line is printed twice.
const KEPT: usize = 1000;

const LINES: &str = "
    select number, line from (
      select l.seq * 2 as number, rtrim(format('order %-5s %-12s %s', s.id, l.what, concat_ws(' ',
               l.step, case when l.action = 'compensation' then '(undo)' end,
               'attempt ' || nullif(l.attempt, 1), l.detail))) as line, l.at
      from pillarbox.saga_log l join pillarbox.sagas s on s.seq = l.saga where l.seq * 2 > $1
      union all
      select position * 2 + 1, 'customer notified: ' || text, at from notifications.sent where position * 2 + 1 > $2
    ) lines order by at, number";

/// The lines printed so far.
pub(crate) struct Watch {
    pool: PgPool,
    seen: Seen,
}

impl Watch {
    /// Skips the lines that exist now.
    pub(crate) async fn begin(pool: PgPool) -> Result<Self> {
        let mut seen = Seen::default();
        for (number, _) in lines(&pool, &seen).await? {
            seen.is_new(number);
        }
        Ok(Self { pool, seen })
    }

    /// Prints new lines until the shop closes.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> Result<()> {
        while !shutdown.is_cancelled() {
            match lines(&self.pool, &self.seen).await {
                Ok(lines) => self.print(lines),
                Err(error) => tracing::warn!(%error, "cannot read the log, will retry"),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = sleep(PAUSE) => {}
            }
        }
        Ok(())
    }

    fn print(&mut self, lines: Vec<(i64, String)>) {
        for (number, line) in lines {
            if self.seen.is_new(number) {
                println!("{line}");
            }
        }
    }
}

async fn lines(pool: &PgPool, seen: &Seen) -> Result<Vec<(i64, String)>, sqlx::Error> {
    sqlx::query_as(LINES)
        .bind(seen.floor(0))
        .bind(seen.floor(1))
        .fetch_all(pool)
        .await
}

/// The numbers of printed lines: even ones from sagas, odd ones from notifications.
#[derive(Default)]
struct Seen([BTreeSet<i64>; 2]);

impl Seen {
    fn of(&mut self, number: i64) -> &mut BTreeSet<i64> {
        &mut self.0[usize::from(number % 2 != 0)]
    }

    fn is_new(&mut self, number: i64) -> bool {
        let seen = self.of(number);
        let is_new = seen.insert(number);
        if seen.len() > KEPT {
            seen.pop_first();
        }
        is_new
    }

    /// Lines up to this number are not read again.
    fn floor(&self, which: usize) -> i64 {
        let newest = self.0[which].last().copied().unwrap_or_default();
        newest - LATE_BY
    }
}
