//! Turns a parser's error into one that an operator understands.
//!
//! serde lists all known keys for an unknown one. This suggests the one that was probably meant.

use pillarbox::text::distance;

/// The largest edit distance of a suggestion.
const MAX_DISTANCE: usize = 3;

/// The error, with a suggestion for an unknown word. `also` are known words beside those in the message.
pub(crate) fn explain(message: &str, also: &[&str]) -> String {
    for (what, noun) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        if let Some(rest) = message.strip_prefix(what) {
            return unknown(rest, noun, also);
        }
    }
    if let Some(name) = missing_key(message) {
        return format!("missing key `{name}`");
    }
    message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "))
        .map_or_else(
            || message.lines().collect::<Vec<_>>().join(" "),
            |(found, expected)| format!("expected {}, found {found}", in_words(expected)),
        )
}

/// What was expected. serde names the types of Rust, which mean nothing to an operator.
fn in_words(expected: &str) -> &str {
    match expected {
        "usize" | "u64" => "a whole number of at least 0",
        "u32" => "a whole number from 0 to 4294967295",
        "u16" => "a whole number from 0 to 65535",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "a string" | "string" | "str" => "a text",
        "a sequence" => "a list",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// The name of the unknown key in such a message.
pub(crate) fn unknown_key(message: &str) -> Option<&str> {
    quoted_after(message, "unknown field `")
}

/// The name of the missing key in such a message.
pub(crate) fn missing_key(message: &str) -> Option<&str> {
    quoted_after(message, "missing field `")
}

/// The most similar known word, if there is one.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= MAX_DISTANCE && *edits < candidate.len().max(word.len()))
        .min()
        .map(|(_, candidate)| candidate)
}

/// `rest` is `name`, then what serde expected: "…`, expected one of `a`, `b`".
fn unknown(rest: &str, noun: &str, also: &[&str]) -> String {
    let (word, expected) = rest.split_once('`').unwrap_or((rest, ""));
    let known: Vec<&str> = expected
        .split('`')
        .skip(1)
        .step_by(2)
        .chain(also.iter().copied())
        .collect();
    let hint = match nearest(word, known.iter().copied()) {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None if known.is_empty() => String::new(),
        None => format!(" (known: {})", list(&known)),
    };
    format!("unknown {noun} `{word}`{hint}")
}

/// "`a`, `b` and `c`".
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

fn quoted_after<'a>(message: &'a str, prefix: &str) -> Option<&'a str> {
    message.strip_prefix(prefix)?.split('`').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_suggests_the_nearest_known_one() {
        let message = "unknown field `leese`, expected one of `lease`, `timeout`";
        assert_eq!(
            explain(message, &[]),
            "unknown key `leese` (did you mean `lease`?)"
        );
        assert_eq!(unknown_key(message), Some("leese"));
    }

    #[test]
    fn a_key_without_a_similar_one_lists_all_known_keys() {
        assert_eq!(
            explain("unknown field `colour`, expected `url` or `schema`", &["name"]),
            "unknown key `colour` (known: `url`, `schema` and `name`)"
        );
    }

    #[test]
    fn the_types_of_rust_are_not_mentioned() {
        for (expected, words) in [
            ("usize", "a whole number of at least 0"),
            ("u16", "a whole number from 0 to 65535"),
            ("i32", "a whole number"),
            ("a boolean", "`true` or `false`"),
            ("a string", "a text"),
            ("a sequence", "a list"),
            ("struct Retry", "a table"),
        ] {
            assert_eq!(
                explain(
                    &format!("invalid type: floating point `1.5`, expected {expected}"),
                    &[]
                ),
                format!("expected {words}, found floating point `1.5`")
            );
        }
    }

    #[test]
    fn a_wrong_type_names_the_expected_one_first() {
        assert_eq!(
            explain(
                "invalid type: integer `5`, expected a duration such as \"20s\"",
                &[]
            ),
            "expected a duration such as \"20s\", found integer `5`"
        );
    }
}
