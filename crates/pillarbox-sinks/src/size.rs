//! Sizes in text: `"16MiB"`, `"64KiB"`, or a plain number of bytes.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub usize);

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
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
                    .map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                parse(text)
                    .map(Size)
                    .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Powers of 1024 only. "MB" is ambiguous, and refused.
fn parse(text: &str) -> Option<usize> {
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
        assert_eq!(parse("16MiB"), Some(16 * 1024 * 1024));
        assert_eq!(parse("64 KiB"), Some(65_536));
        assert_eq!(parse("12"), Some(12));
        for wrong in ["", "MiB", "16MB", "1.5GiB", "-1", "99999999999999999999GiB"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
