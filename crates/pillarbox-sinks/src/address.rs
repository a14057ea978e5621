//! Where a message goes, made from an event: a routing key, a topic, a subject or the key of a stream.
//!
//! A producer chooses the values, so they are checked:
//!
//! * No value is empty, has an empty word, a wildcard of subscriptions, white space or a control character.
//! * A value beside other text is one word. Otherwise the topic `x.billing` would make `shop.x.billing` of `shop.{topic}`.
//! * A value has none of the characters that alone divide it from another: `{namespace}-{topic}` would go to one place for `a-b` and `c`,
//!   and for `a` and `b-c`.
//! * With `allow` in the configuration, the whole text matches one of its patterns, and a value may have several words.
//!
//! An event that breaks a rule is rejected: no later attempt would pass. Others are not affected.

use std::cell::Cell;

use pillarbox::{Delivery, Outcome};

use crate::registry::ConfigError;
use crate::template::{Form, Joint, Template};

/// How much of a text a reason shows.
const MAX_SHOWN: usize = 100;

/// A checked template.
#[derive(Debug)]
pub(crate) struct Address {
    /// The key of the template in the configuration.
    key: &'static str,
    template: Template,
    allow: Vec<String>,
    /// Divides words.
    separator: char,
    /// What a value cannot have: the separator, and the punctuation beside the values. Empty if a value may have several words.
    between: String,
    /// What alone divides two values, so that neither can have it.
    dividers: String,
}

impl Address {
    /// The template under `key`, and the patterns of `allow`: a text, a beginning such as `orders.*`, or `*`.
    pub(crate) fn new(
        key: &'static str,
        template: &Template,
        allow: &[String],
        separator: char,
    ) -> Result<Self, ConfigError> {
        for pattern in allow {
            let text = pattern.strip_suffix('*').unwrap_or(pattern);
            if pattern.is_empty() || text.contains('*') {
                let pattern = pattern.escape_debug();
                let problem = format!(
                    "cannot have `{pattern}`; write a text, or its beginning and `*`, such as \"orders.*\""
                );
                return Err(ConfigError::at("allow", problem));
            }
        }
        if !allow.is_empty() && template.is_constant() {
            let problem = format!("has no effect, because `{key}` is the same for every event; remove it");
            return Err(ConfigError::at("allow", problem));
        }
        let is_bounded = allow.is_empty() && !template.is_one_field();
        let literals = template.without_fields();
        let punctuation = literals
            .chars()
            .filter(|c| !c.is_alphanumeric() && !matches!(c, '-' | '_'));
        let between: String = punctuation.chain([separator]).filter(|_| is_bounded).collect();
        let joint = |c: char| match c {
            c if between.contains(c) => Joint::Foreign,
            c if c.is_alphanumeric() => Joint::Part,
            _ => Joint::Common,
        };
        let dividers = if is_bounded {
            template.dividers(joint)
        } else {
            Ok(String::new())
        };
        let dividers = dividers.map_err(|_| {
            let problem = format!(
                "has two values that nothing divides, so that `a` and `bc` would go where `ab` and `c` go; write `{separator}` between \
                 them, or list what is right in `allow`"
            );
            ConfigError::at(key, problem)
        })?;
        Ok(Self {
            key,
            template: template.clone(),
            allow: allow.to_vec(),
            separator,
            between,
            dividers,
        })
    }

    /// The text, if it is the same for every event.
    pub(crate) fn constant(&self) -> Option<&str> {
        self.template.is_constant().then(|| self.template.source())
    }

    /// The part of the destination that an event goes to.
    pub(crate) fn part(&self, delivery: &Delivery, destination: &str) -> Option<String> {
        self.template.part(delivery, destination)
    }

    /// Where this event goes.
    pub(crate) fn render(&self, delivery: &Delivery, destination: &str) -> Result<String, Outcome> {
        let problem = Cell::new(None);
        let write = |value: &str, form: Form, out: &mut String| {
            problem.set(problem.get().or_else(|| self.problem(value, form)));
            out.push_str(value);
        };
        let rendered = self.template.render_with(delivery, destination, write);
        let text = rendered.map_err(|missing| Outcome::reject(missing.to_string()))?;
        let problem = problem.get().or_else(|| {
            let is_allowed =
                self.allow.is_empty() || self.allow.iter().any(|pattern| matches(pattern, &text));
            (!is_allowed).then_some("the destination's `allow` does not list it")
        });
        let Some(problem) = problem else { return Ok(text) };
        let shown: String = text.chars().take(MAX_SHOWN).collect();
        Err(Outcome::reject(format!(
            "`{}` would be `{}`: {problem}",
            self.key,
            shown.escape_debug()
        )))
    }

    fn problem(&self, value: &str, form: Form) -> Option<&'static str> {
        if value.is_empty() {
            Some("a value is empty")
        } else if value.contains(['*', '#', '>']) {
            Some("a value has a wildcard of subscriptions (`*`, `#` or `>`)")
        } else if value.contains(|c: char| c.is_whitespace() || c.is_control()) {
            Some("a value has white space or a control character")
        } else if value.contains(|c| self.between.contains(c)) {
            Some("a value has more than one word (list what is right in the destination's `allow`)")
        } else if form == Form::Text && value.contains(|c| self.dividers.contains(c)) {
            Some(
                "a value has what divides it from another value (list what is right in the destination's `allow`)",
            )
        } else if value.split(self.separator).any(str::is_empty) {
            Some("a value has an empty word")
        } else {
            None
        }
    }
}

/// Is the text this one, or does it begin with what stands before a `*`?
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start) && text.len() > start.len(),
        None => text == pattern,
    }
}

