//! Turns facts about a table into a layout, with a reason for every column. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pillarbox_store::stores::postgres::adopt::{
    Column, Counts, DeliveryOrder, Layout, Payload, Status, built_in, built_ins,
};
use serde::Serialize;

use super::codes::{self, Meaning};
use super::roles::{self, Kind};

/// How long a row in processing is leased, if the table has only the time of its lock.
const STALE: Duration = Duration::from_secs(600);
/// After how many attempts a row is dead, if the table has no limit.
const MAX_ATTEMPTS: u32 = 5;

/// The media type of text that is not JSON.
const TEXT: &str = "text/plain; charset=utf-8";

/// What the database knows about a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// With its schema.
    pub(crate) table: String,
    pub(crate) columns: Vec<Column>,
    /// Columns that identify a row, the primary key first.
    pub(crate) keys: Vec<String>,
    /// The values that a column has or can have, if there are few.
    pub(crate) codes: BTreeMap<String, Vec<String>>,
    /// Some payloads, if they are text.
    pub(crate) sample: Option<Sample>,
}

/// A few texts of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) column: String,
    /// How many were read.
    pub(crate) rows: usize,
    /// How many of them are not JSON.
    pub(crate) not_json: usize,
}

/// A layout, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// The built-in layout that fits.
    pub(crate) built_in: Option<&'static str>,
    pub(crate) layout: Layout,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) warnings: Vec<String>,
}

/// The role of a column, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    pub(crate) key: String,
    pub(crate) column: String,
    pub(crate) why: String,
}

impl Facts {
    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn codes(&self, column: &str) -> &[String] {
        self.codes.get(column).map_or(&[], Vec::as_slice)
    }
}

/// The layout that fits the table, or every reason why it cannot be an outbox.
pub(crate) fn propose(facts: &Facts) -> Result<Proposal, Vec<String>> {
    let best = built_ins()
        .iter()
        .filter_map(|name| Some((*name, built_in(name)?)))
        .filter(|(_, layout)| fits(layout, facts))
        .max_by_key(|(_, layout)| layout.named().len());
    let mut proposal = match best {
        Some((name, layout)) => known(name, layout, facts),
        None => described(facts)?,
    };
    proposal.set_content_type(facts);
    Ok(proposal)
}

impl Proposal {
    /// Text counts as JSON, unless some rows are not.
    fn set_content_type(&mut self, facts: &Facts) {
        let Some(sample) = facts.sample.as_ref().filter(|sample| sample.not_json > 0) else {
            return;
        };
        if self.layout.payload != Payload::Column(sample.column.clone()) {
            return;
        }
        self.layout.content_type = Some(TEXT.to_owned());
        self.warnings.push(format!(
            "`{}` is sent as {TEXT}, because {} of {} sampled rows are not JSON (set `content_type` if it is another type)",
            sample.column, sample.not_json, sample.rows
        ));
    }
}

/// Does the layout fit the table?
fn fits(layout: &Layout, facts: &Facts) -> bool {
    let named = layout.named();
    let all_there = named.iter().all(|(_, column)| facts.column(column).is_some());
    let is_time = |column: &Option<String>| {
        let column = column.as_deref().and_then(|name| facts.column(name));
        column.is_none_or(|column| roles::kind(column) == Kind::Time)
    };
    let times = [
        &layout.created_at,
        &layout.processed_at,
        &layout.due_at,
        &layout.locked_until,
    ];
    let shows_state = match &layout.status {
        Status::Code { column, pending, .. } => {
            let used = facts.codes(column);
            let known = codes::known(&layout.status);
            let is_number = facts
                .column(column)
                .is_some_and(|it| roles::kind(it) == Kind::Number);
            let numbers = pending.parse::<i64>().is_ok();
            is_number == numbers
                && (used.is_empty() || used.iter().any(|code| known.contains(&code.as_str())))
        }
        // A table with another way to show the state does not delete delivered rows.
        Status::Presence => {
            let sent = roles::others(&facts.columns, &[]);
            roles::status(&facts.columns).is_none() && sent.iter().all(|(key, _)| *key != "processed_at")
        }
        Status::Processed => roles::status(&facts.columns).is_none(),
    };
    all_there && times.into_iter().all(is_time) && shows_state && facts.keys.contains(&layout.id)
}

