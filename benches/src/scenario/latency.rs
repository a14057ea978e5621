//! The time from a COMMIT that returned, of a plain INSERT by another connection, to the request at a webhook receiver.
//!
//! The real daemon delivers. The rate is held whether or not events arrive: each connection has its own schedule, and one that
//! is late catches up. The receiver is part of this program, so one clock measures both ends.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Context;
use crate::cost::{Cost, Meter};
use crate::daemon::Daemon;
use crate::database::Database;
use crate::failure::Failure;
use crate::latency;
use crate::ours::Ours;
use crate::receiver::Receiver;
use crate::report::{Measurement, Target};

/// Events per second, and the name of the measurement.
const RATES: [(u32, &str); 5] = [
    (1, "latency-1"),
    (20, "latency-20"),
    (200, "latency-200"),
    (1000, "latency-1000"),
    (5000, "latency-5000"),
];
/// The most events per second and connection.
const PER_CONNECTION: u32 = 500;
/// The daemon runs more queries at its start. After this time it is idle.
const WARM_UP: Duration = Duration::from_secs(3);

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let mut found = Vec::new();
    for (rate, name) in RATES {
        let own = context.database.sibling().await?;
        let measured = at_rate(context, &own, rate, name).await;
        own.remove().await?;
        found.push(measured?);
    }
    Ok(found)
}

async fn at_rate(
    context: &Context<'_>,
    own: &Database,
    rate: u32,
    name: &'static str,
) -> Result<Measurement, Failure> {
    Ours::new(own).await?;
    let receiver = Receiver::start()?;
    let mut daemon = Daemon::start_to(context.daemon, own, &receiver.destination())?;
    tokio::time::sleep(WARM_UP).await;
    daemon.is_alive()?;
    let meter = Meter::of(daemon.id()?, own).await?;
    let began = Instant::now();
    let committed = insert(own, rate, context.scale.latency_time()).await?;
    let took = began.elapsed();
    let times = receiver.arrivals().since(&committed).await?;
    let events = u32::try_from(committed.len()).unwrap_or(u32::MAX);
    let cost = meter.stop(events, own).await?;
    daemon.is_alive()?;
    daemon.kill().await?;
    let [p50, p99, p999] = [500, 990, 999].map(|permille| times.at(permille));
    eprintln!("  {rate:>5}/s  p50 {p50:>7.1} ms  p99 {p99:>7.1} ms  p99.9 {p999:>7.1} ms");
    let found = Measurement::new(
        name,
        (p99, "ms"),
        ("the limit of the 99th percentile", 50.0),
        Target::AtMost(1.0),
    );
    let mut found = found
        .detail("samples", times.samples())
        .detail("rate", (f64::from(events) / took.as_secs_f64()).round())
        .detail("p50_ms", p50)
        .detail("p50_limit_ms", 3.0)
        .detail("p999_ms", p999);
    found.details.extend(Cost::details(&[cost]));
    Ok(found)
}

/// Inserts single events at this rate. Returns when each of them was committed.
async fn insert(database: &Database, rate: u32, time: Duration) -> Result<HashMap<Uuid, Instant>, Failure> {
    let connections = rate.div_ceil(PER_CONNECTION);
    let each = Duration::from_secs(1) * connections / rate;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..connections {
        let mut connection = database.connection().await?;
        let offset = each * number / connections;
        running.spawn(async move {
            let mut committed = Vec::new();
            let began = tokio::time::Instant::now();
            let mut ticks = tokio::time::interval_at(began + offset, each);
            while began.elapsed() < time {
                ticks.tick().await;
                committed.push(latency::insert(&mut connection).await?);
            }
            Ok::<_, Failure>(committed)
        });
    }
    let mut all = HashMap::new();
    while let Some(ended) = running.join_next().await {
        all.extend(ended.map_err(|error| Failure::new(error.to_string()))??);
    }
    Ok(all)
}
