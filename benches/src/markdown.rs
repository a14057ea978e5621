//! The results as the tables of docs/benchmarks.md, ready to paste: results, latency, peers.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::report::{Measurement, Target, figure};

/// The tables for which there are measurements, each with its heading.
pub(crate) fn tables(measurements: &[Measurement]) -> String {
    let (peers, own): (Vec<_>, Vec<_>) = measurements
        .iter()
        .partition(|found| found.details.contains_key("peer"));
    let (latencies, results): (Vec<_>, Vec<_>) = own
        .into_iter()
        .partition(|found| found.details.contains_key("p999_ms"));
    let tables = [
        results_table(&results),
        latency_table(&latencies),
        peers_table(&peers),
    ];
    let tables: Vec<String> = tables.into_iter().flatten().collect();
    tables.join("\n")
}

fn results_table(found: &[&Measurement]) -> Option<String> {
    let rows = found.iter().map(|found| {
        let unit = found.unit;
        vec![
            format!("`{}`", found.scenario),
            format!("{} {unit}", figure(found.value)),
            figure(found.peer_value),
            format!("{:.2}", found.ratio),
            goal(found.target, found.met),
        ]
    });
    table(
        "Results",
        &["scenario", "Pillarbox", "compared with", "ratio", "target"],
        rows,
    )
}

fn goal(target: Target, met: bool) -> String {
    format!("{}{}", target.text(), if met { "" } else { ", missed" })
}

fn latency_table(found: &[&Measurement]) -> Option<String> {
    let rows = found.iter().map(|found| {
        let rate = found
            .scenario
            .rsplit('-')
            .next()
            .and_then(|rate| rate.parse().ok());
        vec![
            rate.map_or_else(|| found.scenario.clone(), whole),
            milliseconds(found.details.get("p50_ms")),
            format!("{:.1} ms", found.value),
            milliseconds(found.details.get("p999_ms")),
            processor(&found.details),
        ]
    });
    table(
        "Latency",
        &["events/s", "p50", "p99", "p99.9", "processor time per event"],
        rows,
    )
}

/// With thousands separators and without digits behind the point.
fn whole(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.0}")
    } else {
        figure(value)
    }
}

fn milliseconds(value: Option<&Value>) -> String {
    or_dash(
        value
            .and_then(Value::as_f64)
            .map(|value| format!("{value:.1} ms")),
    )
}

