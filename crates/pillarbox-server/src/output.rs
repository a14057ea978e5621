//! Prints to standard output: tables, text and JSON.
//!
//! An event's text may contain escape sequences that would rewrite the operator's terminal. So control characters are printed
//! escaped.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Prints one line. A closed pipe (`| head`) is not an error.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "cannot write to standard output: {error}"
        ))),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a value as one line of JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::failed(format!("cannot encode the answer as JSON: {error}")))?;
    line(&escape_json(&text))
}

/// JSON with the control characters escaped that JSON itself allows: DEL, C1 and those that change the direction of text.
/// They only occur inside of texts.
pub(crate) fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() || is_bidi(c)) && !c.is_ascii_whitespace() {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Prints rows under their headings, in columns.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| escape(cell)).collect())
        .collect();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .map(|row| row.get(column).map_or(0, |cell| cell.chars().count()));
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let print = |cells: &[String]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        line(padded.join("  ").trim_end())
    };
    print(
        &headings
            .iter()
            .map(|&heading| heading.to_owned())
            .collect::<Vec<_>>(),
    )?;
    rows.iter().try_for_each(|row| print(row))
}

/// On one line, with every control character escaped.
pub(crate) fn escape(text: &str) -> String {
    escape_but(text, &[])
}

/// Like [`escape`], but keeps line breaks.
pub(crate) fn escape_text(text: &str) -> String {
    escape_but(text, &['\n'])
}

fn escape_but(text: &str, keep: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() || is_bidi(c)) && !keep.contains(&c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Characters that change the direction of text and can disguise it.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The first characters, with an ellipsis if there are more.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// An age in its two largest units: `3d 4h`, `5m 2s`, `0s`.
pub(crate) fn age(seconds: f64) -> String {
    let whole = std::time::Duration::try_from_secs_f64(seconds)
        .map(|age| age.as_secs())
        .unwrap_or_default();
    let units = [
        ("d", whole / 86_400),
        ("h", whole / 3600 % 24),
        ("m", whole / 60 % 60),
        ("s", whole % 60),
    ];
    let largest = units.iter().position(|(_, count)| *count > 0).unwrap_or(3);
    let shown: Vec<String> = units[largest..]
        .iter()
        .take(2)
        .enumerate()
        .filter(|(index, (_, count))| *index == 0 || *count > 0)
        .map(|(_, (unit, count))| format!("{count}{unit}"))
        .collect();
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("a\u{1b}[2Jb\r\n\u{9b}1m"), "a\\u{1b}[2Jb\\r\\n\\u{9b}1m");
        assert_eq!(escape_text("one\ntwo\u{7}"), "one\ntwo\\u{7}");
        assert_eq!(escape("\u{202e}txt.exe"), "\\u{202e}txt.exe");
        assert_eq!(escape("\u{61c}a"), "\\u{61c}a");
        assert_eq!(escape("Grüße, 世界"), "Grüße, 世界");
    }

    #[test]
    fn json_has_no_control_characters_and_the_same_meaning() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}1m\u{61c}\u{202e}\n Grüße";
        let json = serde_json::to_string(text).unwrap();
        let escaped = escape_json(&json);
        assert!(
            !escaped.contains(|c: char| c.is_control() || is_bidi(c)),
            "{escaped}"
        );
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        let line = "{\n  \"a\": 1\n}";
        assert_eq!(escape_json(line), line);
    }

    #[test]
    fn an_age_has_its_two_largest_units() {
        for (seconds, expected) in [
            (0.4, "0s"),
            (59.9, "59s"),
            (302.0, "5m 2s"),
            (3600.0, "1h"),
            (273_700.0, "3d 4h"),
            (-1.0, "0s"),
        ] {
            assert_eq!(age(seconds), expected);
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("ééééé", 3), "éé…");
        assert_eq!(cut("abc", 3), "abc");
    }
}
