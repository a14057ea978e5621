//! Names made from an event: routing keys, Kafka topics, paths.
//!
//! ```text
//! arap.{event_type}                  a field of the event
//! {ordering_key|aggregate_id}        the first one that the event has
//! tenants/{header.region}/{{x}}      a header; literal braces
//! ```
//!
//! There are no functions and no conditions. A template is checked when the configuration is read. An event without the
//! value is rejected, because no later attempt would have it.

use std::borrow::Cow;
use std::fmt;

use pillarbox::Delivery;
use serde::{Deserialize, Serialize};

/// A text with placeholders for fields of an event.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// The first of these that the event has.
    Value(Vec<Field>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Id,
    Namespace,
    Topic,
    EventType,
    EventVersion,
    AggregateType,
    AggregateId,
    TenantId,
    OrderingKey,
    DedupeKey,
    Severity,
    Destination,
    Header(String),
}

/// The names that a template may use, beside `header.NAME`.
const NAMES: [(&str, Field); 12] = [
    ("id", Field::Id),
    ("namespace", Field::Namespace),
    ("topic", Field::Topic),
    ("event_type", Field::EventType),
    ("event_version", Field::EventVersion),
    ("aggregate_type", Field::AggregateType),
    ("aggregate_id", Field::AggregateId),
    ("tenant_id", Field::TenantId),
    ("ordering_key", Field::OrderingKey),
    ("dedupe_key", Field::DedupeKey),
    ("severity", Field::Severity),
    ("destination", Field::Destination),
];

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// An unknown name.
    #[error("`{{{name}}}` is unknown; the names are {}, and header.NAME", known())]
    Unknown {
        /// The name.
        name: String,
    },
    /// `{` without `}`.
    #[error("a `{{` is not closed; write `{{{{` for a literal brace")]
    Unclosed,
    /// `}` without `{`.
    #[error("a `}}` has no `{{`; write `}}}}` for a literal brace")]
    Unopened,
}

/// What the text between two values consists of, character by character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    /// No value has this character.
    Foreign,
    /// A value may have it, unless it is refused.
    Common,
    /// It divides nothing.
    Part,
}

/// Two values that nothing divides: `a`, `bc` and `ab`, `c` would give the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undivided;

/// What a value may consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// Of one length, or the same for every event.
    Fixed,
    /// Digits.
    Number,
    /// Anything.
    Text,
}

fn known() -> String {
    NAMES.map(|(name, _)| name).join(", ")
}

