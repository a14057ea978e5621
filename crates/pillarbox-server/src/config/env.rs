//! Environment variables that override the file: `PILLARBOX_<SECTION>_<KEY>`.
//!
//! One table says which keys there are, so that a variable that overrides nothing is noticed: a
//! misspelt `PILLARBOX_DISPATCH_LEESE` would otherwise be silently without effect.

use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::explain::nearest;

/// What a variable's text stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Taken as it is.
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
    ("dispatch", "poll_interval", Kind::Text),
    ("dispatch", "batch", Kind::Number),
    ("dispatch", "max_in_flight", Kind::Number),
    ("dispatch", "max_bytes", Kind::Number),
    ("dispatch", "grace", Kind::Text),
    ("dispatch", "sweep_interval", Kind::Text),
    ("dispatch", "heartbeat", Kind::Text),
    ("dispatch", "lanes", Kind::Number),
    ("dispatch", "unrouted", Kind::Text),
    ("dispatch", "namespaces", Kind::List),
    ("retry", "base", Kind::Text),
    ("retry", "max", Kind::Text),
    ("retry", "max_attempts", Kind::Number),
    ("retry", "steps", Kind::List),
    ("retry", "jitter", Kind::Text),
    ("limits", "max_payload", Kind::Number),
    ("http", "listen", Kind::Text),
    ("http", "allow_remote", Kind::Truth),
];

/// One value that applies instead of the file's.
#[derive(Debug, Clone)]
pub(crate) struct Override {
    /// Where it comes from, in words.
    pub(crate) source: String,
    pub(crate) section: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: Value,
}

/// A value that was written outside of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A text.
    Text(String),
    /// Decimal digits.
    Number(String),
    /// Yes or no.
    Truth(bool),
    /// Texts.
    List(Vec<String>),
}

/// What the environment and the command line say.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    /// The later one wins.
    pub(crate) known: Vec<Override>,
    /// Variables that look like ours and override nothing, with a sentence each.
    pub(crate) unknown: Vec<(String, String)>,
    /// Has the command line chosen a database already? Then what says which is not for a file with several.
    pub(crate) database_is_chosen: bool,
}

/// Reads the variables of this process.
pub(crate) fn from_process() -> Overrides {
    // A value that is not UTF-8 cannot be a value of ours either.
    overrides(
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    )
}

/// Sorts variables into those that apply and those that only look so.
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
                source: format!("environment variable {name}"),
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
    /// Puts a flag of the command line above everything else.
    pub(crate) fn flag(&mut self, name: &str, section: &str, key: &str, text: &str) {
        if let Some(&(section, key, kind)) = KEYS.iter().find(|(s, k, _)| *s == section && *k == key) {
            self.known.push(Override {
                source: name.to_owned(),
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

/// A sentence for a variable that names one of our sections and none of its keys.
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
        Some(near) => format!("overrides nothing; did you mean {near}?"),
        None => "overrides nothing; see docs/configuration.md for the variables".to_owned(),
    })
}

/// What is not of its kind stays text, and the type that reads it says what it expected.
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
    /// As the parser of the file would have read it.
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
    fn a_variable_is_read_as_the_kind_of_its_key() {
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
    fn a_variable_that_overrides_nothing_is_noticed() {
        let unknown = found("PILLARBOX_DISPATCH_LEESE", "1s").unknown;
        assert_eq!(
            unknown[0].1,
            "overrides nothing; did you mean PILLARBOX_DISPATCH_LEASE?"
        );
    }

    #[test]
    fn variables_of_other_things_are_left_alone() {
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
