//! `pillarbox enqueue`
//!
//! For experiments and scripts. An application enqueues in its own transaction instead.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read};

use clap::Args;
use pillarbox::internal::validate;
use pillarbox::{Enqueued, Event, Limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use uuid::Uuid;

use super::database_args::{self, DatabaseArgs};
use super::time_arg;
use crate::config;
use crate::database::Database;
use crate::failure::Failure;
use crate::logs;
use crate::output;

/// The number of NDJSON lines in one transaction.
const BATCH: usize = 1000;

const EXAMPLES: &str = "\
Examples:
  pillarbox enqueue shop orders '{\"order\": 42}' --type OrderCreated --key order-42
  pillarbox enqueue shop orders @order.json --dedupe-key order-42/created
  echo '{\"order\": 42}' | pillarbox enqueue shop orders -
  pillarbox enqueue shop images @cat.png --content-type image/png
  pillarbox enqueue shop reminders '{\"order\": 42}' --at +10m
  pillarbox enqueue --ndjson < events.ndjson

A line of NDJSON has the keys namespace, topic and payload. Optional keys are id, event_type,
event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key, ordering_key, severity,
headers, destination and deliver_at. Namespace and topic on the command line are the defaults.
Every 1,000 lines are one transaction.

It prints the id and `new`, or `duplicate` if an event with that dedupe key exists.";

/// Enqueues events.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Enqueue {
    /// Set the namespace, which says who publishes
    #[arg(required_unless_present = "ndjson")]
    namespace: Option<String>,

    /// Set the topic, which says what is published
    #[arg(required_unless_present = "ndjson")]
    topic: Option<String>,

    /// Set the payload: JSON, `@file`, or `-` for standard input
    #[arg(required_unless_present = "ndjson", conflicts_with = "ndjson")]
    payload: Option<String>,

    /// Read many events from standard input, one JSON object per line
    #[arg(long)]
    ndjson: bool,

    /// Print one JSON object per event
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    details: Details,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// The optional fields of an event.
#[derive(Debug, Args)]
#[command(next_help_heading = "Event")]
struct Details {
    /// Set the event type, such as OrderCreated
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "ndjson")]
    event_type: Option<String>,

    /// Set the version of the payload's format
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "ndjson")]
    event_version: i32,

    /// Set the aggregate, such as order/42
    #[arg(long, value_name = "TYPE/ID", conflicts_with = "ndjson")]
    aggregate: Option<String>,

    /// Set the ordering key: its events are sent one after another
    #[arg(long, value_name = "KEY", conflicts_with = "ndjson")]
    key: Option<String>,

    /// Set the dedupe key: a second event with it is ignored
    #[arg(long, value_name = "KEY", conflicts_with = "ndjson")]
    dedupe_key: Option<String>,

    /// Set the tenant
    #[arg(long, value_name = "UUID", conflicts_with = "ndjson")]
    tenant: Option<Uuid>,

    /// Set the severity
    #[arg(long, conflicts_with = "ndjson")]
    severity: Option<String>,

    /// Send to this destination and ignore the routes
    #[arg(long, value_name = "NAME", conflicts_with = "ndjson")]
    destination: Option<String>,

    /// Deliver not before 2027-01-31T12:00:00Z or +10m (not with --key)
    #[arg(long, value_name = "TIME", value_parser = time_arg::parse, conflicts_with = "ndjson")]
    at: Option<OffsetDateTime>,

    /// Send the payload as bytes of this media type instead of JSON
    #[arg(long, value_name = "TYPE", conflicts_with = "ndjson")]
    content_type: Option<String>,

    /// Add a header (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = header, conflicts_with = "ndjson")]
    header: Vec<(String, String)>,
}

/// One line of NDJSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<Uuid>,
    namespace: Option<String>,
    topic: Option<String>,
    event_type: Option<String>,
    event_version: Option<i32>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<Uuid>,
    dedupe_key: Option<String>,
    ordering_key: Option<String>,
    severity: Option<String>,
    destination: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    deliver_at: Option<OffsetDateTime>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    payload: Box<RawValue>,
}

