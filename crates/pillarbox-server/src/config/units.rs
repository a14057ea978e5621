//! The types of values: durations `"20s"`, attempts, lists of texts.

use std::fmt;
use std::time::Duration;

pub(crate) use pillarbox_sinks::size::Size;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A duration, written `"20s"`, `"500ms"`, `"1h 30m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// How long something is kept: a duration, or `"never"` if it is never deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) Option<Duration>);

/// An age as operators think of it: in days, not in months.
pub(crate) fn in_days(age: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match age.as_secs() {
        DAY if age.subsec_nanos() == 0 => "1 day".to_owned(),
        seconds if seconds >= DAY && seconds.is_multiple_of(DAY) && age.subsec_nanos() == 0 => {
            format!("{} days", seconds / DAY)
        }
        _ => humantime::format_duration(age).to_string(),
    }
}

/// A number of attempts, or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempts {
    /// At most this many, at least one.
    AtMost(u32),
    /// No limit.
    Unlimited,
}

/// One text or a list of texts. An empty list is rejected, because it is unclear whether it means everything or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Texts {
    /// Not written.
    #[default]
    None,
    /// `"orders"`
    One(String),
    /// `["orders", "carts.*"]`
    Many(Vec<String>),
}

impl Texts {
    /// The texts.
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }

    /// Each text with the path at which it is written, under that of the whole.
    pub(crate) fn with_paths(&self, path: &str) -> Vec<(String, &str)> {
        match self {
            Self::None => Vec::new(),
            Self::One(text) => vec![(path.to_owned(), text)],
            Self::Many(texts) => (texts.iter().enumerate())
                .map(|(index, text)| (format!("{path}.{index}"), text.as_str()))
                .collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = items.next_element()? {
                    texts.push(text);
                }
                if texts.is_empty() {
                    return Err(A::Error::custom(
                        "the list is empty (add a value, or remove the key)",
                    ));
                }
                Ok(Texts::Many(texts))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"20s\", \"500ms\" or \"1h 30m\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                humantime::parse_duration(text)
                    .map(Span)
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Kept;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"7 days\" or \"12h\", or \"never\" to delete nothing")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Kept, E> {
                if text == "never" {
                    return Ok(Kept(None));
                }
                humantime::parse_duration(text)
                    .map(|age| Kept(Some(age)))
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

impl<'de> Deserialize<'de> for Attempts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Attempts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of attempts of at least 1, or \"unlimited\"")
            }

            fn visit_i64<E: Error>(self, attempts: i64) -> Result<Attempts, E> {
                match u32::try_from(attempts) {
                    Ok(attempts @ 1..) => Ok(Attempts::AtMost(attempts)),
                    Ok(0) | Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(attempts), &self)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Attempts, E> {
                match text {
                    "unlimited" => Ok(Attempts::Unlimited),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
