//! The same backlog and the same idle latency for well-known queues on PostgreSQL, alternating with Pillarbox.
//!
//! Each peer is a program in `benches/peers`, configured for throughput as its own documentation recommends. `scripts/bench`
//! installs them. A peer is skipped with a message if its program is not there.
//!
//! Their handlers do nothing, like the null sink. What they promise differs: none but pg-transactional-outbox keeps an order,
//! and graphile-worker deletes what is done. docs/benchmarks.md says so beside the figures.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pillarbox::{Delivery, Outcome, Sink};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Context, rate};
use crate::cost::{Cost, Meter};
use crate::database::Database;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs, Target, median};

/// A peer that does not answer for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long a system is idle before a single event, as for the peers (peer.mjs).
const IDLE: Duration = Duration::from_millis(1200);
const SPREAD: Duration = Duration::from_millis(500);

struct Peer {
    drain: &'static str,
    latency: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Is it so slow that a tenth of the rows takes long enough?
    is_slow: bool,
}

const PEERS: [Peer; 4] = [
    Peer {
        drain: "drain, graphile-worker",
        latency: "latency, graphile-worker",
        program: "node",
        arguments: &["graphile-worker.mjs"],
        is_slow: false,
    },
    Peer {
        drain: "drain, pg-boss",
        latency: "latency, pg-boss",
        program: "node",
        arguments: &["pg-boss.mjs"],
        is_slow: false,
    },
    Peer {
        drain: "drain, pg-transactional-outbox",
        latency: "latency, pg-transactional-outbox",
        program: "node",
        arguments: &["pg-transactional-outbox.mjs"],
        is_slow: true,
    },
    Peer {
        drain: "drain, River",
        latency: "latency, River",
        program: "./river/river",
        arguments: &[],
        is_slow: false,
    },
];

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let folder = folder(context.peers)?;
    let mut found = Vec::new();
    for peer in &PEERS {
        found.push(drain(context, peer, &folder).await?);
        found.push(idle(context, peer, &folder).await?);
    }
    Ok(found)
}

