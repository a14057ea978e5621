//! Headers that a destination adds to what it sends: the `headers` table of its configuration.
//!
//! ```toml
//! headers = { x-tenant = "{tenant_id}", x-token = { env = "SHOP_TOKEN" } }
//! ```
//!
//! A text is a [`Template`]. A value of the environment or of a file is taken as it is. Either may have a token, so no value
//! is printed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use pillarbox::{Delivery, Outcome};
use serde::{Deserialize, Serialize};

use super::{Header, is_reserved, is_same};
use crate::registry::ConfigError;
use crate::secret::Secret;
use crate::template::{Template, TemplateError};

/// Headers that say what a client accepts or is. Their values are no secrets.
const PUBLIC: [&str; 6] = [
    "accept",
    "accept-charset",
    "accept-language",
    "cache-control",
    "prefer",
    "user-agent",
];

/// May a configured header of this name have a secret?
#[doc(hidden)]
pub fn may_be_secret(name: &str) -> bool {
    !PUBLIC.iter().any(|public| is_same(name, public))
}

/// Is it more than what divides two values?
fn is_text(literal: &str) -> bool {
    literal.contains(char::is_alphanumeric)
}

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Secret>", into = "BTreeMap<String, Secret>")]
pub struct Table(BTreeMap<String, Value>);

#[derive(Clone, PartialEq, Eq)]
enum Value {
    /// From the event.
    Made(Template),
    /// From the environment or a file.
    Kept(Secret),
}

/// An invalid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}`: {error}")]
pub struct TableError {
    /// The header.
    pub name: String,
    /// The problem.
    pub error: TemplateError,
}

impl Table {
    /// A table of these names and values.
    ///
    /// # Errors
    /// When a text is not a template.
    pub fn new<N, V>(headers: impl IntoIterator<Item = (N, V)>) -> Result<Self, TableError>
    where
        N: Into<String>,
        V: Into<Secret>,
    {
        let mut table = BTreeMap::new();
        for (name, secret) in headers {
            let (name, secret) = (name.into(), secret.into());
            let value = match secret.as_inline().map(Template::parse) {
                Some(Ok(template)) => Value::Made(template),
                Some(Err(error)) => return Err(TableError { name, error }),
                None => Value::Kept(secret),
            };
            table.insert(name, value);
        }
        Ok(Self(table))
    }

    /// Has it a value that may be a secret? That is any text of the configuration, whatever its header's name.
    #[cfg_attr(
        not(feature = "webhook"),
        allow(dead_code, reason = "only HTTP sends it in the clear")
    )]
    pub(crate) fn has_secret(&self) -> bool {
        let is_secret = |(name, value): (&String, &Value)| match value {
            Value::Kept(_) => true,
            Value::Made(template) => may_be_secret(name) && template.literals().any(is_text),
        };
        self.0.iter().any(is_secret)
    }

    /// Is the table empty?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<BTreeMap<String, Secret>> for Table {
    type Error = TableError;

    fn try_from(headers: BTreeMap<String, Secret>) -> Result<Self, TableError> {
        Self::new(headers)
    }
}

impl From<Table> for BTreeMap<String, Secret> {
    fn from(table: Table) -> Self {
        let secret = |value| match value {
            Value::Made(template) => Secret::inline(template),
            Value::Kept(secret) => secret,
        };
        let headers = table.0.into_iter();
        headers.map(|(name, value)| (name, secret(value))).collect()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The checked table, with its secrets. Never printed.
#[derive(Default)]
pub(crate) struct Added(Vec<(String, Template)>);

impl Added {
    /// Reads the secrets. `legal` checks each name, and the part of its value that is the same for every event. An error
    /// that is found later would make every event dead.
    pub(crate) fn new(
        table: &Table,
        legal: impl Fn(&str, &str) -> Result<(), String>,
    ) -> Result<Self, ConfigError> {
        let mut added = Self::default();
        for (name, value) in &table.0 {
            let value = added.accept(name, value, &legal).map_err(|problem| {
                let name = name.escape_debug();
                ConfigError::at("headers", format!("cannot have `{name}`: {problem}"))
            })?;
            added.0.push((name.clone(), value));
        }
        Ok(added)
    }

    fn accept(
        &self,
        name: &str,
        value: &Value,
        legal: impl Fn(&str, &str) -> Result<(), String>,
    ) -> Result<Template, String> {
        if name.is_empty() || name.contains(char::is_control) {
            return Err("it is not a valid header name".to_owned());
        }
        if is_reserved(name) {
            let problem =
                "names that begin with `pillarbox-`, `ce-`, `cloudEvents-` or `cloudEvents:` are reserved";
            return Err(problem.to_owned());
        }
        if self.has(name) {
            return Err("it is there twice, in another spelling".to_owned());
        }
        let value = match value {
            Value::Made(template) => template.clone(),
            Value::Kept(secret) => {
                let text = secret.reveal().map_err(|error| format!("its value {error}"))?;
                Template::literal(&text)
            }
        };
        legal(name, &value.without_fields())?;
        Ok(value)
    }

    /// Is there a header of this name, in any spelling?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(added, _)| is_same(added, name))
    }

    /// The headers that are the same for every event, for a probe.
    pub(crate) fn constant(&self) -> impl Iterator<Item = (&str, String)> {
        let constant = self.0.iter().filter(|(_, value)| value.is_constant());
        constant.map(|(name, value)| (name.as_str(), value.without_fields()))
    }

    /// What may be secret: the texts of the configuration, also those between fields of the event.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let secret = self.0.iter().filter(|(name, _)| may_be_secret(name));
        secret
            .flat_map(|(_, value)| value.literals())
            .filter(|text| is_text(text))
    }

