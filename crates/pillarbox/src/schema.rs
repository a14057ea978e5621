//! The schema that holds an outbox in PostgreSQL, and what its database's error codes mean.

use crate::error::StoreError;

/// The schema that holds the outbox by default.
pub const SCHEMA: &str = "pillarbox";

/// The statement with another schema in it. Statements are written for `pillarbox` and are valid as they stand, so that
/// they can be tried by hand.
pub fn in_schema(text: &str, schema: &str) -> String {
    if schema == SCHEMA {
        text.to_owned()
    } else {
        text.replace("pillarbox.", &format!("\"{schema}\"."))
    }
}

/// A name between quotes, whatever it is.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Only names that mean the same with and without quotes.
///
/// # Errors
/// For any other name.
pub fn check_name(schema: &str) -> Result<(), StoreError> {
    let sound = !schema.is_empty()
        && schema.len() <= 63
        && !schema.starts_with(|c: char| c.is_ascii_digit())
        && schema
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if sound {
        return Ok(());
    }
    Err(StoreError::Invalid(format!(
        "{schema:?} cannot be the name of the schema (use lower-case letters, digits and underscores, at most 63)"
    )))
}

/// The error of the database, by its SQLSTATE.
pub fn error_of(code: &str, message: &str) -> StoreError {
    let text = format!("{message} ({code})");
    match code {
        // The table or the schema is not there.
        "42P01" | "3F000" => StoreError::Missing(text),
        "42501" => StoreError::Denied(text),
        _ if is_passing(code) => StoreError::Unavailable(text),
        _ => StoreError::Other(text),
    }
}

/// May a retry succeed? Yes for connections (08), a full or stopping server (53, 57), credentials and databases that are
/// still being set up (28, 3D000), deadlocks and serialisation failures (40), a lock timeout (55P03), and a server that
/// recovers or lost its disk (25006, 58).
fn is_passing(code: &str) -> bool {
    ["08", "28", "40", "53", "57", "58"]
        .iter()
        .any(|class| code.starts_with(class))
        || matches!(code, "3D000" | "55P03" | "25006")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_needs_quotes_is_refused() {
        for name in ["", "a b", "A", "1a", "a\"b", "a.b", &"a".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("my_outbox2").is_ok());
    }

    #[test]
    fn a_code_tells_whether_to_try_again() {
        assert!(matches!(error_of("40001", "x"), StoreError::Unavailable(_)));
        assert!(matches!(error_of("42P01", "x"), StoreError::Missing(_)));
        assert!(matches!(error_of("42501", "x"), StoreError::Denied(_)));
        assert!(matches!(error_of("22P02", "x"), StoreError::Other(_)));
    }
}
