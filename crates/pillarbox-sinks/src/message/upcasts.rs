//! Turns old payloads into the version that the receivers of a destination know, as the configuration describes it.
//!
//! ```toml
//! [[upcast]]
//! event_type = "OrderCreated"
//! from = 1                          # to version 2
//! rename = { amount = "total" }
//! default = { currency = "EUR" }
//! drop = ["legacy"]
//! ```
//!
//! A step changes the fields that it names. It copies every other value as it is written, numbers of any length included.
//! What needs more than that is a Rust function: see `pillarbox::versions`.
//!
//! **If we die here** nothing was sent, and the stored event is as it was written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox::compress::is_compressed;
use pillarbox::versions::BrokenChain;
use pillarbox::{Event, Payload};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::cloudevents::is_json;

/// How often a destination logs that events were not upcast.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One step, from a version of an event type to the next. Fields are paths such as `customer.mail`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Only for events of this type.
    pub event_type: String,
    /// Only for events of this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Only for events of this topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The version that it starts from; it leads to the next one.
    pub from: i32,
    /// Fields that get another name, all at once. A field that is missing stays missing.
    pub rename: BTreeMap<String, String>,
    /// Values of fields that are missing, after the renaming.
    pub default: BTreeMap<String, Value>,
    /// Fields that are removed, last.
    pub drop: Vec<String>,
}

/// What is wrong with a step or with a destination's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The number of the step, or the event type in the destination's list of versions.
    pub at: At,
    /// The key that is wrong.
    pub key: &'static str,
    /// What is wrong with it, and what to do.
    pub message: String,
}

/// Where a [`Problem`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// The step of this number, from 0.
    Step(usize),
    /// The destination's version of this event type.
    Version(String),
}

/// The steps that a destination needs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Upcasts {
    /// By event type. The scopes of one type do not overlap.
    chains: Arc<BTreeMap<String, Vec<Arc<Chain>>>>,
    skipped: Arc<Mutex<Skipped>>,
}

/// The steps of one event type in one scope, to the version that the receivers know.
#[derive(Debug)]
pub(super) struct Chain {
    namespace: Option<String>,
    topic: Option<String>,
    steps: BTreeMap<i32, Step>,
    to: i32,
}

/// Events that were delivered as they are, and not logged yet.
#[derive(Debug, Default)]
struct Skipped {
    logged: Option<Instant>,
    count: u64,
}

/// The fields of an object. Values are copied as they are written.
type Fields = BTreeMap<String, Box<RawValue>>;

/// What is wrong with the steps by themselves.
pub fn check(steps: &[Step]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let mut wrong = |key, message: String| {
            problems.push(Problem {
                at: At::Step(number),
                key,
                message,
            });
        };
        if step.from < 1 {
            wrong("from", format!("`from` is {}; versions count from 1", step.from));
        }
        for (key, path) in step.paths() {
            if path.split('.').any(str::is_empty) {
                wrong(
                    key,
                    format!("`{key}`: {path:?} is no path such as \"customer.mail\""),
                );
            }
        }
        let mut targets: Vec<&String> = step.rename.values().collect();
        targets.sort();
        if let Some(twice) = targets.windows(2).find(|pair| pair[0] == pair[1]) {
            wrong("rename", format!("`rename`: two fields become `{}`", twice[0]));
        }
        let earlier = steps[..number]
            .iter()
            .filter(|other| other.event_type == step.event_type);
        for other in earlier {
            if other.scope() == step.scope() {
                if other.from == step.from {
                    let twice = BrokenChain::Twice {
                        event_type: step.event_type.clone(),
                        from: step.from,
                    };
                    wrong("from", twice.to_string());
                }
            } else if other.overlaps(step) {
                let message = format!(
                    "an event of type `{}` could match two chains (give all its steps the same `namespace` and `topic`, or \
                     values that exclude each other)",
                    step.event_type
                );
                wrong("event_type", message);
                break;
            }
        }
    }
    problems
}

impl Step {
    fn scope(&self) -> (Option<&str>, Option<&str>) {
        (self.namespace.as_deref(), self.topic.as_deref())
    }

    /// Can one event match both?
    fn overlaps(&self, other: &Self) -> bool {
        let differ = |one: &Option<String>, two: &Option<String>| matches!((one, two), (Some(one), Some(two)) if one != two);
        !differ(&self.namespace, &other.namespace) && !differ(&self.topic, &other.topic)
    }

    fn paths(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let renamed = self.rename.iter().flat_map(|(from, to)| [from, to]);
        let renamed = renamed.map(|path| ("rename", path.as_str()));
        let defaults = self.default.keys().map(|path| ("default", path.as_str()));
        let dropped = self.drop.iter().map(|path| ("drop", path.as_str()));
        renamed.chain(defaults).chain(dropped)
    }