/// The processor time of client and server together; unknown if the server runs on another machine.
fn processor(details: &Map<String, Value>) -> String {
    let part = |name: &str| details.get(name).and_then(Value::as_f64);
    let both = part("client_cpu_us").zip(part("database_cpu_us"));
    or_dash(both.map(|(client, database)| format!("{} µs", whole(client + database))))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// One line per program: Pillarbox, then its peers in the order of their drains. Then what they were configured with.
fn peers_table(found: &[&Measurement]) -> Option<String> {
    const COLUMNS: [&str; 6] = [
        "",
        "events/s",
        "µs per event, client + server",
        "WAL bytes per event",
        "p50 / p99 at 1/s",
        "p50 / p99 at 20/s",
    ];
    let mut lines: Vec<(&str, [Option<String>; 5])> = Vec::new();
    let mut settings = String::new();
    for found in found {
        let detail = |name: &str| found.details.get(name);
        let peer = detail("peer").and_then(Value::as_str).unwrap_or_default();
        for (name, prefix, speed) in [("Pillarbox", "", found.value), (peer, "peer_", found.peer_value)] {
            if !lines.iter().any(|(known, _)| *known == name) {
                lines.push((name, Default::default()));
            }
            let Some((_, cells)) = lines.iter_mut().find(|(known, _)| *known == name) else {
                continue;
            };
            if let Some(rate) = detail("rate").and_then(Value::as_u64) {
                let [p50, p99] =
                    ["p50_ms", "p99_ms"].map(|part| milliseconds(detail(&format!("{prefix}{part}"))));
                cells[if rate == 1 { 3 } else { 4 }] = Some(format!("{p50} / {p99}"));
                continue;
            }
            let costs = if prefix.is_empty() {
                Some(&found.details)
            } else {
                detail("peer_cost").and_then(Value::as_object)
            };
            let cost = |part: &str| costs.and_then(|costs| costs.get(part)).and_then(Value::as_f64);
            let [client, database] =
                ["client_cpu_us", "database_cpu_us"].map(|part| or_dash(cost(part).map(whole)));
            cells[0] = Some(whole(speed));
            cells[1] = Some(format!("{client} + {database}"));
            cells[2] = cost("wal_bytes").map(whole);
        }
        if let Some(configuration) = detail("peer_configuration") {
            writeln!(settings, "- {peer}: `{configuration}`").expect("writing to a string cannot fail");
        }
    }
    let rows = lines.into_iter().map(|(name, cells)| {
        let mut row = vec![name.to_owned()];
        row.extend(cells.map(or_dash));
        row
    });
    let mut text = table("Peers", &COLUMNS, rows)?;
    if !settings.is_empty() {
        write!(text, "\n{settings}").expect("writing to a string cannot fail");
    }
    Some(text)
}

/// A table with its heading, or none without rows.
fn table(heading: &str, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Option<String> {
    let rows: Vec<String> = rows.map(|row| format!("| {} |\n", row.join(" | "))).collect();
    (!rows.is_empty()).then(|| {
        let rule = "---|".repeat(columns.len());
        format!(
            "## {heading}\n\n| {} |\n|{rule}\n{}",
            columns.join(" | "),
            rows.concat()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_say_which_target_they_miss() {
        let drain = Measurement::new(
            "drain",
            (42_365.0, "rows/s"),
            ("it", 43_522.0),
            Target::AtLeast(0.9),
        );
        let idle = Measurement::new("idle", (2.5, "queries/s"), ("it", 2.0), Target::AtMost(1.0));
        let expected = "\
## Results

| scenario | Pillarbox | compared with | ratio | target |
|---|---|---|---|---|
| `drain` | 42,365 rows/s | 43,522 | 0.97 | ≥ 0.90 |
| `idle` | 2.50 queries/s | 2.00 | 1.25 | ≤ 1.00, missed |
";
        assert_eq!(tables(&[drain, idle]), expected);
    }

    #[test]
    fn latencies_have_a_table_of_their_own() {
        let found = Measurement::new("latency-1000", (19.84, "ms"), ("it", 50.0), Target::AtMost(1.0))
            .detail("p50_ms", 8.8)
            .detail("p999_ms", 24.1)
            .detail("client_cpu_us", 100.4)
            .detail("database_cpu_us", 200.2);
        let expected = "\
## Latency

| events/s | p50 | p99 | p99.9 | processor time per event |
|---|---|---|---|---|
| 1,000 | 8.8 ms | 19.8 ms | 24.1 ms | 301 µs |
";
        assert_eq!(tables(&[found]), expected);
    }

    #[test]
    fn a_peer_has_one_line_with_its_drain_and_its_latencies() {
        let drain = Measurement::new(
            "drain, River",
            (40_000.0, "rows/s"),
            ("River", 20_000.0),
            Target::AtLeast(1.0),
        )
        .detail("peer", "River")
        .detail("client_cpu_us", 5.0)
        .detail("database_cpu_us", 25.0)
        .detail("wal_bytes", 1930.0)
        .detail("peer_cost", json!({ "client_cpu_us": 30.0, "wal_bytes": 3000.0 }))
        .detail("peer_configuration", json!({ "version": "1.0" }));
        let latency = Measurement::new(
            "latency-20, River",
            (5.0, "ms"),
            ("River", 3.0),
            Target::AtMost(1.0),
        )
        .detail("peer", "River")
        .detail("rate", 20)
        .detail("p50_ms", 5.0)
        .detail("p99_ms", 9.0)
        .detail("peer_p50_ms", 3.0)
        .detail("peer_p99_ms", 8.0);
        let expected = "\
## Peers

|  | events/s | µs per event, client + server | WAL bytes per event | p50 / p99 at 1/s | p50 / p99 at 20/s |
|---|---|---|---|---|---|
| Pillarbox | 40,000 | 5 + 25 | 1,930 | – | 5.0 ms / 9.0 ms |
| River | 20,000 | 30 + – | 3,000 | – | 3.0 ms / 8.0 ms |

- River: `{\"version\":\"1.0\"}`
";
        assert_eq!(tables(&[drain, latency]), expected);
    }

    #[test]
    fn without_measurements_there_is_no_table() {
        assert_eq!(tables(&[]), "");
    }
}
