//! Rows with 1,000 keys while another session holds an old snapshot, compared with the same without that session.
//!
//! A steady backlog comes first: producers add rows as fast as they are delivered. It leaves dead index entries, which vacuum cannot
//! remove while the snapshot is held. Then single events follow, one after the other, in the same table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Context, progress};
use crate::database::Database;
use crate::failure::Failure;
use crate::ours::{CONCURRENCY, NullSink, Ours, Running};
use crate::report::{Measurement, Target, median};

const KEYS: u32 = 1_000;
/// Between the delivery of a single event and the next one.
const GAP: Duration = Duration::from_millis(50);
/// How often the size of the backlog is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?;
    let clean = run(context, &ours).await?;
    progress("clean", clean.last);

    let snapshot = context.database.hold_snapshot().await?;
    let held = run(context, &ours).await;
    snapshot.release().await?;
    let held = held?;
    progress("held", held.last);

    let against = "the same without such a session";
    let steady = Measurement::new(
        "held-snapshot-keyed",
        (held.last, "rows/s"),
        (against, clean.last),
        Target::AtLeast(0.90),
    );
    let single = Measurement::new(
        "held-snapshot-keyed-latency",
        (median(&held.latencies), "ms"),
        (against, median(&clean.latencies)),
        Target::AtMost(2.0),
    );
    Ok(vec![
        steady
            .detail("keys", KEYS)
            .detail("rows", held.steady)
            .detail("peer_rows", clean.steady)
            .detail("first_third", held.first.round())
            .detail("peer_first_third", clean.first.round())
            .detail("statements", held.times_steady)
            .detail("peer_statements", clean.times_steady),
        single
            .detail("samples", held.latencies.len())
            .detail("slowest", slowest(&held.latencies).round())
            .detail("peer_slowest", slowest(&clean.latencies).round())
            .detail("statements", held.times_single)
            .detail("peer_statements", clean.times_single),
    ])
}

/// The figures of one run.
struct Run {
    /// Rows per second in the first and in the last third of the time.
    first: f64,
    last: f64,
    /// The rows of the steady backlog.
    steady: u64,
    times_steady: Value,
    /// From each INSERT to the end of its settle, in milliseconds.
    latencies: Vec<f64>,
    times_single: Value,
}

async fn run(context: &Context<'_>, ours: &Ours<'_>) -> Result<Run, Failure> {
    ours.backlog().clear().await?;
    let running = ours.start(Arc::new(NullSink), CONCURRENCY).await?;
    let found = figures(context, ours, &running).await;
    running.stop().await?;
    let found = found?;
    let rows = found.steady + found.latencies.len() as u64;
    ours.backlog()
        .verify(u32::try_from(rows).unwrap_or(u32::MAX))
        .await?;
    Ok(found)
}

async fn figures(context: &Context<'_>, ours: &Ours<'_>, running: &Running) -> Result<Run, Failure> {
    let start = Times::read(context.database).await?;
    let (steady, [first, last]) = drain_steadily(context, ours, running).await?;
    let between = Times::read(context.database).await?;
    let latencies = deliver_singly(context, ours, running, steady).await?;
    let end = Times::read(context.database).await?;
    Ok(Run {
        first,
        last,
        steady,
        times_steady: Times::mean(start, between),
        latencies,
        times_single: Times::mean(between, end),
    })
}

/// Keeps a backlog of the same size. Returns how many rows it had in total, and the rates in the first and in the last third.
async fn drain_steadily(
    context: &Context<'_>,
    ours: &Ours<'_>,
    running: &Running,
) -> Result<(u64, [f64; 2]), Failure> {
    let (size, time) = (context.scale.steady(), context.scale.held_time());
    ours.backlog().add_keyed(size, KEYS).await?;
    let mut added = size;
    let began = Instant::now();
    // The time and the deliveries at the start, after a third, after two thirds, and at the end.
    let mut marks = vec![(Duration::ZERO, running.snapshot().delivered)];
    while marks.len() < 4 {
        let (elapsed, delivered) = (began.elapsed(), running.snapshot().delivered);
        if elapsed * 3 >= time * u32::try_from(marks.len()).unwrap_or(u32::MAX) {
            marks.push((elapsed, delivered));
        } else if added.saturating_sub(delivered) <= size / 2 {
            ours.backlog().add_keyed(size / 2, KEYS).await?;
            added += size / 2;
        } else {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
    running.delivered(added).await?;
    let rate = |third: usize| {
        let ((from, before), (to, after)) = (marks[third], marks[third + 1]);
        let rows = u32::try_from(after - before).unwrap_or(u32::MAX);
        f64::from(rows) / (to - from).as_secs_f64()
    };
    Ok((added, [rate(0), rate(2)]))
}

/// One event after the other. `delivered` is the number of deliveries before.
async fn deliver_singly(
    context: &Context<'_>,
    ours: &Ours<'_>,
    running: &Running,
    mut delivered: u64,
) -> Result<Vec<f64>, Failure> {
    let mut latencies = Vec::new();
    let began = Instant::now();
    while began.elapsed() < context.scale.single_time() {
        tokio::time::sleep(GAP).await;
        let inserted = Instant::now();
        ours.backlog().add_one(fastrand::u32(..KEYS)).await?;
        delivered += 1;
        running.delivered(delivered).await?;
        latencies.push(inserted.elapsed().as_secs_f64() * 1e3);
    }
    Ok(latencies)
}

fn slowest(latencies: &[f64]) -> f64 {
    latencies.iter().copied().fold(0.0, f64::max)
}

/// Calls and milliseconds of two statements so far, if the server records them.
#[derive(Debug, Clone, Copy)]
struct Times {
    claim: (i64, f64),
    find: (i64, f64),
}

impl Times {
    async fn read(database: &Database) -> Result<Option<Self>, Failure> {
        if !database.records_statements().await? {
            return Ok(None);
        }
        Ok(Some(Self {
            claim: total(database, "%unbroken as (%").await?,
            find: total(database, "%as cut,%as paused%").await?,
        }))
    }

    /// The mean times between two readings, in milliseconds, or null.
    fn mean(from: Option<Self>, to: Option<Self>) -> Value {
        let (Some(from), Some(to)) = (from, to) else {
            return Value::Null;
        };
        let mean = |from: (i64, f64), to: (i64, f64)| {
            let calls = u32::try_from(to.0 - from.0).unwrap_or(0);
            json!({ "calls": calls, "mean_ms": (to.1 - from.1) / f64::from(calls.max(1)) })
        };
        json!({ "claim": mean(from.claim, to.claim), "find": mean(from.find, to.find) })
    }
}

/// The calls and milliseconds of the statements of this database with such a text.
async fn total(database: &Database, text: &str) -> Result<(i64, f64), Failure> {
    let sql = "select coalesce(sum(calls), 0)::bigint, coalesce(sum(total_exec_time), 0)::float8 \
               from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = $1 and query like $2";
    Ok(sqlx::query_as(sql)
        .bind(database.name())
        .bind(text)
        .fetch_one(database.outside())
        .await?)
}
