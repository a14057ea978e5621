//! Durations and sizes as people write them: `"20s"`, `"32MiB"`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A duration, written `"20s"`, `"500ms"`, `"1h 30m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// A number of bytes, written `"32MiB"`, `"64KiB"` or as a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

/// A number of attempts, or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempts {
    /// At most this many, at least one.
    AtMost(u32),
    /// For ever.
    Unlimited,
}

/// One text or a list of texts. What is not written is no text at all; an empty list is refused, because nobody can
/// tell whether it means everything or nothing.
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
                        "the list is empty; write what is meant, or remove the key",
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

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"16MiB\", \"64KiB\" or a number of bytes")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                usize::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                parse_size(text)
                    .map(Size)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Attempts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Attempts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of attempts from 1 on, or \"unlimited\"")
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

/// Powers of 1024 only: "MB" means two things to two people, and is refused.
fn parse_size(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_nothing_else() {
        assert_eq!(parse_size("16MiB"), Some(16 * 1024 * 1024));
        assert_eq!(parse_size("64 KiB"), Some(65_536));
        assert_eq!(parse_size("12"), Some(12));
        for wrong in ["", "MiB", "16MB", "1.5GiB", "-1", "99999999999999999999GiB"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