/// The event has no value for a placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the event has no `{field}`, which the template `{template}` needs")]
pub struct Missing {
    /// The missing field.
    pub field: String,
    /// The template.
    pub template: String,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// When a brace has no pair or a name is unknown.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = source;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if after.starts_with(brace) {
                literal.push_str(brace);
                rest = &after[1..];
                continue;
            }
            if brace == "}" {
                return Err(TemplateError::Unopened);
            }
            let end = after.find(['{', '}']).ok_or(TemplateError::Unclosed)?;
            if after[end..].starts_with('{') {
                return Err(TemplateError::Unclosed);
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(Part::Value(alternatives(&after[..end])?));
            rest = &after[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self {
            source: source.to_owned(),
            parts,
        })
    }

    /// A template without placeholders.
    pub fn literal(text: &str) -> Self {
        Self {
            source: text.replace('{', "{{").replace('}', "}}"),
            parts: vec![Part::Literal(text.to_owned())],
        }
    }

    /// The text as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Is it the same for every event?
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// Is it one field, without text beside it?
    pub(crate) fn is_one_field(&self) -> bool {
        matches!(self.parts[..], [Part::Value(_)])
    }

    /// The text up to the first field.
    pub fn literal_start(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            Some(Part::Value(_)) | None => "",
        }
    }

    /// The text without its placeholders.
    pub fn without_fields(&self) -> String {
        self.literals().collect()
    }

    /// The texts between its placeholders.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(text) => Some(text.as_str()),
            Part::Value(_) => None,
        })
    }

    /// What no value of [text](Form::Text) may contain, so that two events with other values never give the same text: the
    /// characters that alone divide two such values, such as the `-` in `{namespace}-{topic}`.
    ///
    /// A value of a fixed form is found again by its length, so it divides nothing and needs no limit.
    pub(crate) fn dividers(&self, joint: impl Fn(char) -> Joint) -> Result<String, Undivided> {
        let mut dividers = String::new();
        // The text since the last value, and since the last one of text; `None` before the first.
        let (mut since_any, mut since_text): (Option<String>, Option<String>) = (None, None);
        for part in &self.parts {
            let form = match part {
                Part::Literal(text) => {
                    let gaps = [&mut since_any, &mut since_text].into_iter().flatten();
                    gaps.for_each(|gap| gap.push_str(text));
                    continue;
                }
                Part::Value(fields) => fields.iter().map(Field::form).max(),
            };
            if form == Some(Form::Fixed) {
                continue;
            }
            let is_divided = |gap: &String| gap.chars().any(|c| joint(c) != Joint::Part);
            if since_any.as_ref().is_some_and(|gap| !is_divided(gap)) {
                return Err(Undivided);
            }
            since_any = Some(String::new());
            if form == Some(Form::Text) {
                let gap = since_text.replace(String::new()).unwrap_or_default();
                if gap.chars().all(|c| joint(c) != Joint::Foreign) {
                    dividers.extend(gap.chars().filter(|c| joint(*c) == Joint::Common));
                }
            }
        }
        Ok(dividers)
    }

    /// Fills in the fields of an event for the named destination.
    ///
    /// # Errors
    /// When the event has no value for a placeholder.
    pub fn render(&self, delivery: &Delivery, destination: &str) -> Result<String, Missing> {
        self.render_with(delivery, destination, |value, _, out| out.push_str(value))
    }

    /// The [part](pillarbox::Sink::part) of a destination that an event goes to, if the text depends on the event.
    pub(crate) fn part(&self, delivery: &Delivery, destination: &str) -> Option<String> {
        if self.is_constant() {
            return None;
        }
        self.render(delivery, destination).ok()
    }

    /// Fills in the fields of an event. `write` writes each value, for escaping, and learns its form.
    ///
    /// # Errors
    /// When the event has no value for a placeholder.
    pub(crate) fn render_with(
        &self,
        delivery: &Delivery,
        destination: &str,
        write: impl Fn(&str, Form, &mut String),
    ) -> Result<String, Missing> {
        let mut out = String::with_capacity(self.source.len() + 32);
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Value(fields) => {
                    let value = fields
                        .iter()
                        .find_map(|field| Some((field.of(delivery, destination)?, field.form())));
                    let (value, form) = value.ok_or_else(|| self.missing(fields))?;
                    write(&value, form, &mut out);
                }
            }
        }
        Ok(out)
    }

    fn missing(&self, fields: &[Field]) -> Missing {
        let names: Vec<String> = fields.iter().map(Field::to_string).collect();
        Missing {
            field: names.join("` and no `"),
            template: self.source.clone(),
        }
    }
}

fn alternatives(text: &str) -> Result<Vec<Field>, TemplateError> {
    text.split('|').map(Field::parse).collect()
}

impl Field {
    fn parse(name: &str) -> Result<Self, TemplateError> {
        if let Some(header) = name.strip_prefix("header.").filter(|header| !header.is_empty()) {
            return Ok(Self::Header(header.to_owned()));
        }
        let found = NAMES.into_iter().find(|(known, _)| *known == name);
        found
            .map(|(_, field)| field)
            .ok_or_else(|| TemplateError::Unknown {
                name: name.to_owned(),
            })
    }

    fn form(&self) -> Form {
        match self {
            Self::Id | Self::TenantId | Self::Destination => Form::Fixed,
            Self::EventVersion => Form::Number,
            Self::Namespace
            | Self::Topic
            | Self::EventType
            | Self::AggregateType
            | Self::AggregateId
            | Self::OrderingKey
            | Self::DedupeKey
            | Self::Severity
            | Self::Header(_) => Form::Text,
        }
    }

