//! Durations in text: `"20s"`, `"5ms"`, `"1m 30s"`.
//!
//! For `#[serde(with = "pillarbox_sinks::duration")]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes a duration as text.
///
/// # Errors
/// When the serialiser cannot write a text.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

/// Reads a duration from text.
///
/// # Errors
/// When the text is not a duration. The error shows an example.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(|error| {
        de::Error::custom(format!(
            "`{text}` is not a duration ({error}); write for example \"20s\""
        ))
    })
}
