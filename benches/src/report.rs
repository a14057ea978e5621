//! The results, as a table or as JSON.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value};

/// The target of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// A speed, divided by the peer's.
    AtLeast(f64),
    /// A cost, divided by its limit.
    AtMost(f64),
}

impl Target {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least:.2}"),
            Self::AtMost(most) => format!("≤ {most:.2}"),
        }
    }
}

/// One figure and the figure that it is compared with.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurement {
    pub(crate) scenario: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The name of the peer or limit.
    pub(crate) against: &'static str,
    pub(crate) peer_value: f64,
    pub(crate) ratio: f64,
    pub(crate) target: Target,
    pub(crate) met: bool,
    /// Further values of the run.
    pub(crate) details: Map<String, Value>,
}

impl Measurement {
    pub(crate) fn new(
        scenario: impl Into<String>,
        (value, unit): (f64, &'static str),
        (against, peer_value): (&'static str, f64),
        target: Target,
    ) -> Self {
        let ratio = value / peer_value;
        Self {
            scenario: scenario.into(),
            value: rounded(value, 2),
            unit,
            against,
            peer_value: rounded(peer_value, 2),
            ratio: rounded(ratio, 3),
            target,
            met: target.is_met(ratio),
            details: Map::new(),
        }
    }

    /// Two speeds in rows per second: the medians of alternating runs.
    pub(crate) fn speeds(
        scenario: impl Into<String>,
        against: &'static str,
        runs: &Pairs,
        least: f64,
    ) -> Self {
        let value = (median(&runs.ours), "rows/s");
        let peer = (against, median(&runs.peer));
        Self::new(scenario, value, peer, Target::AtLeast(least))
            .detail("runs", round_all(&runs.ours))
            .detail("peer_runs", round_all(&runs.peer))
    }

    #[must_use]
    pub(crate) fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// Speeds of alternating runs, in rows per second.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) peer: Vec<f64>,
    pub(crate) ours: Vec<f64>,
}

/// The median, or zero for an empty list.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => 0.0,
    }
}

fn rounded(value: f64, digits: i32) -> f64 {
    let shift = 10_f64.powi(digits);
    (value * shift).round() / shift
}

fn round_all(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.round()).collect()
}

/// A JSON array with one object per measurement.
pub(crate) fn json(measurements: &[Measurement]) -> String {
    serde_json::to_string_pretty(measurements).expect("numbers and texts have a JSON form")
}

/// A table as text.
pub(crate) fn table(measurements: &[Measurement]) -> String {
    let width = measurements
        .iter()
        .map(|found| found.scenario.chars().count())
        .max();
    let width = width.unwrap_or(0).max(28);
    let mut table = String::new();
    let mut line = |cells: [&str; 6]| {
        let [scenario, value, peer, ratio, target, against] = cells;
        writeln!(
            table,
            "{scenario:<width$}{value:>16}{peer:>16}{ratio:>8}  {target:<15} {against}"
        )
        .expect("writing to a string cannot fail");
    };
    line([
        "scenario",
        "pillarbox",
        "peer",
        "ratio",
        "target",
        "compared with",
    ]);
    for found in measurements {
        let unit = found.unit;
        let verdict = if found.met { "met" } else { "MISSED" };
        line([
            &found.scenario,
            &format!("{} {unit}", figure(found.value)),
            &format!("{} {unit}", figure(found.peer_value)),
            &format!("{:.2}", found.ratio),
            &format!("{} {verdict}", found.target.text()),
            found.against,
        ]);
    }
    table
}

/// Whole numbers with thousands separators; small numbers with two digits.
pub(crate) fn figure(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_ratio_of_speeds_is_that_of_the_medians() {
        let runs = Pairs {
            peer: vec![100.0, 90.0, 400.0],
            ours: vec![61.0, 59.0, 62.0],
        };
        let found = Measurement::speeds("drain", "a peer", &runs, 0.6);
        assert_eq!(
            (found.value, found.peer_value, found.ratio, found.met),
            (61.0, 100.0, 0.61, true)
        );
    }

    #[test]
    fn a_cost_above_its_limit_is_missed() {
        let found = Measurement::new("memory", (101.0, "MB"), ("the limit", 100.0), Target::AtMost(1.0));
        assert!(!found.met);
        assert!(table(&[found]).contains("MISSED"));
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [figure(1_234_567.8), figure(999.6), figure(0.5)],
            ["1,234,568", "1,000", "0.50"]
        );
    }

    #[test]
    fn json_is_an_array_of_objects() {
        let found = Measurement::new(
            "idle",
            (2.0, "queries/s"),
            ("the limit", 3.0),
            Target::AtMost(1.0),
        );
        let parsed: Value = serde_json::from_str(&json(&[found])).unwrap();
        assert_eq!(parsed[0]["scenario"], "idle");
        assert_eq!(parsed[0]["ratio"], 0.667);
    }
}
