//! Reads `[[upcast]]`, and which destination wants which version.

use std::collections::BTreeMap;

use pillarbox_sinks::message::Upcasts;
use pillarbox_sinks::message::upcasts::{At, Step, check};
use serde_json::Value;

use super::destinations::ParsedDestination;
use super::document::{Document, Section};
use super::error::Finding;
use super::raw;
use super::resolve::Resolver;

impl Resolver {
    /// Returns the steps, and gives each destination those that it needs.
    pub(super) fn upcasts(
        &mut self,
        sections: Vec<Section<'_>>,
        written: &mut [ParsedDestination],
        document: &Document<'_>,
    ) -> Vec<Step> {
        let written_steps = sections.len();
        let mut paths = Vec::new();
        let mut steps = Vec::new();
        for section in sections {
            let path = section.path.clone();
            let raw: Option<raw::Upcast> = self.keep_all(document.read(section, &[]));
            if let Some(step) = raw.and_then(|raw| self.step(raw, &path, document)) {
                paths.push(path);
                steps.push(step);
            }
        }
        let problems = check(&steps);
        for problem in &problems {
            let path = match problem.at {
                At::Step(number) => &paths[number],
                At::Version(_) => continue, // not of the steps by themselves
            };
            let place = document.place_of(&format!("{path}.{}", problem.key));
            self.wrong(place, problem.message.clone());
        }
        // With a step that is wrong, a gap proves nothing.
        if problems.is_empty() && steps.len() == written_steps {
            self.chains(&steps, written, document);
            self.warn_of_unused(&steps, &paths, written, document);
        }
        steps
    }

    fn step(&mut self, raw: raw::Upcast, path: &str, document: &Document<'_>) -> Option<Step> {
        let mut default = BTreeMap::new();
        let count = raw.default.len();
        for (field, value) in raw.default {
            match json(value) {
                Ok(value) => drop(default.insert(field, value)),
                Err(problem) => {
                    let place = document.place_of(&format!("{path}.default.{field}"));
                    self.wrong(place, format!("`default`: `{field}` {problem}"));
                }
            }
        }
        (default.len() == count).then_some(Step {
            event_type: raw.event_type,
            namespace: raw.namespace,
            topic: raw.topic,
            from: raw.from,
            rename: raw.rename,
            default,
            drop: raw.drop,
        })
    }

    fn chains(&mut self, steps: &[Step], written: &mut [ParsedDestination], document: &Document<'_>) {
        for to in written {
            match Upcasts::new(steps, &to.destination.versions) {
                Ok(upcasts) => to.destination.upcasts = upcasts,
                Err(problems) => {
                    for problem in problems {
                        let key = match &problem.at {
                            At::Version(event_type) => format!("{}.upcast.{event_type}", to.path),
                            At::Step(_) => to.path.clone(),
                        };
                        self.wrong(document.place_of(&key), problem.message);
                    }
                }
            }
        }
    }

    fn warn_of_unused(
        &mut self,
        steps: &[Step],
        paths: &[String],
        written: &[ParsedDestination],
        document: &Document<'_>,
    ) {
        for (step, path) in steps.iter().zip(paths) {
            let mut versions = written.iter().map(|to| &to.destination.versions);
            if versions.any(|versions| versions.contains_key(&step.event_type)) {
                continue;
            }
            let message = format!(
                "no destination wants a version of `{}`, so the step is not used (write it under [destination.upcast])",
                step.event_type
            );
            self.warnings.push(Finding::new(document.place_of(path), message));
        }
    }
}

/// The value as JSON.
fn json(value: toml::Value) -> Result<Value, &'static str> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Boolean(bool) => bool.into(),
        toml::Value::Float(number) => match serde_json::Number::from_f64(number) {
            Some(number) => number.into(),
            None => return Err("is no number that JSON has"),
        },
        toml::Value::Datetime(_) => return Err("is a time, which JSON does not have (write it as a text)"),
        toml::Value::Array(values) => {
            let values: Result<Vec<Value>, _> = values.into_iter().map(json).collect();
            values?.into()
        }
        toml::Value::Table(fields) => {
            let fields = fields.into_iter().map(|(name, value)| Ok((name, json(value)?)));
            Value::Object(fields.collect::<Result<_, &'static str>>()?)
        }
    })
}