    fn apply(&self, fields: &mut Fields) -> Result<(), String> {
        let mut renamed = Vec::new();
        for (from, to) in &self.rename {
            if let Some(value) = take(fields, from)? {
                renamed.push((to, value));
            }
        }
        for (to, value) in renamed {
            if !put(fields, to, value)? {
                return Err(format!("the field `{to}` exists already"));
            }
        }
        for (path, value) in &self.default {
            put(fields, path, raw(value)?)?;
        }
        for path in &self.drop {
            take(fields, path)?;
        }
        Ok(())
    }
}

impl Upcasts {
    /// The steps to these versions, by event type.
    ///
    /// # Errors
    /// The versions that no unbroken chain of steps leads to.
    pub fn new(steps: &[Step], versions: &BTreeMap<String, i32>) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut chains = BTreeMap::new();
        for (event_type, &to) in versions {
            let own: Vec<&Step> = steps
                .iter()
                .filter(|step| step.event_type == *event_type)
                .collect();
            match chains_to(&own, event_type, to) {
                Ok(found) => drop(chains.insert(event_type.clone(), found)),
                Err(message) => problems.push(Problem {
                    at: At::Version(event_type.clone()),
                    key: "upcast",
                    message,
                }),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            chains: Arc::new(chains),
            skipped: Arc::default(),
        })
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The steps that this event needs. An event whose content is not JSON needs none: that is logged.
    pub(super) fn chain(&self, event: &Event) -> Option<Arc<Chain>> {
        let chains = self.chains.get(event.event_type.as_deref()?)?;
        let chain = chains.iter().find(|chain| chain.is_for(event))?;
        if event.event_version >= chain.to {
            return None;
        }
        match unreadable(event) {
            None => Some(chain.clone()),
            Some(reason) => {
                self.skip(event, chain.to, &reason);
                None
            }
        }
    }

    fn skip(&self, event: &Event, to: i32, reason: &str) {
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped.count += 1;
        if skipped
            .logged
            .is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL)
        {
            tracing::warn!(
                event_id = %event.id,
                event_type = event.event_type,
                event_version = event.event_version,
                expected_version = to,
                reason,
                events = skipped.count,
                "event not upcast, delivered as stored"
            );
            *skipped = Skipped {
                logged: Some(Instant::now()),
                count: 0,
            };
        }
    }
}

/// Why the content cannot be read as JSON, by what the event says about it.
fn unreadable(event: &Event) -> Option<String> {
    match &event.content_encoding {
        Some(encoding) if !is_compressed(event) => return Some(format!("its encoding is {encoding:?}")),
        Some(_) | None => {}
    }
    let is_json = matches!(event.payload, Payload::Json(_)) || is_json(event.media_type());
    (!is_json).then(|| format!("its content is {:?}, not JSON", event.media_type()))
}

/// One chain for each scope that the steps of an event type have.
fn chains_to(steps: &[&Step], event_type: &str, to: i32) -> Result<Vec<Arc<Chain>>, String> {
    let mut scopes: BTreeMap<_, BTreeMap<i32, Step>> = BTreeMap::new();
    for step in steps {
        scopes
            .entry(step.scope())
            .or_default()
            .insert(step.from, (*step).clone());
    }
    if scopes.is_empty() {
        return Err(format!(
            "no [[upcast]] is for the event type `{event_type}` (add its steps)"
        ));
    }
    let chain = |((namespace, topic), steps): (_, BTreeMap<i32, Step>)| {
        let oldest = steps.keys().next().copied().unwrap_or(to);
        if oldest >= to {
            return Err(format!(
                "no [[upcast]] leads to version {to} of `{event_type}`: the first starts from version {oldest}"
            ));
        }
        if let Some(from) = (oldest..to).find(|from| !steps.contains_key(from)) {
            let gap = BrokenChain::Gap {
                event_type: event_type.to_owned(),
                from,
                oldest,
                to,
            };
            return Err(gap.to_string());
        }
        Ok(Arc::new(Chain {
            namespace: Option::map(namespace, str::to_owned),
            topic: Option::map(topic, str::to_owned),
            steps,
            to,
        }))
    };
    scopes.into_iter().map(chain).collect()
}