    /// The headers for one event. Rejects an event without a value that they need; the template is not shown.
    pub(super) fn render<'a>(
        &'a self,
        delivery: &Delivery,
        destination: &str,
    ) -> Result<Vec<Header<'a>>, Outcome> {
        let render = |(name, template): &'a (String, Template)| {
            let value = template.render(delivery, destination).map_err(|missing| {
                Outcome::reject(format!(
                    "the event has no `{}`, which the header `{name}` needs",
                    missing.field
                ))
            })?;
            Ok((name.as_str(), Cow::from(value)))
        };
        self.0.iter().map(render).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{of, with_added};
    use crate::sample::{added, delivery};
    use pillarbox::Event;

    fn anything(_: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn parse(text: &str) -> Result<Table, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    fn render(table: &Table, event: Event) -> Result<Vec<(String, String)>, Outcome> {
        let added = Added::new(table, anything).unwrap();
        let delivery = delivery(event);
        let rendered = added.render(&delivery, "queue")?;
        Ok(rendered
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into_owned()))
            .collect())
    }

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    #[test]
    fn a_text_is_a_template_and_what_is_kept_elsewhere_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "{topic}").unwrap();
        let text = format!("a = \"{{topic}}.{{{{x}}}}\"\nb = {{ file = {path:?} }}");
        let headers = render(&parse(&text).unwrap(), event()).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers, [pair("a", "orders.{x}"), pair("b", "{topic}")]);
    }

    #[test]
    fn a_text_that_is_no_template_is_refused_with_its_header() {
        let error = parse("x-type = \"{event_tpye}\"").unwrap_err();
        assert!(
            error.starts_with("`x-type`: `{event_tpye}` is unknown; the names are id, namespace,"),
            "{error}"
        );
    }

    #[test]
    fn a_value_is_never_printed() {
        let table = parse("x-token = \"hunter2 {severity}\"\nx-file = { env = \"HOME\" }").unwrap();
        assert!(!format!("{table:?}").contains("hunter2"));
        let shown = toml::to_string(&table).unwrap();
        assert!(
            shown.contains("x-token = \"***\"") && shown.contains("env = \"HOME\""),
            "{shown}"
        );
        let reason = format!("{:?}", render(&table, event()).unwrap_err());
        assert!(
            reason.contains("no `severity`, which the header `x-token` needs") && !reason.contains("hunter2"),
            "{reason}"
        );
        assert_eq!(
            parse("x-number = 4711").unwrap_err().lines().next(),
            Some("expected a text; put it in quotes")
        );
    }

    #[test]
    fn a_name_that_no_message_can_have_is_refused() {
        for (headers, said) in [
            (&[("", "x")][..], "``: it is not a valid header name"),
            (&[("a\nb", "x")], "`a\\nb`: it is not a valid header name"),
            (&[("Pillarbox-Id", "x")], "`Pillarbox-Id`: names that begin with"),
            (
                &[("cloudEvents_id", "x")],
                "`cloudEvents_id`: names that begin with",
            ),
            (&[("CE-Id", "x")], "`CE-Id`: names that begin with"),
            (&[("X-A", "x"), ("x_a", "x")], "`x_a`: it is there twice"),
        ] {
            let error = added(headers, anything).err().unwrap();
            assert_eq!(error.key, "headers");
            assert!(error.problem.contains(said), "{error}");
        }
        let table = Table::new([("x-token", Secret::env("PILLARBOX_NO_SUCH_VARIABLE"))]).unwrap();
        let error = Added::new(&table, anything).err().unwrap().to_string();
        assert!(
            error.starts_with(
                "`headers` cannot have `x-token`: its value comes from the environment variable"
            ),
            "{error}"
        );
    }

    #[test]
    fn what_is_added_stands_in_the_place_of_the_events_own() {
        let added = added(&[("X-Region", "{header.x-region}!")], anything).unwrap();
        let event = event().header("x-region", "eu").header("x_region", "forged");
        let delivery = delivery(event.header("x-own", "kept"));
        let headers = with_added(of(&delivery), &delivery, "queue", &added).unwrap();
        let own: Vec<_> = headers
            .iter()
            .filter(|(name, _)| !is_reserved(name))
            .map(|(name, value)| (*name, value.as_ref()))
            .collect();
        assert_eq!(own, [("x-own", "kept"), ("X-Region", "eu!")]);
    }
}