impl Enqueue {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let found = self.database.find()?;
        let database = database_args::open_to_enqueue(&found.database).await?;
        let mut target = Target {
            database,
            limits: found.limits,
            destinations: found.destinations,
            warned: BTreeSet::new(),
        };
        if self.ndjson {
            return self.many(&mut target).await;
        }
        let enqueued = target.enqueue(&[self.event()?]).await?;
        self.print(&enqueued)
    }

    fn event(&self) -> Result<Event, Failure> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let details = &self.details;
        let mut event = Event::new(text(&self.namespace), text(&self.topic)).version(details.event_version);
        event.event_type.clone_from(&details.event_type);
        event.ordering_key.clone_from(&details.key);
        event.dedupe_key.clone_from(&details.dedupe_key);
        event.severity.clone_from(&details.severity);
        event.destination.clone_from(&details.destination);
        event.tenant_id = details.tenant;
        event.deliver_at = details.at;
        event.headers = details.header.iter().cloned().collect();
        if let Some(aggregate) = &details.aggregate {
            let (kind, id) = aggregate
                .split_once('/')
                .ok_or_else(|| Failure::usage("--aggregate: use TYPE/ID, such as order/42"))?;
            event = event.aggregate(kind, id);
        }
        let payload = read(self.payload.as_deref().unwrap_or_default())?;
        Ok(match &details.content_type {
            Some(kind) => event.bytes(payload, kind),
            None => event.json_text(payload),
        })
    }

    /// Reads line by line, so that a large file is never in memory.
    async fn many(&self, target: &mut Target) -> Result<(), Failure> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut committed = 0;
        for (index, line) in std::io::stdin().lock().lines().enumerate() {
            let event = line
                .map_err(|error| error.to_string())
                .and_then(|line| {
                    if line.trim().is_empty() {
                        Ok(None)
                    } else {
                        self.parse(&line, target.limits).map(Some)
                    }
                })
                .map_err(|error| wrong_line(index + 1, &error, committed))?;
            batch.extend(event);
            if batch.len() == BATCH {
                self.commit(target, &mut batch).await?;
                committed = index + 1;
            }
        }
        self.commit(target, &mut batch).await
    }

    async fn commit(&self, target: &mut Target, batch: &mut Vec<Event>) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        let enqueued = target.enqueue(batch).await?;
        batch.clear();
        self.print(&enqueued)
    }

    fn parse(&self, text: &str, limits: Limits) -> Result<Event, String> {
        let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let event = self.complete(line);
        validate(&event, &limits).map_err(|error| error.to_string())?;
        Ok(event)
    }

    fn complete(&self, line: Line) -> Event {
        let or = |own: Option<String>, general: &Option<String>| {
            own.or_else(|| general.clone()).unwrap_or_default()
        };
        let mut event = Event::new(or(line.namespace, &self.namespace), or(line.topic, &self.topic));
        event.id = line.id.unwrap_or(event.id);
        event.event_type = line.event_type;
        event.event_version = line.event_version.unwrap_or(1);
        event.aggregate_type = line.aggregate_type;
        event.aggregate_id = line.aggregate_id;
        event.tenant_id = line.tenant_id;
        event.dedupe_key = line.dedupe_key;
        event.ordering_key = line.ordering_key;
        event.severity = line.severity;
        event.destination = line.destination;
        event.deliver_at = line.deliver_at;
        event.headers = line.headers;
        event.json_text(line.payload.get().to_owned())
    }

    fn print(&self, enqueued: &[Enqueued]) -> Result<(), Failure> {
        for one in enqueued {
            if self.json {
                output::json(&serde_json::json!({ "id": one.id(), "new": one.is_new() }))?;
            } else {
                output::line(&format!(
                    "{} {}",
                    one.id(),
                    if one.is_new() { "new" } else { "duplicate" }
                ))?;
            }
        }
        Ok(())
    }
}

/// Where events are written.
struct Target {
    database: Database,
    limits: Limits,
    /// The names of the configured destinations, if a configuration was read.
    destinations: Option<Vec<String>>,
    /// Unknown destinations that the command has warned about.
    warned: BTreeSet<String>,
}

impl Target {
    async fn enqueue(&mut self, events: &[Event]) -> Result<Vec<Enqueued>, Failure> {
        let enqueued = self.database.enqueue_all(events, self.limits).await?;
        for name in events.iter().filter_map(|event| event.destination.as_deref()) {
            self.check_destination(name);
        }
        Ok(enqueued)
    }

    /// Warns if no destination has this name: the event waits until one has.
    fn check_destination(&mut self, name: &str) {
        let Some(known) = &self.destinations else {
            return;
        };
        if known.iter().any(|known| known == name) || !self.warned.insert(name.to_owned()) {
            return;
        }
        let hint = match config::nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "add it to the configuration".to_owned(),
        };
        logs::warning(&format!(
            "unknown destination `{name}`: its events wait until a worker serves it ({hint})"
        ));
    }
}

fn wrong_line(line: usize, error: &str, committed: usize) -> Failure {
    let so_far = match committed {
        0 => "nothing was enqueued".to_owned(),
        lines => format!("lines 1 to {lines} were enqueued; continue after them"),
    };
    Failure::failed(format!("line {line}: {error} ({so_far})"))
}

/// The payload: the text itself, a file's content, or standard input.
fn read(payload: &str) -> Result<Vec<u8>, Failure> {
    if payload == "-" {
        let mut bytes = Vec::new();
        return match std::io::stdin().lock().read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Failure::failed(format!("cannot read standard input: {error}"))),
        };
    }
    match payload.strip_prefix('@') {
        Some(file) => {
            std::fs::read(file).map_err(|error| Failure::failed(format!("cannot read {file}: {error}")))
        }
        None => Ok(payload.as_bytes().to_vec()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("use NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