fn known(name: &'static str, mut layout: Layout, facts: &Facts) -> Proposal {
    let why = format!("as in `{name}`");
    let reasons = layout.named().into_iter().map(|(key, column)| Reason {
        key,
        column: column.to_owned(),
        why: why.clone(),
    });
    let reasons = reasons.collect();
    if facts.table != layout.table && facts.table != format!("public.{}", layout.table) {
        layout.table.clone_from(&facts.table);
    }
    let mut warnings = unknown_codes(&layout, facts, None);
    if name == "debezium" {
        warnings.push(
            "a row that a producer inserts and deletes in one transaction is invisible: Debezium reads the database's log, \
             Pillarbox reads the table (change such a producer to keep the row)"
                .to_owned(),
        );
    }
    Proposal {
        built_in: Some(name),
        layout,
        reasons,
        warnings,
    }
}

/// A table that fits no built-in layout.
fn described(facts: &Facts) -> Result<Proposal, Vec<String>> {
    let mut against = Vec::new();
    if facts.keys.is_empty() {
        against.push(
            "no column alone identifies a row: it needs a primary key of one column, or a unique column that is not null"
                .to_owned(),
        );
    }
    let payload = roles::payload(&facts.columns);
    if payload.is_none() {
        against.push(
            "no column looks like a payload: none is named payload, content, data, body or message, and there is not \
             exactly one JSON column"
                .to_owned(),
        );
    }
    let (state, found) = state(facts, payload.map(|(column, _)| column.name.as_str()));
    if state.is_none() {
        against.push(no_state(facts));
    }
    let (Some(id), Some((payload, why)), Some(state), []) =
        (facts.keys.first(), payload, state, against.as_slice())
    else {
        return Err(against);
    };
    let content = Payload::Column(payload.name.clone());
    let mut draft = Draft::new(Layout::new(&facts.table, id, content), state.guesses);
    draft.because("id", id, "it identifies a row");
    draft.because("payload", &payload.name, why);
    if let Status::Code { column, .. } = &state.status {
        draft.because("status", column, &state.why);
    }
    draft.layout.status = state.status;
    for (key, column) in found {
        draft.put(key, column);
    }
    draft.complete(facts);
    Ok(draft.finish(facts))
}

/// How the table shows the state of a row, and the columns for all other roles.
fn state<'a>(facts: &'a Facts, payload: Option<&str>) -> (Option<Meaning>, Vec<(&'static str, &'a Column)>) {
    let columns = &facts.columns;
    let status = roles::status(columns).and_then(|column| {
        let is_number = roles::kind(column) == Kind::Number;
        codes::meaning(&column.name, is_number, facts.codes(&column.name))
    });
    let status = status.or_else(|| {
        roles::flag(columns).map(|column| Meaning {
            status: codes::boolean(&column.name),
            why: "it is true for delivered rows".to_owned(),
            guesses: Vec::new(),
        })
    });
    let mut taken: Vec<&str> = facts.keys.first().map(String::as_str).into_iter().collect();
    taken.extend(payload);
    if let Some(Status::Code { column, .. }) = status.as_ref().map(|meaning| &meaning.status) {
        taken.push(column);
    }
    let found = roles::others(columns, &taken);
    let is_timed = found.iter().any(|(key, _)| *key == "processed_at");
    let timed = is_timed.then(|| Meaning {
        status: Status::Processed,
        why: String::new(),
        guesses: Vec::new(),
    });
    (status.or(timed), found)
}

fn no_state(facts: &Facts) -> String {
    match roles::status(&facts.columns) {
        Some(column) => format!(
            "no column shows the state of a row: the codes of `{}` are {}, and none of them means pending",
            column.name,
            facts.codes(&column.name).join(", ")
        ),
        None => "no column shows the state of a row: there is no status and no time of delivery (if delivered rows are \
                 deleted, describe the table with `status = { state_by = \"presence\" }`)"
            .to_owned(),
    }
}

/// Warns of codes that the layout does not know.
fn unknown_codes(layout: &Layout, facts: &Facts, warned: Option<&str>) -> Vec<String> {
    let Status::Code { column, .. } = &layout.status else {
        return Vec::new();
    };
    let known = codes::known(&layout.status);
    let unknown: Vec<&str> = (facts.codes(column).iter().map(String::as_str))
        .filter(|code| !known.contains(code) && warned != Some(code))
        .collect();
    if unknown.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "rows whose `{column}` is {} are left alone and counted: the layout does not know this status",
        unknown.join(" or ")
    )]
}

/// A layout in the making.
struct Draft {
    layout: Layout,
    reasons: Vec<Reason>,
    warnings: Vec<String>,
    /// A code that a warning names already.
    left_alone: Option<String>,
}

impl Draft {
    fn new(layout: Layout, warnings: Vec<String>) -> Self {
        Self {
            layout,
            reasons: Vec::new(),
            warnings,
            left_alone: None,
        }
    }

    fn because(&mut self, key: &str, column: &str, why: &str) {
        self.reasons.push(Reason {
            key: key.to_owned(),
            column: column.to_owned(),
            why: why.to_owned(),
        });
    }

