//! Cuts secrets out of a receiver's answer.
//!
//! Receivers echo requests: a page for an unknown path has the URL, a debug page has every header. Answers are stored as the
//! reason of a failure, shown to operators and written back to adopted tables.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;

use super::config::Config;
use crate::headers::Added;
use crate::registry::{ConfigError, reveal};

/// Shorter texts are words rather than secrets. Replacing them would only make the answer unreadable.
const SHORTEST: usize = 6;
/// Parts of a path and of a query are tokens from this length on: the shortest in use have some 20 characters.
const SHORTEST_IN_URL: usize = 16;

/// The secrets of a destination, the longest first. Never printed.
pub(super) struct Redaction(Vec<String>);

impl Redaction {
    pub(super) fn new(config: &Config, url: &Url, added: &Added) -> Result<Self, ConfigError> {
        let mut secrets = Vec::new();
        if let Some(token) = &config.bearer {
            secrets.push(reveal("bearer", token)?);
        }
        if let Some(basic) = &config.basic {
            let password = reveal("basic.password", &basic.password)?;
            secrets.push(STANDARD.encode(format!("{}:{password}", basic.user)));
            secrets.push(password);
        }
        if config.headers.has_secret() {
            secrets.extend(added.constant().map(|(_, value)| value));
        }
        secrets.extend(url.password().map(str::to_owned));
        secrets.retain(|secret| secret.len() >= SHORTEST);
        let parts = url
            .path()
            .split('/')
            .chain(url.query().unwrap_or_default().split(['&', '=']));
        secrets.extend(
            parts
                .filter(|part| part.len() >= SHORTEST_IN_URL)
                .map(str::to_owned),
        );
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Ok(Self(secrets))
    }

    /// The answer as text, with `***` for each secret.
    pub(super) fn apply(&self, answer: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(answer).into_owned();
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "***");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Table;
    use crate::webhook::Basic;

    fn apply(config: &Config, answer: &str) -> String {
        let url = Url::parse(&config.url.reveal().unwrap()).unwrap();
        let added = Added::new(&config.headers, |_, _| Ok(())).unwrap();
        Redaction::new(config, &url, &added)
            .unwrap()
            .apply(answer.as_bytes())
    }

    #[test]
    fn what_a_receiver_echoes_of_a_secret_is_cut_out() {
        let path = "/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX";
        let mut config = Config::new(format!("https://hooks.example.com{path}?key=0123456789abcdef"));
        config.bearer = Some("hunter2-token".into());
        config.headers = Table::new([("authorization", "hunter3-header")]).unwrap();
        let echoed = format!("no {path} with key=0123456789abcdef, Bearer hunter2-token, hunter3-header");
        assert_eq!(
            apply(&config, &echoed),
            "no /services/T00000000/B00000000/*** with key=***, Bearer ***, ***"
        );
        let mut config = Config::new("https://u:hunter4@h/");
        config.basic = Some(Basic {
            user: "shop".to_owned(),
            password: "hunter5".into(),
        });
        let encoded = STANDARD.encode("shop:hunter5");
        assert_eq!(
            apply(&config, &format!("hunter4 hunter5 {encoded}")),
            "*** *** ***"
        );
    }

    #[test]
    fn an_answer_without_a_secret_stays_as_it_is() {
        let mut config = Config::new("https://h/events");
        config.bearer = Some("a".into());
        assert_eq!(
            apply(&config, "a bad request for /events"),
            "a bad request for /events"
        );
    }
}