impl Chain {
    fn is_for(&self, event: &Event) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.namespace, &event.namespace) && is(&self.topic, &event.topic)
    }

    /// Makes the event one of the version that the receivers know.
    ///
    /// # Errors
    /// Why that is impossible.
    pub(super) fn apply(&self, event: &mut Event) -> Result<(), String> {
        let failed = |from: i32, reason: String| {
            let event_type = event.event_type.as_deref().unwrap_or_default();
            let next = from + 1;
            format!("version {from} of `{event_type}` cannot be made into version {next}: {reason}")
        };
        let content = event.payload.as_bytes();
        let mut fields: Fields = serde_json::from_slice(content).map_err(|error| {
            failed(
                event.event_version,
                format!("the payload is no JSON object: {error}"),
            )
        })?;
        for from in event.event_version..self.to {
            let step = self.steps.get(&from).ok_or("there is no step".to_owned());
            let done = step.and_then(|step| step.apply(&mut fields));
            done.map_err(|reason| failed(from, reason))?;
        }
        let content = serde_json::to_vec(&fields).map_err(|error| error.to_string())?;
        event.event_version = self.to;
        event.payload = match event.payload {
            Payload::Json(_) => Payload::Json(content.into()),
            Payload::Bytes(_) => Payload::Bytes(content.into()),
        };
        Ok(())
    }
}

/// Removes the field at a path.
fn take(fields: &mut Fields, path: &str) -> Result<Option<Box<RawValue>>, String> {
    let Some((outer, rest)) = path.split_once('.') else {
        return Ok(fields.remove(path));
    };
    // What is no object has no such field.
    let Some(Ok(mut inner)) = fields.get(outer).map(|value| object(value)) else {
        return Ok(None);
    };
    let taken = take(&mut inner, rest)?;
    if taken.is_some() {
        fields.insert(outer.to_owned(), raw(&inner)?);
    }
    Ok(taken)
}

/// Sets the field at a path, with the objects on the way to it. Leaves a field that exists, and returns false.
fn put(fields: &mut Fields, path: &str, value: Box<RawValue>) -> Result<bool, String> {
    let Some((outer, rest)) = path.split_once('.') else {
        if fields.contains_key(path) {
            return Ok(false);
        }
        fields.insert(path.to_owned(), value);
        return Ok(true);
    };
    let mut inner = match fields.get(outer) {
        None => Fields::new(),
        Some(found) => object(found).map_err(|_| format!("the field `{outer}` is no object"))?,
    };
    let is_new = put(&mut inner, rest, value)?;
    if is_new {
        fields.insert(outer.to_owned(), raw(&inner)?);
    }
    Ok(is_new)
}

