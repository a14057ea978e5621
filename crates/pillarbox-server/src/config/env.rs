//! Environment variables that override the file: `PILLARBOX_<SECTION>_<KEY>`.
//!
//! One table lists the keys, so that an unknown variable is reported. Otherwise a misspelt `PILLARBOX_DISPATCH_LEESE` would
//! silently have no effect.

use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::explain::nearest;

/// The type of a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Text, unchanged.
    Text,
    /// A whole number, or a text such as "32MiB" or "unlimited".
    Number,
    /// `true` or `false`.
    Truth,
    /// Separated by commas.
    List,
}

/// Every key that a variable can override.
const KEYS: &[(&str, &str, Kind)] = &[
    ("database", "url", Kind::Text),
    ("database", "schema", Kind::Text),
    ("database", "max_connections", Kind::Number),
    ("dispatch", "lease", Kind::Text),
    ("dispatch", "timeout", Kind::Text),
    ("dispatch", "wake", Kind::Text),
    ("dispatch", "poll_interval", Kind::Text),
    ("dispatch", "batch", Kind::Number),
    ("dispatch", "max_in_flight", Kind::Number),
    ("dispatch", "max_bytes", Kind::Number),
    ("dispatch", "grace", Kind::Text),
    ("dispatch", "sweep_interval", Kind::Text),
    ("dispatch", "heartbeat", Kind::Text),
    ("dispatch", "lane_ranges", Kind::Number),
    ("dispatch", "unrouted", Kind::Text),
    ("dispatch", "namespaces", Kind::List),
    ("retry", "base", Kind::Text),
    ("retry", "max", Kind::Text),
    ("retry", "max_attempts", Kind::Number),
    ("retry", "steps", Kind::List),
    ("retry", "jitter", Kind::Text),
    ("retention", "delivered", Kind::Text),
    ("retention", "dead", Kind::Text),
    ("retention", "sagas", Kind::Text),
    ("retention", "inbox", Kind::Text),
    ("retention", "archive", Kind::Text),
    ("retention", "interval", Kind::Text),
    ("retention", "batch", Kind::Number),
    ("limits", "max_payload", Kind::Number),
    ("http", "listen", Kind::Text),
    ("http", "allow_remote", Kind::Truth),
    ("http", "hosts", Kind::List),
    ("http", "ops_listen", Kind::Text),
    ("security", "strict", Kind::Truth),
];

/// One value that overrides the file.
#[derive(Debug, Clone)]
pub(crate) struct Override {
    /// Where it comes from, for errors.
    pub(crate) origin: String,
    pub(crate) section: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: Value,
}

/// A value from outside the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A text.
    Text(String),
    /// Decimal digits.
    Number(String),
    /// True or false.
    Truth(bool),
    /// Texts.
    List(Vec<String>),
}

/// The values of the environment and the command line.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    /// The later one wins.
    pub(crate) known: Vec<Override>,
    /// Unknown variables of our sections, each with a hint.
    pub(crate) unknown: Vec<(String, String)>,
    /// Did the command line choose the database? Then the database variables do not apply to a file with several.
    pub(crate) database_is_chosen: bool,
}

/// Reads the variables of this process.
pub(crate) fn from_process() -> Overrides {
    // A value that is not UTF-8 is invalid for every key.
    overrides(
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    )
}

/// Splits variables into overrides and unknown ones.
pub(crate) fn overrides(variables: impl IntoIterator<Item = (String, String)>) -> Overrides {
    let mut found = Overrides::default();
    let mut variables: Vec<_> = variables.into_iter().collect();
    variables.sort();
    for (name, text) in variables {
        match KEYS
            .iter()
            .find(|(section, key, _)| variable(section, key) == name)
        {
            Some(&(section, key, kind)) => found.known.push(Override {
                origin: format!("environment variable {name}"),
                section,
                key,
                value: value(kind, &text),
            }),
            None => {
                if let Some(hint) = hint(&name) {
                    found.unknown.push((name, hint));
                }
            }
        }
    }
    found
}

