//! Values that must not be printed: passwords, tokens, and URLs with them.
//!
//! A secret is in the configuration, or in an environment variable or file that the configuration names:
//!
//! ```toml
//! password = "inline"
//! password = { env = "RABBITMQ_PASSWORD" }
//! password = { file = "/run/secrets/rabbitmq" }
//! ```
//!
//! It prints as `***`. The variable and the file are read when the sink is built, so their value is never in the
//! configuration itself.

use std::fmt;
use std::path::PathBuf;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Inline(String),
    Env(String),
    File(PathBuf),
}

/// Why a secret could not be read. The error never has its value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set, or is not UTF-8.
    #[error("comes from the environment variable {0}, which is not set")]
    Env(String),
    /// The file cannot be read.
    #[error("comes from the file {}, which cannot be read: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file is empty.
    #[error("comes from the file {}, which is empty", .0.display())]
    Empty(PathBuf),
}

impl Secret {
    /// A secret in the configuration.
    pub fn inline(value: impl Into<String>) -> Self {
        Self(Source::Inline(value.into()))
    }

    /// A secret in an environment variable.
    pub fn env(name: impl Into<String>) -> Self {
        Self(Source::Env(name.into()))
    }

    /// A secret in a file. One line break at its end is removed.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// The value, if it is in the configuration. It must not be printed.
    pub(crate) fn as_inline(&self) -> Option<&str> {
        match &self.0 {
            Source::Inline(value) => Some(value),
            Source::Env(_) | Source::File(_) => None,
        }
    }

    /// Reads the secret. The result must not be printed.
    ///
    /// # Errors
    /// When the variable is not set, or the file cannot be read.
    pub fn reveal(&self) -> Result<String, SecretError> {
        match &self.0 {
            Source::Inline(value) => Ok(value.clone()),
            Source::Env(name) => std::env::var(name).map_err(|_| SecretError::Env(name.clone())),
            Source::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| SecretError::File {
                    path: path.clone(),
                    error,
                })?;
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                if text.is_empty() {
                    return Err(SecretError::Empty(path.clone()));
                }
                Ok(text.to_owned())
            }
        }
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self::inline(value)
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::inline(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Shows the variable or file; an inline value is `***`.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, value) = match &self.0 {
            Source::Inline(_) => return serializer.serialize_str("***"),
            Source::Env(name) => ("env", name.clone()),
            Source::File(path) => ("file", path.display().to_string()),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(key, &value)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a text, { env = "NAME" } or { file = "/path" }"#)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Secret, E> {
        Ok(Secret::inline(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
        let wrong =
            || de::Error::custom(r#"expected exactly one of { env = "NAME" } and { file = "/path" }"#);
        let (key, value) = map.next_entry::<String, String>()?.ok_or_else(wrong)?;
        if map.next_key::<String>()?.is_some() {
            return Err(wrong());
        }
        match key.as_str() {
            "env" => Ok(Secret::env(value)),
            "file" => Ok(Secret::file(value)),
            _ => Err(wrong()),
        }
    }

    // The value may be a password of digits. The message of serde would print it.
    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::custom("expected a text; put it in quotes"))
    }
    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Secret, E> {
        Err(E::custom("expected a text; put it in quotes"))
    }
    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Secret, E> {
        Err(E::custom("expected a text; put it in quotes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, Serialize)]
    struct Holder {
        password: Secret,
    }

    fn parse(text: &str) -> Result<Secret, String> {
        toml::from_str::<Holder>(text)
            .map(|holder| holder.password)
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_secret_is_never_printed() {
        let holder: Holder = toml::from_str(r#"password = "hunter2""#).unwrap();
        assert_eq!(holder.password.reveal().unwrap(), "hunter2");
        assert_eq!(format!("{}", holder.password), "***");
        assert_eq!(format!("{holder:?}"), "Holder { password: *** }");
        assert_eq!(toml::to_string(&holder).unwrap().trim(), r#"password = "***""#);
    }

    #[test]
    fn a_secret_comes_from_the_environment_or_says_what_to_set() {
        let there = parse(r#"password = { env = "PATH" }"#).unwrap();
        assert_eq!(there.reveal().unwrap(), std::env::var("PATH").unwrap());
        let missing = parse(r#"password = { env = "PILLARBOX_NO_SUCH_VARIABLE" }"#).unwrap();
        let error = missing.reveal().unwrap_err().to_string();
        assert!(
            error.contains("PILLARBOX_NO_SUCH_VARIABLE, which is not set"),
            "{error}"
        );
    }

    #[test]
    fn a_secret_comes_from_a_file_without_its_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "hunter2 \r\n").unwrap();
        assert_eq!(Secret::file(&path).reveal().unwrap(), "hunter2 ");
        std::fs::write(&path, "\n").unwrap();
        assert!(
            Secret::file(&path)
                .reveal()
                .unwrap_err()
                .to_string()
                .contains("is empty")
        );
        std::fs::remove_file(&path).unwrap();
        assert!(
            Secret::file(&path)
                .reveal()
                .unwrap_err()
                .to_string()
                .contains("cannot be read")
        );
    }

    #[test]
    fn anything_else_is_refused_without_being_printed() {
        for text in [
            "password = 4711",
            "password = { env = \"A\", file = \"4711\" }",
            "password = { value = \"4711\" }",
            "password = {}",
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("4711"), "{text}: {error}");
        }
    }
}
