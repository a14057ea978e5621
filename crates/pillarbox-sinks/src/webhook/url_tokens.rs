//! The parts of a URL that may be tokens: a user without a password, long parts of the path, and values of the query.
//!
//! Slack, Discord and others give URLs in which a part of the path is the only credential. A part is known by its look only, so
//! this errs towards calling it a token.

/// The shortest tokens in paths have some 20 characters.
const SHORTEST: usize = 16;
/// The query keys whose value is a token, however short.
const KEYS: [&str; 9] = [
    "access", "auth", "code", "key", "pass", "pwd", "secret", "sig", "token",
];

/// A URL, also one with fields of an event in `{…}`, of which a user may be the only credential.
struct Parts<'a> {
    user: &'a str,
    rest: &'a str,
}

fn split(url: &str) -> Option<Parts<'_>> {
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    Some(Parts { user, rest })
}

/// Is something in the URL a credential: a user, a token in the path or one in the query?
#[doc(hidden)]
pub fn has_token(url: &str) -> bool {
    let Some(parts) = split(url) else {
        return false;
    };
    !parts.user.is_empty() || pieces(parts.rest).any(|piece| piece.is_named || looks_random(piece.text))
}

/// What to cut out of a receiver's answer. Words of this length are cut out too.
pub(super) fn to_cut(url: &str) -> Vec<&str> {
    let Some(parts) = split(url) else {
        return Vec::new();
    };
    let user = [parts.user].into_iter().filter(|user| !user.contains(':'));
    let long = pieces(parts.rest).filter(|piece| piece.is_named || piece.text.len() >= SHORTEST);
    user.chain(long.map(|piece| piece.text)).collect()
}

struct Piece<'a> {
    text: &'a str,
    /// Does the key of the query say that it is a token?
    is_named: bool,
}

/// The texts between separators and fields of the event.
fn pieces(rest: &str) -> impl Iterator<Item = Piece<'_>> {
    rest.split(['/', '?', '&', '#']).flat_map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let key_text = key.to_ascii_lowercase();
        let is_named = KEYS.iter().any(|name| key_text.contains(name));
        let texts = |text, is_named| literals(text).map(move |text| Piece { text, is_named });
        texts(key, false).chain(texts(value, is_named))
    })
}

/// The text outside of `{…}`.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    let outside = text
        .split('{')
        .enumerate()
        .map(|(index, text)| match (index, text.split_once('}')) {
            (0, _) | (_, None) => text,
            (_, Some((_, after))) => after,
        });
    outside.filter(|text| !text.is_empty())
}

/// Words are in lower case and have no digits.
fn looks_random(text: &str) -> bool {
    text.len() >= SHORTEST && text.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_long_or_named_parts_are_tokens() {
        for url in [
            "https://hunter2@h/",
            "https://u:hunter2@h",
            "https://h/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
            "https://h/hooks/{tenant_id}/0123456789abcdef",
            "https://h/?token=a",
            "https://h/x?a=b&Api-Key=a#f",
            "https://h/x?0123456789abcdef",
        ] {
            assert!(has_token(url), "{url}");
        }
        for url in [
            "https://h",
            "https://h:8080/events",
            "https://h/customer-notifications/v2/incoming",
            "https://h/{tenant_id}/{header.customer-notification-1}?topic={topic}",
            "https://h/?token={header.token}",
            "nothing",
        ] {
            assert!(!has_token(url), "{url}");
        }
    }

    #[test]
    fn what_is_cut_out_is_every_part_that_could_be_a_token() {
        assert_eq!(
            to_cut("https://hunter2@h/customer-notifications/{topic}0123456789abcdef?key=a&b=c"),
            ["hunter2", "customer-notifications", "0123456789abcdef", "a"]
        );
        assert_eq!(to_cut("https://u:hunter2@h/"), [""; 0]);
    }
}
