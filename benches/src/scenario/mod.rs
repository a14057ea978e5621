//! The scenarios, one file each.

mod adopted;
mod compression;
mod drain;
mod enqueue;
mod failures;
mod fanout;
mod idle;
mod inbox;
mod isolation;
mod kafka;
mod latency;
mod memory;
mod order;
mod peers;
mod rabbitmq;
mod size;
mod snapshot;
mod snapshot_keyed;
mod wal_level;
mod workers;

use std::fmt;
use std::path::Path;

use clap::ValueEnum;

use crate::database::Database;
use crate::failure::Failure;
use crate::report::Measurement;
use crate::scale::Scale;

/// A scenario, by the name used on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// A backlog into a null sink, compared with a bare SQL loop
    Drain,
    /// The same if rows are deleted when they are delivered
    DrainUnkept,
    /// A backlog with 10,000 keys, compared with one without keys
    DrainKeyed,
    /// A backlog with one key, compared with one without keys
    DrainHotKey,
    /// A backlog beside a blocked key with 100,000 rows behind its head
    DrainBlockedKey,
    /// A backlog while another session holds an old snapshot
    DrainHeldSnapshot,
    /// Rows with 1,000 keys while another session holds an old snapshot
    HeldSnapshotKeyed,
    /// A backlog on a table with a million delivered rows
    DrainLargeTable,
    /// A backlog in an adopted table, compared with the native table
    DrainAdopted,
    /// A backlog of which 1 % and 10 % of the attempts fail
    Failures,
    /// A backlog into two destinations, compared with one
    Fanout,
    /// A backlog with four workers, compared with one
    FourWorkers,
    /// Fifty destinations of which one hangs
    Isolation,
    /// Enqueue, compared with a bare INSERT
    Enqueue,
    /// A handler with an inbox, compared with the bare handler
    Inbox,
    /// Compression of large payloads: size and time
    Compression,
    /// A backlog into RabbitMQ, compared with a bare relay
    Rabbitmq,
    /// A backlog into Kafka, compared with a bare relay
    Kafka,
    /// Peak memory of the daemon
    Memory,
    /// Queries per second of an idle daemon
    Idle,
    /// From the commit of a plain INSERT to its delivery
    Latency,
    /// Other queues on PostgreSQL; only if it is named, because they must be installed
    Peers,
    /// `wal_level` logical, compared with replica; only if it is named, because it needs a second server
    WalLevel,
}

/// The servers and settings of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) database: &'a Database,
    pub(crate) scale: Scale,
    pub(crate) amqp: Option<&'a str>,
    #[cfg_attr(
        not(feature = "kafka"),
        allow(dead_code, reason = "only the scenario with Kafka needs brokers")
    )]
    pub(crate) kafka: Option<&'a str>,
    pub(crate) daemon: Option<&'a Path>,
    /// The folder of the installed peers.
    pub(crate) peers: Option<&'a Path>,
    /// A server with `wal_level = replica`.
    pub(crate) second_postgres: Option<&'a str>,
    /// Delivered rows in the large table, instead of those of the scale.
    pub(crate) table_rows: Option<u32>,
}

impl Scenario {
    pub(crate) fn all() -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|scenario| !matches!(scenario, Self::Peers | Self::WalLevel))
            .collect()
    }

    pub(crate) async fn measure(self, context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
        match self {
            Self::Drain => drain::kept(context).await,
            Self::DrainUnkept => drain::unkept(context).await,
            Self::DrainKeyed => order::keyed(context).await,
            Self::DrainHotKey => order::hot(context).await,
            Self::DrainBlockedKey => order::blocked(context).await,
            Self::DrainHeldSnapshot => snapshot::measure(context).await,
            Self::HeldSnapshotKeyed => snapshot_keyed::measure(context).await,
            Self::DrainLargeTable => size::measure(context).await,
            Self::DrainAdopted => adopted::measure(context).await,
            Self::Failures => failures::measure(context).await,
            Self::Fanout => fanout::measure(context).await,
            Self::FourWorkers => workers::measure(context).await,
            Self::Isolation => isolation::measure(context).await,
            Self::Enqueue => enqueue::measure(context).await,
            Self::Inbox => inbox::measure(context).await,
            Self::Compression => compression::measure(context).await,
            Self::Rabbitmq => rabbitmq::measure(context).await,
            Self::Kafka => kafka::measure(context).await,
            Self::Memory => memory::measure(context).await,
            Self::Idle => idle::measure(context).await,
            Self::Latency => latency::measure(context).await,
            Self::Peers => peers::measure(context).await,
            Self::WalLevel => wal_level::measure(context).await,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drain => "drain",
            Self::DrainUnkept => "drain-unkept",
            Self::DrainKeyed => "drain-keyed",
            Self::DrainHotKey => "drain-hot-key",
            Self::DrainBlockedKey => "drain-blocked-key",
            Self::DrainHeldSnapshot => "drain-held-snapshot",
            Self::HeldSnapshotKeyed => "held-snapshot-keyed",
            Self::DrainLargeTable => "drain-large-table",
            Self::DrainAdopted => "drain-adopted",
            Self::Failures => "failures",
            Self::Fanout => "fanout",
            Self::FourWorkers => "four-workers",
            Self::Isolation => "isolation",
            Self::Enqueue => "enqueue",
            Self::Inbox => "inbox",
            Self::Compression => "compression",
            Self::Rabbitmq => "rabbitmq",
            Self::Kafka => "kafka",
            Self::Memory => "memory",
            Self::Idle => "idle",
            Self::Latency => "latency",
            Self::Peers => "peers",
            Self::WalLevel => "wal-level",
        })
    }
}

/// Prints the result of one run.
fn progress(who: &str, rate: f64) {
    eprintln!("  {who:<10} {rate:>9.0} rows/s");
}

fn rate(rows: u32, took: std::time::Duration) -> f64 {
    f64::from(rows) / took.as_secs_f64()
}
