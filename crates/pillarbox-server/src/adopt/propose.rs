//! From what a table is made of to a layout, with a reason for every column. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pillarbox_store::stores::postgres::adopt::{
    Column, Counts, Layout, Payload, Status, built_in, built_ins,
};
use serde::Serialize;

use super::codes::{self, Meaning};
use super::roles::{self, Kind};

/// How long a row in processing is somebody's if only the beginning is noted, unless the table is known.
const STALE: Duration = Duration::from_secs(600);
/// After how many failures a row is given up on if nothing says so.
const MAX_ATTEMPTS: u32 = 5;

/// What text is that is nothing else.
const TEXT: &str = "text/plain; charset=utf-8";

/// What the database says about a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// With its schema.
    pub(crate) table: String,
    pub(crate) columns: Vec<Column>,
    /// Columns that identify a row alone, the primary key first.
    pub(crate) keys: Vec<String>,
    /// The values that a column can have or has, where there are few.
    pub(crate) codes: BTreeMap<String, Vec<String>>,
    /// What was seen of the payload, where it is text.
    pub(crate) sample: Option<Sample>,
}

/// A few texts of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) column: String,
    /// How many were looked at.
    pub(crate) rows: usize,
    /// How many of them are no JSON.
    pub(crate) not_json: usize,
}

/// A layout, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// The built-in one that fits as it is.
    pub(crate) built_in: Option<&'static str>,
    pub(crate) layout: Layout,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) warnings: Vec<String>,
}

/// Which column was taken for what.
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

/// What fits the table, or everything that speaks against it being an outbox.
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
    proposal.call_payload(facts);
    Ok(proposal)
}

impl Proposal {
    /// Text is taken for JSON, unless rows say otherwise.
    fn call_payload(&mut self, facts: &Facts) {
        let Some(sample) = facts.sample.as_ref().filter(|sample| sample.not_json > 0) else {
            return;
        };
        if self.layout.payload != Payload::Column(sample.column.clone()) {
            return;
        }
        self.layout.content_type = Some(TEXT.to_owned());
        self.warnings.push(format!(
            "`{}` is sent as {TEXT}: {} of {} rows that were looked at are no JSON; say another `content_type` if they are \
             something else",
            sample.column, sample.not_json, sample.rows
        ));
    }
}

