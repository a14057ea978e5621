//! The same backlog and the same idle latency for well-known queues on PostgreSQL, the bare SQL loop and Pillarbox, in turn.
//!
//! Each peer is a program in `benches/peers`, configured for throughput as its own documentation recommends. It reports that
//! configuration, which is printed and stands in the JSON. `scripts/bench` installs the peers.
//!
//! Their handlers do nothing, like the null sink. What they promise differs: graphile-worker, for example, deletes what is done.
//! docs/benchmarks.md says so beside the figures.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pillarbox_dispatch::Settings;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{Context, progress, rate};
use crate::cost::{Cost, Meter};
use crate::database::Database;
use crate::failure::Failure;
use crate::latency::{self, Arrivals, Percentiles};
use crate::ours::{CONCURRENCY, Ours, Stopwatch};
use crate::plain::Plain;
use crate::report::{Measurement, Pairs, Target};

/// A peer that does not answer for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Events per second at which the latency is measured: a system is idle before each of them.
const RATES: [u32; 2] = [1, 20];
/// After this time the workers have started, as for the peers (peer.mjs).
const WARM_UP: Duration = Duration::from_secs(1);

struct Peer {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Is it so slow that a small part of the rows takes long enough?
    is_slow: bool,
}

const PEERS: [Peer; 4] = [
    Peer {
        name: "graphile-worker",
        program: "node",
        arguments: &["graphile-worker.mjs"],
        is_slow: false,
    },
    Peer {
        name: "pg-boss",
        program: "node",
        arguments: &["pg-boss.mjs"],
        is_slow: false,
    },
    Peer {
        name: "pg-transactional-outbox",
        program: "node",
        arguments: &["pg-transactional-outbox.mjs"],
        is_slow: true,
    },
    Peer {
        name: "River",
        program: "./river/river",
        arguments: &[],
        is_slow: false,
    },
];

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let folder = folder(context.peers)?;
    let mut found = Box::pin(drain(context, &folder)).await?;
    for rate in RATES {
        found.extend(idle(context, &folder, rate).await?);
    }
    Ok(found)
}

/// The drains of one program.
#[derive(Default)]
struct Drains {
    speeds: Vec<f64>,
    costs: Vec<Cost>,
    rows: u32,
    configuration: Value,
}

impl Drains {
    fn add(&mut self, name: &str, rows: u32, (took, cost): (Duration, Cost)) {
        self.speeds.push(rate(rows, took));
        self.costs.push(cost);
        self.rows = rows;
        progress(name, rate(rows, took));
    }
}

async fn drain(context: &Context<'_>, folder: &Path) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let ours = Ours::new(context.database).await?;
    let mut plain = Plain::new(context.database).await?;
    let (mut own, mut bare) = (Drains::default(), Drains::default());
    let mut peers: [Drains; PEERS.len()] = Default::default();
    bare.configuration = json!({ "connections": 1, "rows_per_round_trip": 1000 });
    for _ in 0..context.scale.pairs() {
        plain.backlog().refill(rows, "drain").await?;
        let meter = Meter::start(context.database).await?;
        let began = Instant::now();
        plain.drain().await?;
        let took = began.elapsed();
        bare.add(
            "bare SQL",
            rows,
            (took, meter.stop(rows, context.database).await?),
        );

        ours.backlog().refill(rows, "drain").await?;
        let meter = Meter::start(context.database).await?;
        let took = ours.drain_to_null(rows).await?;
        own.add(
            "pillarbox",
            rows,
            (took, meter.stop(rows, context.database).await?),
        );
        ours.verify(rows).await?;

        for (peer, drains) in PEERS.iter().zip(&mut peers) {
            let rows = if peer.is_slow { rows / 20 } else { rows };
            let (configuration, run) = drain_peer(context, peer, folder, rows).await?;
            drains.add(peer.name, rows, run);
            drains.configuration = configuration;
        }
    }
    let settings = Settings::default();
    own.configuration = json!({
        "batch": settings.batch, "max_in_flight": settings.max_in_flight, "concurrency": CONCURRENCY,
    });
    let names = PEERS.iter().map(|peer| peer.name);
    let others = names.zip(peers).chain([("a bare SQL loop", bare)]);
    Ok(others.map(|(name, drains)| compare(name, drains, &own)).collect())
}

fn compare(name: &'static str, peer: Drains, ours: &Drains) -> Measurement {
    let pairs = Pairs {
        peer: peer.speeds,
        ours: ours.speeds.clone(),
    };
    eprintln!("  {name}: {}", peer.configuration);
    let mut found = Measurement::speeds(format!("drain, {name}"), name, &pairs, target(name))
        .detail("peer", name)
        .detail("rows", ours.rows)
        .detail("peer_rows", peer.rows)
        .detail("configuration", ours.configuration.clone())
        .detail("peer_configuration", peer.configuration)
        .detail("peer_cost", Value::Object(Cost::details(&peer.costs)));
    found.details.extend(Cost::details(&ours.costs));
    found
}

/// As fast as any queue; the bare loop does less, and has the target of `drain`.
fn target(name: &str) -> f64 {
    if PEERS.iter().any(|peer| peer.name == name) {
        1.0
    } else {
        super::drain::LEAST
    }
}

