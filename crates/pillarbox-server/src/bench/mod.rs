//! `pillarbox bench`: how fast is Pillarbox on this machine and this database?
//!
//! Three figures: enqueueing by the library, draining the backlog into a sink that does nothing, and the latency of single
//! events on a system that is otherwise idle. Everything runs in this process.
//!
//! It works in a schema or a file of its own, which it removes, also after a failure or a signal. **If we die here** a schema
//! `pillarbox_bench_…` stays behind; its name is printed at the start.

mod drain;
mod latency;
mod scratch;

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

pub(crate) use self::latency::Latency;
use self::scratch::Scratch;
use crate::config;
use crate::failure::Failure;
use crate::logs;
use crate::signals;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Events to enqueue and drain.
    pub(crate) events: u32,
    /// Ordering keys; 0 for none.
    pub(crate) keys: u32,
    /// The size of a payload in bytes.
    pub(crate) payload: usize,
    /// Events per second while the latency is measured.
    pub(crate) rate: u32,
    /// For how long the latency is measured.
    pub(crate) duration: Duration,
}

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    /// The database, without its password.
    pub(crate) database: String,
    /// Events that were enqueued and drained.
    pub(crate) events: u32,
    /// Events per second, enqueued by the library, 100 per transaction.
    #[serde(rename = "enqueue_per_second")]
    pub(crate) enqueue: f64,
    /// Events per second, drained into a sink that does nothing.
    #[serde(rename = "drain_per_second")]
    pub(crate) drain: f64,
    /// From the commit of an event to its sink.
    pub(crate) latency: Latency,
}

/// Measures in the given database, or in a temporary file.
pub(crate) async fn run(database: Option<config::Database>, plan: Plan) -> Result<Figures, Failure> {
    let shutdown = signals::shutdown()?;
    let scratch = Scratch::create(database).await?;
    let measured = until(&shutdown, measure(&scratch, plan)).await;
    let removed = scratch.remove().await;
    match (measured, removed) {
        (Ok(figures), removed) => removed.map(|()| figures),
        (Err(failure), removed) => {
            if let Err(Failure::Failed(left) | Failure::Usage(left)) = removed {
                logs::progress(&left);
            }
            Err(failure)
        }
    }
}

async fn measure(scratch: &Scratch, plan: Plan) -> Result<Figures, Failure> {
    let enqueue = drain::enqueue(scratch, plan).await?;
    let drain = drain::drain(scratch, plan.events).await?;
    let latency = latency::measure(scratch, plan).await?;
    Ok(Figures {
        database: scratch.name(),
        events: plan.events,
        enqueue,
        drain,
        latency,
    })
}

async fn until<T>(
    shutdown: &CancellationToken,
    measured: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = measured => done,
        () = shutdown.cancelled() => Err(Failure::failed("interrupted; no result")),
    }
}

/// `n` per `took`, per second.
fn per_second(n: u32, took: Duration) -> f64 {
    f64::from(n) / took.as_secs_f64().max(1e-9)
}