/// Is the table made as the layout says?
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
    let tells = match &layout.status {
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
        // Where the table has another way to tell, rows are not deleted when they were sent.
        Status::Presence => {
            let sent = roles::others(&facts.columns, &[]);
            roles::status(&facts.columns).is_none() && sent.iter().all(|(key, _)| *key != "processed_at")
        }
        Status::Processed => roles::status(&facts.columns).is_none(),
    };
    all_there && times.into_iter().all(is_time) && tells && facts.keys.contains(&layout.id)
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
    let mut warnings = strangers(&layout, facts, None);
    if name == "debezium" {
        warnings.push(
            "a producer that inserts a row and deletes it in the same transaction is invisible here: Debezium reads it \
             from the log of the database, Pillarbox reads the table; let such a producer leave the row"
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

/// A table that nobody described before.
fn described(facts: &Facts) -> Result<Proposal, Vec<String>> {
    let mut against = Vec::new();
    if facts.keys.is_empty() {
        against.push(
            "no column alone identifies a row: there is neither a primary key of one column nor a unique column that is \
             never null"
                .to_owned(),
        );
    }
    let payload = roles::payload(&facts.columns);
    if payload.is_none() {
        against.push(
            "no column looks like a payload: none is called payload, content, data, body or message, and not exactly one \
             holds JSON"
                .to_owned(),
        );
    }
    let (tells, found) = tells(facts, payload.map(|(column, _)| column.name.as_str()));
    if tells.is_none() {
        against.push(nothing_tells(facts));
    }
    let (Some(id), Some((payload, why)), Some(tells), []) =
        (facts.keys.first(), payload, tells, against.as_slice())
    else {
        return Err(against);
    };
    let content = Payload::Column(payload.name.clone());
    let mut draft = Draft::new(Layout::new(&facts.table, id, content), tells.guesses);
    draft.because("id", id, "it identifies a row");
    draft.because("payload", &payload.name, why);
    if let Status::Code { column, .. } = &tells.status {
        draft.because("status", column, &tells.why);
    }
    draft.layout.status = tells.status;
    for (key, column) in found {
        draft.put(key, column);
    }
    draft.complete(facts);
    Ok(draft.finish(facts))
}

/// How the table tells what became of a row, and the columns for everything else.
fn tells<'a>(facts: &'a Facts, payload: Option<&str>) -> (Option<Meaning>, Vec<(&'static str, &'a Column)>) {
    let columns = &facts.columns;
    let status = roles::status(columns).and_then(|column| {
        let is_number = roles::kind(column) == Kind::Number;
        codes::meaning(&column.name, is_number, facts.codes(&column.name))
    });
    let status = status.or_else(|| {
        roles::flag(columns).map(|column| Meaning {
            status: codes::truth(&column.name),
            why: "true for what was sent".to_owned(),
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

fn nothing_tells(facts: &Facts) -> String {
    match roles::status(&facts.columns) {
        Some(column) => format!(
            "nothing tells what is done: the codes of `{}` are {}, and none of them means that a row waits",
            column.name,
            facts.codes(&column.name).join(", ")
        ),
        None => "nothing tells what is done: there is no status and no time of processing; if rows are deleted when they \
                 were sent, write a layout with `status = { told_by = \"presence\" }` by hand"
            .to_owned(),
    }
}

/// Codes that are in use and that the layout does not know.
fn strangers(layout: &Layout, facts: &Facts, said: Option<&str>) -> Vec<String> {
    let Status::Code { column, .. } = &layout.status else {
        return Vec::new();
    };
    let known = codes::known(&layout.status);
    let strange: Vec<&str> = (facts.codes(column).iter().map(String::as_str))
        .filter(|code| !known.contains(code) && said != Some(code))
        .collect();
    if strange.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "rows whose `{column}` is {} are left alone and counted: the layout does not know it",
        strange.join(" or ")
    )]
}

/// A layout in the making.
struct Draft {
    layout: Layout,
    reasons: Vec<Reason>,
    warnings: Vec<String>,
    /// A code about which a warning has been said.
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

    /// What follows from the columns, and what has to be guessed.
    fn complete(&mut self, facts: &Facts) {
        let layout = &mut self.layout;
        layout.order.extend(layout.created_at.clone());
        if let Status::Code {
            processing, column, ..
        } = &mut layout.status
            && let Some(code) = processing.clone()
        {
            if layout.locked_until.is_none() && layout.locked_at.is_none() {
                *processing = None;
                self.warnings.push(format!(
                    "rows whose `{column}` is {code} are left alone: no column says until when they are somebody's"
                ));
                self.left_alone = Some(code);
            } else {
                // A counter beside a claim that is written down counts claims, unless it speaks of retries.
                let plain = layout.attempts.as_deref().unwrap_or_default().to_lowercase();
                if plain.starts_with("attempt") || plain.starts_with("tries") {
                    layout.counts = Counts::Claims;
                }
            }
        }
        if layout.locked_until.is_none() && layout.locked_at.is_some() {
            layout.stale = Some(STALE);
            self.warnings
                .push("that a row in processing is anybody's after 10 minutes is a guess".to_owned());
        }
        if matches!(layout.status, Status::Processed) && layout.attempts.is_some() {
            layout.max_attempts = Some(MAX_ATTEMPTS);
            self.warnings.push(format!(
                "the table does not say after how many failures a row is given up on: {MAX_ATTEMPTS} is a guess"
            ));
        }
        if layout.namespace.is_some()
            && let Some(column) = layout.max_retries.take()
        {
            self.reasons.retain(|reason| reason.key != "max_retries");
            self.warnings.push(format!(
                "`{column}` is not heeded: rows with limits of their own are known by the table's name, and here `namespace` \
                 has another"
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
                "timestamps without a time zone ({}) are taken for UTC; say `time_zone` if they are another's",
                names.join(", ")
            ));
        }
    }

    fn finish(mut self, facts: &Facts) -> Proposal {
        let said = self.left_alone.as_deref();
        self.warnings.extend(strangers(&self.layout, facts, said));
        Proposal {
            built_in: None,
            layout: self.layout,
            reasons: self.reasons,
            warnings: self.warnings,
        }
    }
}

/// The built-in layout that is nearest, with how many of its columns are there, and of how many.
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