    fn put(&mut self, key: &'static str, column: &Column) {
        let layout = &mut self.layout;
        let place = match key {
            "event_type" => &mut layout.event_type,
            "event_version" => &mut layout.event_version,
            "aggregate_type" => &mut layout.aggregate_type,
            "aggregate_id" => &mut layout.aggregate_id,
            "tenant_id" => &mut layout.tenant_id,
            "namespace" => &mut layout.namespace,
            "topic" => &mut layout.topic,
            "dedupe_key" => &mut layout.dedupe_key,
            "ordering_key" => &mut layout.ordering_key,
            "severity" => &mut layout.severity,
            "headers" => &mut layout.headers,
            "created_at" => &mut layout.created_at,
            "updated_at" => &mut layout.updated_at,
            "processed_at" => &mut layout.processed_at,
            "due_at" => &mut layout.due_at,
            "attempts" => &mut layout.attempts,
            "max_retries" => &mut layout.max_retries,
            "error" => &mut layout.error,
            "locked_by" => &mut layout.locked_by,
            "locked_until" => &mut layout.locked_until,
            "locked_at" => &mut layout.locked_at,
            _ => return,
        };
        *place = Some(column.name.clone());
        self.because(key, &column.name, "by its name and type");
    }

    /// Adds what follows from the columns, and guesses the rest.
    fn complete(&mut self, facts: &Facts) {
        let layout = &mut self.layout;
        layout.order.extend(layout.created_at.clone());
        if layout.ordering_key.is_some() || layout.aggregate_id.is_some() {
            layout.delivery_order = Some(DeliveryOrder::Key);
        }
        if let Status::Code {
            processing, column, ..
        } = &mut layout.status
            && let Some(code) = processing.clone()
        {
            if layout.locked_until.is_none() && layout.locked_at.is_none() {
                *processing = None;
                self.warnings.push(format!(
                    "rows whose `{column}` is {code} are left alone: no column has the end of their lease"
                ));
                self.left_alone = Some(code);
            } else {
                // A counter beside a column for claims counts claims, unless its name says retries.
                let plain = layout.attempts.as_deref().unwrap_or_default().to_lowercase();
                if plain.starts_with("attempt") || plain.starts_with("tries") {
                    layout.counts = Counts::Claims;
                }
            }
        }
        if layout.locked_until.is_none() && layout.locked_at.is_some() {
            layout.stale = Some(STALE);
            self.warnings
                .push("a lease of 10 minutes for rows in processing is a guess".to_owned());
        }
        if matches!(layout.status, Status::Processed) && layout.attempts.is_some() {
            layout.max_attempts = Some(MAX_ATTEMPTS);
            self.warnings.push(format!(
                "the table has no limit of attempts: {MAX_ATTEMPTS} is a guess"
            ));
        }
        if layout.namespace.is_some()
            && let Some(column) = layout.max_retries.take()
        {
            self.reasons.retain(|reason| reason.key != "max_retries");
            self.warnings.push(format!(
                "`{column}` is ignored: with a `namespace` column, rows cannot have their own limits of attempts"
            ));
        }
        self.check_zones(facts);
    }

    fn check_zones(&mut self, facts: &Facts) {
        let bare = self.layout.named().into_iter().filter(|(_, name)| {
            facts
                .column(name)
                .is_some_and(|column| column.kind.contains("without time zone"))
        });
        let bare: BTreeSet<&str> = bare.map(|(_, name)| name).collect();
        if !bare.is_empty() {
            let names: Vec<&str> = bare.into_iter().collect();
            self.warnings.push(format!(
                "timestamps without a time zone ({}) are read as UTC (set `time_zone` if it is another zone)",
                names.join(", ")
            ));
        }
    }

    fn finish(mut self, facts: &Facts) -> Proposal {
        let warned = self.left_alone.as_deref();
        self.warnings.extend(unknown_codes(&self.layout, facts, warned));
        Proposal {
            built_in: None,
            layout: self.layout,
            reasons: self.reasons,
            warnings: self.warnings,
        }
    }
}

/// The nearest built-in layout: its name, how many of its columns exist, and how many it has.
pub(crate) fn nearest(facts: &Facts) -> Option<(&'static str, usize, usize)> {
    let shares = built_ins().iter().filter_map(|name| {
        let layout = built_in(name)?;
        let named = layout.named();
        let found = named
            .iter()
            .filter(|(_, column)| facts.column(column).is_some())
            .count();
        Some((*name, found, named.len()))
    });
    shares
        .filter(|(_, found, of)| found * 2 >= *of)
        .max_by_key(|(_, found, of)| found * 1000 / of)
}

#[cfg(test)]
mod tests;