async fn drain(context: &Context<'_>, peer: &Peer, folder: &Path) -> Result<Measurement, Failure> {
    let rows = context.scale.drained();
    let theirs = if peer.is_slow { rows / 20 } else { rows };
    let ours = Ours::new(context.database).await?;
    let (mut pairs, mut peer_costs, mut costs) = (Pairs::default(), Vec::new(), Vec::new());
    for _ in 0..context.scale.pairs() {
        let database = context.database.sibling().await?;
        let run = run_drain(peer, folder, &database, theirs).await;
        database.remove().await?;
        let (seconds, cost) = run?;
        pairs.peer.push(f64::from(theirs) / seconds);
        peer_costs.push(cost);
        super::progress(peer.drain, pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().refill(rows, "drain").await?;
        let meter = Meter::start(context.database).await?;
        pairs.ours.push(rate(rows, ours.drain_to_null(rows).await?));
        costs.push(meter.stop(rows, context.database).await?);
        ours.backlog().verify(rows).await?;
        super::progress("pillarbox", pairs.ours[pairs.ours.len() - 1]);
    }
    let mut found = Measurement::speeds(peer.drain, "the same jobs, handled by the peer", &pairs, 1.0)
        .detail("rows", rows)
        .detail("peer_rows", theirs)
        .detail("peer_cost", Value::Object(Cost::details(&peer_costs)));
    found.details.extend(Cost::details(&costs));
    Ok(found)
}

async fn run_drain(
    peer: &Peer,
    folder: &Path,
    database: &Database,
    rows: u32,
) -> Result<(f64, Cost), Failure> {
    let mut running = Program::start(peer, folder, "drain", database, ("ROWS", rows)).await?;
    let meter = Meter::of(running.id()?, database).await?;
    running.go().await?;
    let done = running.answer().await?;
    let cost = meter.stop(rows, database).await?;
    let seconds = done["seconds"]
        .as_f64()
        .filter(|_| done["handled"].as_u64() == Some(rows.into()))
        .ok_or_else(|| Failure::new(format!("{}: unexpected answer {done}", peer.drain)))?;
    Ok((seconds, cost))
}

async fn idle(context: &Context<'_>, peer: &Peer, folder: &Path) -> Result<Measurement, Failure> {
    let samples = u32::try_from(context.scale.samples()).unwrap_or(u32::MAX);
    let database = context.database.sibling().await?;
    let run = async {
        let mut running = Program::start(peer, folder, "latency", &database, ("SAMPLES", samples)).await?;
        running.go().await?;
        running.answer().await
    };
    let run = run.await;
    database.remove().await?;
    let theirs: Vec<f64> = run?["milliseconds"]
        .as_array()
        .map(|times| times.iter().filter_map(Value::as_f64).collect())
        .unwrap_or_default();
    let ours = ours_idle(context, samples).await?;
    let found = Measurement::new(
        peer.latency,
        (median(&ours), "ms"),
        ("the median of the peer on an idle system", median(&theirs)),
        Target::AtMost(1.0),
    );
    Ok(found.detail("samples", samples))
}

/// The same for Pillarbox, in this process as the peers are in theirs.
async fn ours_idle(context: &Context<'_>, samples: u32) -> Result<Vec<f64>, Failure> {
    let ours = Ours::new(context.database).await?;
    ours.backlog().clear().await?;
    let (arrived, mut arrivals) = unbounded_channel();
    let running = ours.start(Arc::new(Stopwatch(arrived)), 16).await?;
    let mut times = Vec::new();
    for _ in 0..samples {
        tokio::time::sleep(IDLE + SPREAD.mul_f64(fastrand::f64())).await;
        ours.backlog().add_plain().await?;
        let committed = Instant::now();
        let arrived = tokio::time::timeout(TIMEOUT, arrivals.recv()).await;
        let arrived: Instant = arrived
            .ok()
            .flatten()
            .ok_or_else(|| Failure::new("an event did not arrive"))?;
        times.push(arrived.saturating_duration_since(committed).as_secs_f64() * 1e3);
    }
    running.stop().await?;
    Ok(times)
}

/// A sink that reports the time of each arrival.
struct Stopwatch(UnboundedSender<Instant>);

#[async_trait]
impl Sink for Stopwatch {
    async fn deliver(&self, _: &Delivery) -> Outcome {
        match self.0.send(Instant::now()) {
            Ok(()) => Outcome::Delivered,
            Err(_) => Outcome::unavailable("the benchmark has ended"),
        }
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A peer that runs.
struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts it and waits until it is ready.
    async fn start(
        peer: &Peer,
        folder: &Path,
        mode: &str,
        database: &Database,
        (name, value): (&str, u32),
    ) -> Result<Self, Failure> {
        let mut child = Command::new(peer.program)
            .args(peer.arguments)
            .arg(mode)
            .current_dir(folder)
            .env("DATABASE_URL", database.url())
            .env(name, value.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::new(format!("{}: {error}", peer.drain)))?;
        let missing = || Failure::new("a pipe of the peer is missing");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let mut running = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        };
        match running.line().await?.as_str() {
            "ready" => Ok(running),
            other => Err(Failure::new(format!("{}: unexpected line {other}", peer.drain))),
        }
    }

    fn id(&self) -> Result<u32, Failure> {
        self.child.id().ok_or_else(|| Failure::new("the peer has exited"))
    }

    async fn go(&mut self) -> Result<(), Failure> {
        self.input.write_all(b"go\n").await?;
        Ok(self.input.flush().await?)
    }

    async fn answer(&mut self) -> Result<Value, Failure> {
        let line = self.line().await?;
        serde_json::from_str(&line).map_err(|error| Failure::new(format!("{line}: {error}")))
    }

    async fn line(&mut self) -> Result<String, Failure> {
        tokio::time::timeout(TIMEOUT, self.output.next_line())
            .await
            .map_err(|_| Failure::new(format!("the peer did not answer within {TIMEOUT:?}")))??
            .ok_or_else(|| Failure::new("the peer ended without an answer; its error is above"))
    }
}

fn folder(given: Option<&Path>) -> Result<PathBuf, Failure> {
    given.map(Path::to_owned).ok_or_else(|| {
        Failure::new(
            "the peers are not installed (run `scripts/bench peers`, or set --peers to their folder)",
        )
    })
}
