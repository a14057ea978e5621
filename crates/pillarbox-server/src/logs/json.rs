//! A log line as a JSON object, in which no key occurs twice.
//!
//! The formatter of tracing-subscriber repeats a key if a field is called `level` or `target`, or if a field of a span is
//! called `name`. Many readers then drop the line or one of the values.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use crate::output;

/// The keys that every line may have. A field with such a name gets an underscore.
const OWN_KEYS: [&str; 5] = ["timestamp", "level", "message", "target", "spans"];

/// Writes each event as one line.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::new(*event.metadata().level(), "");
        event.record(&mut line);
        line.set_target(event.metadata().target());
        let spans = context
            .event_scope()
            .into_iter()
            .flat_map(|scope| scope.from_root());
        line.spans = spans
            .map(|span| {
                let extensions = span.extensions();
                let fields = extensions.get::<FormattedFields<N>>();
                let fields = fields.and_then(|fields| serde_json::from_str::<Map<_, _>>(fields).ok());
                json!({ "name": span.name(), "fields": fields })
            })
            .collect();
        writeln!(writer, "{line}")
    }
}

/// One line.
#[derive(Debug)]
pub(super) struct Line {
    level: Level,
    message: String,
    target: Option<String>,
    fields: BTreeMap<String, Value>,
    spans: Vec<Value>,
}

impl Line {
    pub(super) fn new(level: Level, message: &str) -> Self {
        Self {
            level,
            message: message.to_owned(),
            target: None,
            fields: BTreeMap::new(),
            spans: Vec::new(),
        }
    }

    pub(super) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.put(name, value.into());
        self
    }

    fn put(&mut self, name: &str, value: Value) {
        let name = match name {
            own if OWN_KEYS.contains(&own) => format!("{own}_"),
            other => other.to_owned(),
        };
        self.fields.insert(name, value);
    }

    /// A record of the crate `log` has its origin in fields.
    fn set_target(&mut self, target: &str) {
        let logged = self.fields.remove("log.target");
        self.fields.retain(|name, _| !name.starts_with("log."));
        self.target = match logged {
            Some(Value::String(target)) => Some(target),
            Some(_) | None => Some(target.to_owned()),
        };
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field.name(), text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.put(field.name(), value.into());
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut timestamp = String::new();
        // Writing to a String cannot fail.
        SystemTime.format_time(&mut Writer::new(&mut timestamp)).ok();
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("timestamp", &timestamp)?;
        line.serialize_entry("level", self.level.as_str())?;
        line.serialize_entry("message", &self.message)?;
        for (name, value) in &self.fields {
            line.serialize_entry(name, value)?;
        }
        if let Some(target) = &self.target {
            line.serialize_entry("target", target)?;
        }
        if !self.spans.is_empty() {
            line.serialize_entry("spans", &self.spans)?;
        }
        line.end()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&output::escape_json(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

    use super::*;
    use crate::logs::captured::Captured;

    /// JSON in which no object has a key twice.
    struct Unique;

    impl<'de> Deserialize<'de> for Unique {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Reader;
            impl<'de> Visitor<'de> for Reader {
                type Value = Unique;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("JSON without a repeated key")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
                    let mut seen = BTreeSet::new();
                    while let Some((key, Unique)) = map.next_entry::<String, Unique>()? {
                        if !seen.insert(key.clone()) {
                            return Err(A::Error::custom(format!("`{key}` is repeated")));
                        }
                    }
                    Ok(Unique)
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
                    while items.next_element::<Unique>()?.is_some() {}
                    Ok(Unique)
                }

                fn visit_str<E: Error>(self, _: &str) -> Result<Unique, E> {
                    Ok(Unique)
                }

                fn visit_bool<E: Error>(self, _: bool) -> Result<Unique, E> {
                    Ok(Unique)
                }

                fn visit_u64<E: Error>(self, _: u64) -> Result<Unique, E> {
                    Ok(Unique)
                }

                fn visit_i64<E: Error>(self, _: i64) -> Result<Unique, E> {
                    Ok(Unique)
                }

                fn visit_f64<E: Error>(self, _: f64) -> Result<Unique, E> {
                    Ok(Unique)
                }

                fn visit_unit<E: Error>(self) -> Result<Unique, E> {
                    Ok(Unique)
                }
            }
            deserializer.deserialize_any(Reader)
        }
    }

    /// What is logged meanwhile, one value per line.
    fn logged(log: impl FnOnce()) -> Vec<Value> {
        let captured = Captured::start();
        log();
        for line in captured.text().lines() {
            serde_json::from_str::<Unique>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
        captured.lines()
    }

    #[test]
    fn no_field_repeats_a_key_of_the_line() {
        let lines = logged(|| {
            let span = tracing::info_span!("task", name = "claimer", task = 1);
            let _entered = span.enter();
            tracing::warn!(
                level = 7,
                target = "x",
                timestamp = "now",
                spans = true,
                "a \"quoted\"\nmessage"
            );
        });
        let [line] = lines.as_slice() else {
            panic!("{lines:?}")
        };
        assert_eq!(line["message"], "a \"quoted\"\nmessage");
        assert_eq!((&line["level"], &line["level_"]), (&"WARN".into(), &7.into()));
        assert_eq!(
            (&line["target_"], &line["timestamp_"]),
            (&"x".into(), &"now".into())
        );
        assert_eq!(
            line["spans"],
            json!([{ "name": "task", "fields": { "name": "claimer", "task": 1 } }])
        );
    }

    #[test]
    fn values_keep_their_types_and_every_line_has_a_message() {
        let lines = logged(|| {
            let error = "refused".to_owned();
            tracing::info!(count = 3, rate = 0.5, paused = false, %error, missing = f64::NAN);
        });
        let line = &lines[0];
        assert_eq!((&line["count"], &line["rate"]), (&3.into(), &0.5.into()));
        assert_eq!(
            (&line["paused"], &line["error"]),
            (&false.into(), &"refused".into())
        );
        assert!(line["missing"].is_null() && line["message"].is_string(), "{line}");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }
}
