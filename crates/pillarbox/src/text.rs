//! Text from outside: cut to fit a column, or compared with the names that we know.

/// How much of an error is kept.
pub const MAX_ERROR: usize = 8 * 1024;

/// An error text that every store can keep: no NUL, which PostgreSQL refuses, and of bounded length.
/// A row whose error cannot be written could never be failed.
pub fn error_text(text: &str) -> String {
    let mut clean: String = text
        .chars()
        .map(|c| if c == '\0' { '\u{FFFD}' } else { c })
        .collect();
    if clean.len() > MAX_ERROR {
        let mut end = MAX_ERROR - '…'.len_utf8();
        while !clean.is_char_boundary(end) {
            end -= 1;
        }
        clean.truncate(end);
        clean.push('…');
    }
    if clean.trim().is_empty() {
        "(no reason was given)".to_owned()
    } else {
        clean
    }
}

/// Why a text is not the JSON that was expected, and where, without any of its content: the reason ends in logs and in headers
/// of dead letters.
pub fn json_error(error: &serde_json::Error) -> String {
    if !error.is_data() {
        return error.to_string(); // grammar: the text has no values
    }
    let text = error.to_string();
    let problem = without_values(&text);
    format!("{problem} at line {} column {}", error.line(), error.column())
}

/// The sentences of serde with the names of the program's own types. Any other may hold a value.
fn without_values(text: &str) -> String {
    for known in ["missing field `", "duplicate field `"] {
        if let Some((name, _)) = text.strip_prefix(known).and_then(|rest| rest.split_once('`')) {
            return format!("{known}{name}`");
        }
    }
    let known = [
        "invalid type",
        "invalid value",
        "invalid length",
        "unknown variant",
        "unknown field",
    ];
    let Some(problem) = known.iter().find(|known| text.starts_with(**known)) else {
        return "invalid data".to_owned();
    };
    // What was expected comes last, and is a name of the program.
    let expected = text.rsplit_once(", expected ").map(|(_, expected)| expected);
    let expected = expected.map(|expected| {
        expected
            .rsplit_once(" at line ")
            .map_or(expected, |(text, _)| text)
    });
    expected.map_or_else(
        || (*problem).to_owned(),
        |expected| format!("{problem}, expected {expected}"),
    )
}

/// How many letters have to be put in, taken out or replaced to make one text of the other (Levenshtein).
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert, proptest};

    #[test]
    fn a_nul_is_replaced_and_an_empty_text_says_so() {
        assert_eq!(error_text("a\0b"), "a\u{FFFD}b");
        assert_eq!(error_text(" "), "(no reason was given)");
    }

    #[test]
    fn an_error_about_json_names_the_type_and_the_place_and_no_value() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, reason = "only its errors count")]
        struct Order {
            order: i64,
            #[serde(default)]
            kind: Option<Kind>,
            #[serde(default)]
            id: Option<uuid::Uuid>,
        }
        #[derive(Debug, serde::Deserialize)]
        enum Kind {
            Small,
        }
        for (json, said) in [
            (
                r#"{"order":"secret"}"#,
                "invalid type, expected i64 at line 1 column 17",
            ),
            (
                r#"{"order":"secret, expected x"}"#,
                "invalid type, expected i64 at line 1 column 29",
            ),
            ("{}", "missing field `order` at line 1 column 2"),
            (
                r#"{"order":1,"order":2}"#,
                "duplicate field `order` at line 1 column 18",
            ),
            (
                r#"{"secret":1}"#,
                "unknown field, expected one of `order`, `kind`, `id` at line 1 column 9",
            ),
            (
                r#"{"order":1,"kind":"secret"}"#,
                "unknown variant, expected `Small` at line 1 column 26",
            ),
            (r#"{"order":1,"id":"secret"}"#, "invalid data at line 1 column 24"),
            (r#"{"order":secret}"#, "expected value at line 1 column 10"),
        ] {
            let error = serde_json::from_str::<Order>(json).unwrap_err();
            assert_eq!(json_error(&error), said, "{json}");
        }
    }

    #[test]
    fn distances_are_counted_in_edits() {
        for (a, b, edits) in [
            ("", "", 0),
            ("lease", "leese", 1),
            ("lease", "", 5),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_that_fits(text in "\\PC{0,4000}", nul in 0usize..3) {
            let text = text + &"\0".repeat(nul);
            let clean = error_text(&text.repeat(4));
            prop_assert!(clean.len() <= MAX_ERROR && !clean.contains('\0') && !clean.is_empty());
        }
    }
}