fn object(value: &RawValue) -> Result<Fields, serde_json::Error> {
    serde_json::from_str(value.get())
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>, String> {
    to_raw_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(from: i32) -> Step {
        Step {
            event_type: "OrderCreated".to_owned(),
            namespace: None,
            topic: None,
            from,
            rename: BTreeMap::new(),
            default: BTreeMap::new(),
            drop: Vec::new(),
        }
    }

    fn renaming(from: i32, fields: &[(&str, &str)]) -> Step {
        let fields = fields
            .iter()
            .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        Step {
            rename: fields.collect(),
            ..step(from)
        }
    }

    fn in_namespace(namespace: &str, step: Step) -> Step {
        Step {
            namespace: Some(namespace.to_owned()),
            ..step
        }
    }

    fn to(version: i32) -> BTreeMap<String, i32> {
        [("OrderCreated".to_owned(), version)].into()
    }

    fn event(version: i32, payload: &str) -> Event {
        let event = Event::new("shop", "orders").event_type("OrderCreated");
        event.version(version).json_text(payload.to_owned())
    }

    fn upcast(steps: &[Step], version: i32, mut event: Event) -> Result<String, String> {
        let upcasts = Upcasts::new(steps, &to(version)).unwrap();
        upcasts.chain(&event).expect("it needs it").apply(&mut event)?;
        assert_eq!(event.event_version, version);
        Ok(String::from_utf8(event.payload.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn fields_are_renamed_set_and_dropped_step_by_step() {
        let first = Step {
            default: [("currency".to_owned(), json!("EUR"))].into(),
            ..renaming(1, &[("amount", "price.total")])
        };
        let second = Step {
            drop: vec![
                "legacy".to_owned(),
                "price.vat".to_owned(),
                "absent.field".to_owned(),
            ],
            default: [
                ("price.vat".to_owned(), json!(0)),
                ("note".to_owned(), json!(null)),
            ]
            .into(),
            ..step(2)
        };
        let steps = [second, first];
        let old = r#"{"amount":19.90,"currency":"USD","legacy":1,"price":{"net":16.72}}"#;
        assert_eq!(
            upcast(&steps, 3, event(1, old)).unwrap(),
            r#"{"currency":"USD","note":null,"price":{"net":16.72,"total":19.90}}"#
        );
        assert_eq!(
            upcast(&steps, 3, event(2, "{}")).unwrap(),
            r#"{"note":null,"price":{}}"#
        );
    }

    #[test]
    fn values_that_no_step_names_are_copied_as_they_are_written() {
        let steps = [renaming(1, &[("a", "b")])];
        let exact = r#"{"a":0.10000000000000000000000000001,"z":[123456789012345678901234567890,1.50]}"#;
        assert_eq!(
            upcast(&steps, 2, event(1, exact)).unwrap(),
            exact.replace("\"a\"", "\"b\"")
        );
    }

    #[test]
    fn two_fields_can_swap_their_names() {
        let steps = [renaming(1, &[("a", "b"), ("b", "a")])];
        assert_eq!(
            upcast(&steps, 2, event(1, r#"{"a":1,"b":2}"#)).unwrap(),
            r#"{"a":2,"b":1}"#
        );
    }

    #[test]
    fn what_cannot_be_changed_says_why_and_where() {
        let steps = [renaming(1, &[("amount", "total.net")])];
        for (payload, reason) in [
            (
                r#"{"amount":1,"total":{"net":2}}"#,
                "the field `total.net` exists already",
            ),
            (r#"{"amount":1,"total":2}"#, "the field `total` is no object"),
            ("[1]", "the payload is no JSON object"),
        ] {
            let said = upcast(&steps, 2, event(1, payload)).unwrap_err();
            assert!(
                said.starts_with("version 1 of `OrderCreated` cannot be made into version 2: "),
                "{said}"
            );
            assert!(said.contains(reason), "{said}");
        }
    }

    #[test]
    fn a_version_must_be_reached_without_a_gap() {
        let problem = |steps: &[Step], version| {
            let problems = Upcasts::new(steps, &to(version)).unwrap_err();
            assert_eq!((problems.len(), problems[0].key), (1, "upcast"));
            problems[0].message.clone()
        };
        assert!(problem(&[], 2).contains("no [[upcast]] is for the event type `OrderCreated`"));
        assert!(problem(&[step(2)], 2).contains("the first starts from version 2"));
        assert!(problem(&[step(1), step(3)], 4).contains("from version 2 of `OrderCreated` to version 3"));
        assert!(problem(&[step(1)], 3).contains("from version 2"));
        let scoped = [in_namespace("shop", step(1)), in_namespace("billing", step(2))];
        assert!(
            problem(&scoped, 2).contains("the first starts from version 2"),
            "each scope has its own chain"
        );
        assert!(
            Upcasts::new(&[step(1), step(2), step(3)], &to(3)).is_ok(),
            "later steps do no harm"
        );
    }

    #[test]
    fn steps_that_exclude_each_other_are_refused() {
        let said = |steps: &[Step]| -> Vec<(At, &str)> {
            let problems = check(steps);
            problems
                .into_iter()
                .map(|problem| (problem.at, problem.key))
                .collect()
        };
        assert_eq!(said(&[step(1), step(2)]), []);
        assert_eq!(said(&[step(1), step(1)]), [(At::Step(1), "from")]);
        assert_eq!(said(&[step(0)]), [(At::Step(0), "from")]);
        assert_eq!(
            said(&[in_namespace("shop", step(1)), in_namespace("billing", step(1))]),
            []
        );
        assert_eq!(
            said(&[step(1), in_namespace("shop", step(2))]),
            [(At::Step(1), "event_type")]
        );
        assert_eq!(
            said(&[renaming(1, &[("a", "c"), ("b", "c")])]),
            [(At::Step(0), "rename")]
        );
        assert_eq!(said(&[renaming(1, &[("a..b", "c")])]), [(At::Step(0), "rename")]);
    }

    #[test]
    fn only_older_events_of_the_type_and_scope_with_json_are_changed() {
        let upcasts = Upcasts::new(&[in_namespace("shop", step(1))], &to(2)).unwrap();
        let needs = |event: &Event| upcasts.chain(event).is_some();
        assert!(needs(&event(1, "{}")));
        assert!(!needs(&event(2, "{}")) && !needs(&event(3, "{}")));
        assert!(!needs(&event(1, "{}").event_type("OrderPaid")));
        let elsewhere = Event::new("billing", "orders").event_type("OrderCreated");
        assert!(!needs(&elsewhere));
        let bytes = |kind: &str| event(1, "{}").bytes(&b"{}"[..], kind);
        assert!(needs(&bytes("application/vnd.shop+json; charset=utf-8")));
        assert!(!needs(&bytes("application/x-protobuf")));
        let mut encoded = bytes("application/json");
        encoded.content_encoding = Some("gzip".to_owned());
        assert!(!needs(&encoded));
        encoded.content_encoding = Some("zstd".to_owned());
        assert!(needs(&encoded));
    }
}
