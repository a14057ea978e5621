//! What a run costs beside its time: processor time of the client and of PostgreSQL, write-ahead log, statements.
//!
//! Processor time comes from `/proc`, so the server must run on this machine. If it does not, its share is unknown and is left
//! out. Everything that the server does meanwhile counts: run nothing else on it.

use serde_json::{Map, Value, json};

use crate::database::Database;
use crate::failure::Failure;

/// Clock ticks per second of `/proc/PID/stat`. It is 100 on every Linux that Rust supports.
const TICKS: f64 = 100.0;

/// Reads the costs of the time between its start and its end.
#[derive(Debug)]
pub(crate) struct Meter {
    client: u32,
    postmaster: Option<u32>,
    before: Reading,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    client: f64,
    database: Option<f64>,
    wal: f64,
    statements: Option<f64>,
    transactions: f64,
}

/// The costs of one event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Processor time of the client, in microseconds.
    pub(crate) client: f64,
    /// That of all processes of the server.
    pub(crate) database: Option<f64>,
    /// Bytes of write-ahead log.
    pub(crate) wal: f64,
    /// Statements per thousand events.
    pub(crate) statements: Option<f64>,
    /// Transactions per thousand events. PostgreSQL counts those of a connection up to a second late.
    pub(crate) transactions: f64,
}

impl Meter {
    /// Starts to measure this program and the server.
    pub(crate) async fn start(database: &Database) -> Result<Self, Failure> {
        Self::of(std::process::id(), database).await
    }

    /// Starts to measure another client and the server.
    pub(crate) async fn of(client: u32, database: &Database) -> Result<Self, Failure> {
        let backend: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(database.outside())
            .await?;
        let postmaster = u32::try_from(backend)
            .ok()
            .and_then(stat)
            .filter(|stat| stat.name == "postgres")
            .map(|stat| stat.parent);
        let before = read(client, postmaster, database).await?;
        Ok(Self {
            client,
            postmaster,
            before,
        })
    }

    /// What it cost, per event.
    pub(crate) async fn stop(&self, events: u32, database: &Database) -> Result<Cost, Failure> {
        let after = read(self.client, self.postmaster, database).await?;
        let per_event = |before: f64, after: f64| (after - before) / f64::from(events.max(1));
        let before = &self.before;
        Ok(Cost {
            client: per_event(before.client, after.client),
            database: before.database.zip(after.database).map(|(b, a)| per_event(b, a)),
            wal: per_event(before.wal, after.wal),
            statements: before
                .statements
                .zip(after.statements)
                .map(|(b, a)| per_event(b, a) * 1e3),
            transactions: per_event(before.transactions, after.transactions) * 1e3,
        })
    }
}

impl Cost {
    /// Processor time of the client and of the server together, in microseconds.
    pub(crate) fn processor(&self) -> Option<f64> {
        self.database.map(|database| self.client + database)
    }

    /// The medians of several runs, as details of a measurement.
    pub(crate) fn details(costs: &[Self]) -> Map<String, Value> {
        let median = |values: Vec<f64>| (!values.is_empty()).then(|| crate::report::median(&values));
        let pick = |part: fn(&Self) -> Option<f64>| median(costs.iter().filter_map(part).collect());
        let mut details = Map::new();
        let mut add = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                details.insert(name.to_owned(), json!((value * 10.0).round() / 10.0));
            }
        };
        add("client_cpu_us", pick(|cost| Some(cost.client)));
        add("database_cpu_us", pick(|cost| cost.database));
        add("wal_bytes", pick(|cost| Some(cost.wal)));
        add("statements_per_1000", pick(|cost| cost.statements));
        details
    }
}

async fn read(client: u32, postmaster: Option<u32>, database: &Database) -> Result<Reading, Failure> {
    let wal: f64 = sqlx::query_scalar("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8")
        .fetch_one(database.outside())
        .await?;
    let statements = if database.records_statements().await? {
        let calls = "select coalesce(sum(calls), 0)::float8 from pg_stat_statements s \
                     join pg_database d on d.oid = s.dbid where d.datname = $1";
        let calls: f64 = sqlx::query_scalar(calls)
            .bind(database.name())
            .fetch_one(database.outside())
            .await?;
        Some(calls)
    } else {
        None
    };
    let transactions =
        "select (xact_commit + xact_rollback)::float8 from pg_stat_database where datname = $1";
    let transactions: f64 = sqlx::query_scalar(transactions)
        .bind(database.name())
        .fetch_one(database.outside())
        .await?;
    Ok(Reading {
        client: stat(client).map_or(0.0, |stat| stat.own),
        database: postmaster.and_then(server),
        wal,
        statements,
        transactions,
    })
}

/// The processor time of all processes of a server, those that have ended included.
pub(crate) fn server(postmaster: u32) -> Option<f64> {
    let main = stat(postmaster)?;
    let children: f64 = std::fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .filter(|stat| stat.parent == postmaster)
        .map(|stat| stat.own)
        .sum();
    Some(main.own + main.ended_children + children)
}

#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    parent: u32,
    /// Processor time in microseconds.
    own: f64,
    /// That of its children that have ended.
    ended_children: f64,
}

fn stat(process: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`. The name is in parentheses and may contain some itself.
fn parse(text: &str) -> Option<Stat> {
    let (head, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number)?.parse::<f64>().ok();
    let microseconds = |ticks: f64| ticks / TICKS * 1e6;
    Some(Stat {
        name: head.split_once('(')?.1.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        own: microseconds(ticks(11)? + ticks(12)?),
        ended_children: microseconds(ticks(13)? + ticks(14)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_process_are_read_behind_its_name() {
        let line = "42 (a (b) c) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 20 5 20 0 1 0 100 200 300";
        let expected = Stat {
            name: "a (b) c".to_owned(),
            parent: 7,
            own: 2e6,
            ended_children: 25e4,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("42 (cut"), None);
    }

    #[test]
    fn this_process_has_used_processor_time() {
        let before = stat(std::process::id()).expect("this process is in /proc");
        let busy = std::time::Instant::now();
        while busy.elapsed().as_millis() < 60 {
            std::hint::spin_loop();
        }
        let after = stat(std::process::id()).expect("this process is in /proc");
        assert!(after.own > before.own);
    }

    #[test]
    fn the_costs_of_several_runs_are_medians() {
        let cost = |client| Cost {
            client,
            database: None,
            wal: 100.0,
            statements: None,
            transactions: 0.0,
        };
        let details = Cost::details(&[cost(1.0), cost(9.0), cost(2.0)]);
        assert_eq!(details["client_cpu_us"], 2.0);
        assert!(!details.contains_key("database_cpu_us"), "{details:?}");
        assert_eq!(cost(1.0).processor(), None);
    }
}
