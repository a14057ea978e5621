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