/// The address of tests.
#[cfg(test)]
pub(crate) fn address(key: &'static str, template: &str, separator: char) -> Address {
    Address::new(key, &Template::parse(template).unwrap(), &[], separator).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use pillarbox::Event;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    fn with(template: &str, allow: &[&str]) -> Result<Address, ConfigError> {
        let allow: Vec<String> = allow.iter().map(|&pattern| pattern.to_owned()).collect();
        Address::new("topic", &Template::parse(template).unwrap(), &allow, '.')
    }

    fn render(template: &str, allow: &[&str], topic: &str) -> Result<String, String> {
        let address = with(template, allow).unwrap();
        let rendered = address.render(&delivery(Event::new("shop", topic)), "queue");
        rendered.map_err(|outcome| match outcome {
            Outcome::Reject { reason } => reason,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_value_beside_other_text_is_one_word() {
        assert_eq!(
            render("shop.{topic}", &[], "orders-1_é").unwrap(),
            "shop.orders-1_é"
        );
        assert_eq!(
            render("shop.{topic}", &[], "x.billing").unwrap_err(),
            "`topic` would be `shop.x.billing`: a value has more than one word (list what is right in the destination's `allow`)"
        );
        let colon = Address::new("stream", &Template::parse("s:{topic}").unwrap(), &[], '.').unwrap();
        let outcome = colon.render(&delivery(Event::new("shop", "a:b")), "queue");
        assert_eq!(outcome.unwrap_err().name(), "reject");
    }

    /// Otherwise the tenant `a` would reach the queue of the tenant `a-b`.
    #[test]
    fn two_values_share_no_character_that_divides_them() {
        let go = |template: &str, allow: &[&str], namespace: &str, topic: &str| {
            let event = Event::new(namespace, topic);
            with(template, allow)
                .unwrap()
                .render(&delivery(event), "queue")
                .ok()
        };
        let both = "{namespace}-{topic}";
        for (namespace, topic) in [("a-b", "c"), ("a", "b-c")] {
            assert_eq!(go(both, &[], namespace, topic), None);
            let there = go(both, &["a-b-c"], namespace, topic);
            assert_eq!(there.as_deref(), Some("a-b-c"), "the operator lists it");
        }
        assert_eq!(go(both, &[], "a_b", "c").as_deref(), Some("a_b-c"));
        assert_eq!(
            go("{namespace}.{topic}", &[], "a-b", "c").as_deref(),
            Some("a-b.c")
        );
        assert_eq!(
            go("{topic}-v{event_version}", &[], "a", "b-c").as_deref(),
            Some("b-c-v1")
        );
        let tenant = uuid::Uuid::from_u128(7);
        let event = Event::new("a", "b-c").tenant(tenant);
        let there = with("{tenant_id}-{topic}", &[])
            .unwrap()
            .render(&delivery(event), "queue");
        assert_eq!(
            there,
            Ok(format!("{tenant}-b-c")),
            "a UUID is found again by its length"
        );

        let refused = with("{namespace}{topic}", &[]).unwrap_err();
        assert_eq!(refused.key, "topic");
        assert!(refused.problem.contains("nothing divides"), "{refused}");
        assert!(with("{namespace}{topic}", &["*"]).is_ok());
    }

    #[test]
    fn a_value_that_is_the_whole_text_may_have_several_words() {
        assert_eq!(
            render("{topic}", &[], "orders.created").unwrap(),
            "orders.created"
        );
    }

    #[test]
    fn what_no_value_can_have_is_rejected_in_every_template() {
        for topic in ["a.", ".a", "a..b", "*", "a.#", "a>", "a b", "a\tb", "a\n"] {
            for template in ["{topic}", "shop.{topic}", "{topic}.v1"] {
                for allow in [&[][..], &["*"]] {
                    assert!(render(template, allow, topic).is_err(), "{template} {topic}");
                }
            }
        }
        let empty = with("{header.x}", &[]).unwrap();
        let outcome = empty.render(&delivery(Event::new("shop", "orders").header("x", "")), "queue");
        assert_eq!(
            outcome,
            Err(Outcome::reject("`topic` would be ``: a value is empty"))
        );
    }

    #[test]
    fn only_what_is_allowed_is_sent() {
        let allow = &["shop.orders", "shop.returns.*"];
        for topic in ["orders", "returns.eu", "returns.eu.berlin"] {
            assert_eq!(
                render("shop.{topic}", allow, topic).unwrap(),
                format!("shop.{topic}")
            );
        }
        for topic in ["order", "orders.x", "returns", "returns."] {
            let reason = render("shop.{topic}", allow, topic).unwrap_err();
            assert!(
                reason.starts_with(&format!("`topic` would be `shop.{topic}`: ")),
                "{reason}"
            );
        }
    }

    #[test]
    fn a_list_that_can_allow_nothing_is_refused() {
        for (template, pattern) in [
            ("{topic}", ""),
            ("{topic}", "a*b"),
            ("{topic}", "**"),
            ("orders", "orders"),
        ] {
            assert_eq!(with(template, &[pattern]).unwrap_err().key, "allow", "{pattern}");
        }
    }

    #[test]
    fn a_text_without_fields_is_the_operators_own() {
        assert_eq!(render("a..* b", &[], "x").unwrap(), "a..* b");
    }

    proptest! {
        #[test]
        fn an_event_never_adds_a_word(topic in "[a-z.:/*#> é]{1,12}", kind in "[a-z.]{1,6}") {
            let address = with("a.{topic}.{event_type}", &[]).unwrap();
            let event = Event::new("shop", topic.as_str()).event_type(kind.as_str());
            if let Ok(text) = address.render(&delivery(event), "queue") {
                prop_assert_eq!(text.split('.').count(), 3);
                prop_assert!(text.split('.').all(|word| !word.is_empty()));
            }
        }
    }
}