impl Overrides {
    /// Adds a command-line flag, which takes precedence over everything else.
    pub(crate) fn flag(&mut self, name: &str, section: &str, key: &str, text: &str) {
        if let Some(&(section, key, kind)) = KEYS.iter().find(|(s, k, _)| *s == section && *k == key) {
            self.known.push(Override {
                origin: name.to_owned(),
                section,
                key,
                value: value(kind, text),
            });
        }
    }
}

fn variable(section: &str, key: &str) -> String {
    format!("PILLARBOX_{}_{}", section.to_uppercase(), key.to_uppercase())
}

/// A hint for a variable of one of our sections with an unknown key.
fn hint(name: &str) -> Option<String> {
    let section = KEYS
        .iter()
        .map(|(section, ..)| *section)
        .find(|section| name.starts_with(&variable(section, "")))?;
    let names: Vec<String> = KEYS
        .iter()
        .filter(|(s, ..)| *s == section)
        .map(|(s, key, _)| variable(s, key))
        .collect();
    Some(match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("unknown variable (did you mean {near}?)"),
        None => "unknown variable (docs/configuration.md lists them)".to_owned(),
    })
}

/// A value that does not parse stays text; the type that reads it reports what it expected.
fn value(kind: Kind, text: &str) -> Value {
    match (kind, text) {
        (Kind::Number, digits) if is_number(digits) => Value::Number(digits.to_owned()),
        (Kind::Truth, "true") => Value::Truth(true),
        (Kind::Truth, "false") => Value::Truth(false),
        (Kind::List, items) => {
            let items = items.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::List(items.map(str::to_owned).collect())
        }
        (Kind::Text | Kind::Number | Kind::Truth, text) => Value::Text(text.to_owned()),
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|number| number.to_string() == text)
}

impl Value {
    /// As the TOML parser would read it.
    pub(crate) fn as_toml(&self) -> DeValue<'_> {
        let text = |text: &str| DeValue::String(text.to_owned().into());
        match self {
            Self::Text(value) => text(value),
            Self::Truth(value) => DeValue::Boolean(*value),
            Self::Number(digits) => DeValue::parse(digits).map_or_else(|_| text(digits), Spanned::into_inner),
            Self::List(items) => {
                let mut array = DeArray::new();
                for item in items {
                    array.push(Spanned::new(0..0, text(item)));
                }
                DeValue::Array(array)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, value: &str) -> Overrides {
        overrides([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_variable_is_read_as_the_type_of_its_key() {
        let read = |name, text| found(name, text).known[0].value.clone();
        let text = |value: &str| Value::Text(value.to_owned());
        assert_eq!(
            read("PILLARBOX_DISPATCH_BATCH", "500"),
            Value::Number("500".to_owned())
        );
        assert_eq!(read("PILLARBOX_DISPATCH_BATCH", "007"), text("007"));
        assert_eq!(read("PILLARBOX_DISPATCH_LEASE", "500"), text("500"));
        assert_eq!(read("PILLARBOX_DISPATCH_MAX_BYTES", "32MiB"), text("32MiB"));
        assert_eq!(read("PILLARBOX_HTTP_ALLOW_REMOTE", "true"), Value::Truth(true));
        assert_eq!(read("PILLARBOX_HTTP_ALLOW_REMOTE", "yes"), text("yes"));
        let names = Value::List(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(read("PILLARBOX_DISPATCH_NAMESPACES", "a, b,"), names);
    }

    #[test]
    fn an_unknown_variable_is_reported() {
        let unknown = found("PILLARBOX_DISPATCH_LEESE", "1s").unknown;
        assert_eq!(
            unknown[0].1,
            "unknown variable (did you mean PILLARBOX_DISPATCH_LEASE?)"
        );
    }

    #[test]
    fn variables_of_other_programs_are_ignored() {
        for name in [
            "PILLARBOX_LOG",
            "PILLARBOX_TEST_POSTGRES_URL",
            "PATH",
            "DISPATCH_LEASE",
        ] {
            let overrides = found(name, "x");
            assert!(
                overrides.known.is_empty() && overrides.unknown.is_empty(),
                "{name}"
            );
        }
    }
}