    fn of<'a>(&self, delivery: &'a Delivery, destination: &'a str) -> Option<Cow<'a, str>> {
        let event = &delivery.event;
        let text = match self {
            Self::Id => return Some(event.id.to_string().into()),
            Self::EventVersion => return Some(event.event_version.to_string().into()),
            Self::TenantId => return event.tenant_id.map(|tenant| tenant.to_string().into()),
            Self::Namespace => Some(&event.namespace),
            Self::Topic => Some(&event.topic),
            Self::EventType => event.event_type.as_ref(),
            Self::AggregateType => event.aggregate_type.as_ref(),
            Self::AggregateId => event.aggregate_id.as_ref(),
            Self::OrderingKey => event.ordering_key.as_ref(),
            Self::DedupeKey => event.dedupe_key.as_ref(),
            Self::Severity => event.severity.as_ref(),
            Self::Destination => return Some(destination.into()),
            Self::Header(name) => event.headers.get(name),
        };
        text.map(|text| text.as_str().into())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header.{name}"),
            other => {
                let name = NAMES.iter().find(|(_, field)| field == other);
                f.write_str(name.map_or("?", |(name, _)| name))
            }
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, f)
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(source: String) -> Result<Self, TemplateError> {
        Self::parse(&source)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> Self {
        template.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use pillarbox::Event;
    use proptest::{prop_assert_eq, proptest};

    fn render(template: &str, event: Event) -> Result<String, String> {
        Template::parse(template)
            .unwrap()
            .render(&delivery(event), "queue")
            .map_err(|missing| missing.to_string())
    }

    fn event() -> Event {
        Event::new("shop", "orders").event_type("OrderCreated").version(2)
    }

    #[test]
    fn fields_are_filled_in() {
        assert_eq!(render("arap.{event_type}", event()).unwrap(), "arap.OrderCreated");
        assert_eq!(
            render("{namespace}/{topic}.v{event_version}@{destination}", event()).unwrap(),
            "shop/orders.v2@queue"
        );
        let with_header = event().header("x-region", "eu");
        assert_eq!(render("{header.x-region}", with_header).unwrap(), "eu");
        let one = event();
        let id = one.id.to_string();
        assert_eq!(render("{id}", one).unwrap(), id);
    }

    #[test]
    fn every_known_name_can_be_rendered() {
        let full = event()
            .aggregate("order", "1")
            .tenant(uuid::Uuid::nil())
            .ordering_key("k")
            .dedupe_key("d")
            .severity("low");
        for (name, _) in NAMES {
            assert!(render(&format!("{{{name}}}"), full.clone()).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_first_alternative_that_is_there_counts() {
        let template = "{ordering_key|aggregate_id}";
        assert_eq!(render(template, event().aggregate("order", "42")).unwrap(), "42");
        let both = event().aggregate("order", "42").ordering_key("k");
        assert_eq!(render(template, both).unwrap(), "k");
    }

    #[test]
    fn a_missing_value_is_named() {
        assert_eq!(
            render("x.{severity}", event()).unwrap_err(),
            "the event has no `severity`, which the template `x.{severity}` needs"
        );
        assert_eq!(
            render("{ordering_key|header.a}", event()).unwrap_err(),
            "the event has no `ordering_key` and no `header.a`, which the template `{ordering_key|header.a}` needs"
        );
    }

    #[test]
    fn doubled_braces_mean_themselves() {
        assert_eq!(
            render("{{topic}} {{{topic}}}", event()).unwrap(),
            "{topic} {orders}"
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = Template::parse("{event-type}").unwrap_err().to_string();
        assert!(
            error.starts_with("`{event-type}` is unknown; the names are id, namespace, topic,"),
            "{error}"
        );
        assert!(error.ends_with("and header.NAME"), "{error}");
        for source in ["{}", "{header.}", "{topic|}", "{ topic }"] {
            assert!(
                matches!(Template::parse(source), Err(TemplateError::Unknown { .. })),
                "{source}"
            );
        }
    }

    #[test]
    fn a_lonely_brace_is_refused() {
        assert_eq!(Template::parse("{topic"), Err(TemplateError::Unclosed));
        assert_eq!(Template::parse("{to{pic}"), Err(TemplateError::Unclosed));
        assert_eq!(Template::parse("topic}"), Err(TemplateError::Unopened));
    }

    #[test]
    fn what_comes_before_the_first_field_is_known() {
        let template = Template::parse("https://a/{topic}").unwrap();
        assert_eq!(template.literal_start(), "https://a/");
        assert!(!template.is_constant());
        assert_eq!(template.without_fields(), "https://a/");
        assert!(Template::parse("plain").unwrap().is_constant());
    }

    /// `.` is in no value, and letters and digits divide nothing.
    fn dividers(template: &str) -> Result<String, Undivided> {
        Template::parse(template).unwrap().dividers(|c| match c {
            '.' => Joint::Foreign,
            c if c.is_alphanumeric() => Joint::Part,
            _ => Joint::Common,
        })
    }

    #[test]
    fn what_alone_divides_two_values_is_in_neither() {
        for (template, expected) in [
            ("{topic}", ""),
            ("a-{topic}_b", ""),
            ("{namespace}-{topic}", "-"),
            ("{namespace}-x_{header.a}", "-_"),
            ("{namespace}.{topic}", ""),
            ("{namespace}-.{topic}", ""),
            ("{namespace}.{topic}-{event_type}", "-"),
            ("{tenant_id}-{topic}", ""),
            ("{topic}{tenant_id}", ""),
            ("{destination}-{topic}", ""),
            ("{topic}-v{event_version}", ""),
            ("{topic}-{event_version}_{event_type}", "-_"),
            ("{topic}-{tenant_id}-{event_type}", "--"),
            ("{tenant_id|topic}-{event_type}", "-"),
        ] {
            assert_eq!(dividers(template), Ok(expected.to_owned()), "{template}");
        }
        for template in [
            "{namespace}{topic}",
            "{namespace}x{topic}",
            "{topic}{event_version}",
            "{topic}v{event_version}",
            "{topic}{tenant_id}{event_type}",
        ] {
            assert_eq!(dividers(template), Err(Undivided), "{template}");
        }
    }

    proptest! {
        #[test]
        fn other_values_give_another_text(
            template in "(-|_|x|\\{topic\\}|\\{event_type\\}|\\{tenant_id\\}|\\{event_version\\}){1,7}",
            one in ("[a1x_-]{1,4}", "[a1x_-]{1,4}", 1..30i32, 1..3u128),
            other in ("[a1x_-]{1,4}", "[a1x_-]{1,4}", 1..30i32, 1..3u128),
        ) {
            let Ok(dividers) = dividers(&template) else { return Ok(()) };
            let template = Template::parse(&template).unwrap();
            let values = |(topic, kind, version, tenant): &(String, String, i32, u128)| {
                let event = Event::new("shop", topic.as_str()).event_type(kind.as_str());
                let event = event.version(*version).tenant(uuid::Uuid::from_u128(*tenant));
                let values = std::cell::RefCell::new(Vec::new());
                let write = |value: &str, form: Form, out: &mut String| {
                    values.borrow_mut().push((value.to_owned(), form));
                    out.push_str(value);
                };
                let text = template.render_with(&delivery(event), "queue", write).unwrap();
                (text, values.into_inner())
            };
            let ((one, of_one), (other, of_other)) = (values(&one), values(&other));
            let may = |(value, form): &(String, Form)| *form != Form::Text || !value.contains(|c| dividers.contains(c));
            if one == other && of_one.iter().chain(&of_other).all(may) {
                prop_assert_eq!(of_one, of_other, "{:?}", template);
            }
        }

        #[test]
        fn parsing_and_rendering_never_panic(source in "([{}|.é]|topic|event_type|header|severity){0,12}") {
            if let Ok(template) = Template::parse(&source) {
                template.render(&delivery(event()), "queue").ok();
            }
        }

        #[test]
        fn an_escaped_literal_comes_back_as_it_was(text in "\\PC{0,40}") {
            let source = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(render(&source, event()).unwrap(), text.as_str());
            let literal = Template::literal(&text);
            prop_assert_eq!(literal.source(), source);
            prop_assert_eq!(literal.without_fields(), text.as_str());
            prop_assert_eq!(literal.render(&delivery(event()), "queue").unwrap(), text);
        }
    }
}
