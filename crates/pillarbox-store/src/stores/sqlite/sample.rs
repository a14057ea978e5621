//! The sample of a file, which each worker takes for itself: a file has few workers.

use std::time::Instant;

use sqlx::{Row, SqlitePool};
use time::OffsetDateTime;

use super::{earlier, row_limit};
use crate::sample::{Depth, INTERVAL, STALE_AFTER, Sample, SampleRequest, Sampled, whole};
use crate::store::UNROUTED;

/// Up to how many rows are counted of each kind.
const COUNTED: usize = 20_000;
/// How many times as long as a sample the wait after it is.
const REST: u32 = 19;

#[expect(clippy::disallowed_methods, reason = "SQLite has the clock of this machine")]
pub(super) async fn sample(readers: SqlitePool, request: SampleRequest) -> Result<Sampled, sqlx::Error> {
    let began = Instant::now();
    let rows = sqlx::query(include_str!("sql/sample.sql"))
        .bind(row_limit(COUNTED))
        .bind(earlier(STALE_AFTER))
        .fetch_all(&readers)
        .await?;
    let known = request.destinations.into_iter().chain([UNROUTED.to_owned()]);
    let mut sample = Sample {
        cap: COUNTED as u64,
        destinations: known.map(|name| (name, Depth::default())).collect(),
        ..Sample::default()
    };
    let mut manual_retries = 0;
    for row in &rows {
        let (what, name): (String, String) = (row.try_get("what")?, row.try_get("name")?);
        let value: f64 = row.try_get("value")?;
        match what.as_str() {
            "retried" => manual_retries = whole(value),
            _ => sample.fact(&what, &name, value),
        }
    }
    let took = began.elapsed();
    Ok(Sampled {
        sample: Some(sample),
        age: took,
        due_in: INTERVAL.max(took * REST),
        manual_retries,
        now: OffsetDateTime::now_utc(),
    })
}