async fn drain_peer(
    context: &Context<'_>,
    peer: &Peer,
    folder: &Path,
    rows: u32,
) -> Result<(Value, (Duration, Cost)), Failure> {
    let database = context.database.sibling().await?;
    let run = async {
        let mut running =
            Program::start(peer, folder, "drain", &database, &[("ROWS", rows.to_string())]).await?;
        let meter = Meter::of(running.id()?, &database).await?;
        running.go().await?;
        let done = running.answer().await?;
        let cost = meter.stop(rows, &database).await?;
        let seconds = done["seconds"]
            .as_f64()
            .filter(|_| done["handled"].as_u64() == Some(rows.into()))
            .ok_or_else(|| Failure::new(format!("{}: unexpected answer {done}", peer.name)))?;
        Ok((running.configuration, (Duration::from_secs_f64(seconds), cost)))
    };
    let run = run.await;
    database.remove().await?;
    run
}

/// The latency of each peer and of Pillarbox, at this rate.
async fn idle(context: &Context<'_>, folder: &Path, rate: u32) -> Result<Vec<Measurement>, Failure> {
    let show = |name: &str, times: &Percentiles| {
        let [p50, p99] = [500, 990].map(|permille| times.at(permille));
        eprintln!("  {rate:>3}/s  {name:<24} p50 {p50:>7.1} ms  p99 {p99:>7.1} ms");
    };
    let ours = idle_ours(context, rate).await?;
    show("pillarbox", &ours);
    let mut found = Vec::new();
    for peer in &PEERS {
        let theirs = idle_peer(context, peer, folder, rate).await?;
        show(peer.name, &theirs);
        let measured = Measurement::new(
            format!("latency-{rate}, {}", peer.name),
            (ours.at(500), "ms"),
            (peer.name, theirs.at(500)),
            Target::AtMost(1.0),
        );
        let measured = measured
            .detail("peer", peer.name)
            .detail("rate", rate)
            .detail("samples", ours.samples())
            .detail("p50_ms", ours.at(500))
            .detail("p99_ms", ours.at(990))
            .detail("peer_p50_ms", theirs.at(500))
            .detail("peer_p99_ms", theirs.at(990));
        found.push(measured);
    }
    Ok(found)
}

async fn idle_peer(
    context: &Context<'_>,
    peer: &Peer,
    folder: &Path,
    rate: u32,
) -> Result<Percentiles, Failure> {
    let database = context.database.sibling().await?;
    let run = async {
        let seconds = context.scale.latency_time().as_secs().to_string();
        let settings = [("RATE", rate.to_string()), ("SECONDS", seconds)];
        let mut running = Program::start(peer, folder, "latency", &database, &settings).await?;
        running.go().await?;
        running.answer().await
    };
    let run = run.await;
    database.remove().await?;
    let times: Vec<f64> = run?["milliseconds"]
        .as_array()
        .map(|times| times.iter().filter_map(Value::as_f64).collect())
        .filter(|times: &Vec<f64>| !times.is_empty())
        .ok_or_else(|| Failure::new(format!("{}: it measured no latency", peer.name)))?;
    Ok(Percentiles::new(times))
}

/// The same for Pillarbox, in this process as the peers are in theirs.
async fn idle_ours(context: &Context<'_>, rate: u32) -> Result<Percentiles, Failure> {
    let ours = Ours::new(context.database).await?;
    ours.backlog().clear().await?;
    let mut connection = context.database.connection().await?;
    let arrivals = Arrivals::default();
    let running = ours.start(Arc::new(Stopwatch(arrivals.clone())), 16).await?;
    tokio::time::sleep(WARM_UP).await;
    let each = Duration::from_secs(1) / rate;
    let seconds = u32::try_from(context.scale.latency_time().as_secs()).unwrap_or(1);
    let began = tokio::time::Instant::now();
    let mut committed = HashMap::new();
    for number in 0..rate * seconds {
        tokio::time::sleep_until(began + each * number + each.mul_f64(fastrand::f64())).await;
        let (id, at) = latency::insert(&mut connection).await?;
        committed.insert(id, at);
    }
    let times = arrivals.since(&committed).await;
    running.stop().await?;
    times
}

/// A peer that runs.
struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Its version and settings.
    configuration: Value,
}

impl Program {
    /// Starts it and waits until it is ready.
    async fn start(
        peer: &Peer,
        folder: &Path,
        mode: &str,
        database: &Database,
        variables: &[(&str, String)],
    ) -> Result<Self, Failure> {
        let mut child = Command::new(peer.program)
            .args(peer.arguments)
            .arg(mode)
            .current_dir(folder)
            .env("DATABASE_URL", database.plain_url())
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::new(format!("{}: {error}", peer.name)))?;
        let missing = || Failure::new("a pipe of the peer is missing");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let mut running = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
            configuration: Value::Null,
        };
        let ready = running.answer().await?;
        if ready["ready"] != true {
            return Err(Failure::new(format!("{}: unexpected line {ready}", peer.name)));
        }
        running.configuration = json!({ "version": ready["version"], "settings": ready["configuration"] });
        Ok(running)
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
