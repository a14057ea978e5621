//! Cuts secrets out of a receiver's answer.
//!
//! Receivers echo requests: a page for an unknown path has the URL, a debug page has every header. Answers are stored as the
//! reason of a failure, shown to operators and written back to adopted tables.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

use super::config::Config;
use super::encode::Target;
use super::url_tokens;
use crate::headers::Added;
use crate::registry::{ConfigError, reveal};

/// Shorter texts are words rather than secrets. Replacing them would only make the answer unreadable.
const SHORTEST: usize = 6;

/// The secrets of a destination, the longest first. Never printed.
pub(super) struct Redaction(Vec<String>);

impl Redaction {
    pub(super) fn new(config: &Config, target: &Target, added: &Added) -> Result<Self, ConfigError> {
        let mut secrets = Vec::new();
        if let Some(token) = &config.bearer {
            secrets.push(reveal("bearer", token)?);
        }
        if let Some(basic) = &config.basic {
            login(
                &basic.user,
                &reveal("basic.password", &basic.password)?,
                &mut secrets,
            );
        }
        for value in added.secrets() {
            // Without what divides it from a field of the event.
            secrets.push(
                value
                    .trim_matches([' ', '-', '_', '.', ':', '/', ',', ';'])
                    .to_owned(),
            );
            // Without the scheme before a token, and without the names of cookies.
            let words = value.split([' ', ';', ',', '=']).skip(1);
            secrets.extend(words.map(str::to_owned));
        }
        let url = target.probe();
        if let Some(password) = url.password() {
            login(&decoded(url.username()), &decoded(password), &mut secrets);
        } else if !url.username().is_empty() {
            login(&decoded(url.username()), "", &mut secrets);
        }
        // As it is written, and as it is sent.
        for url in [target.source(), url.as_str()] {
            secrets.extend(url_tokens::to_cut(url).into_iter().map(str::to_owned));
        }
        let mut secrets: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        secrets.retain(|secret| secret.len() >= SHORTEST);
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
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

/// A user and a password, apart and as `Authorization: Basic` has them. A user without a password is a token.
fn login(user: &str, password: &str, secrets: &mut Vec<String>) {
    secrets.push(STANDARD.encode(format!("{user}:{password}")));
    secrets.push(if password.is_empty() { user } else { password }.to_owned());
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// How a receiver may write a secret: as it is, decoded, in HTML, and in JSON, where PHP escapes slashes and Go what HTML reserves.
fn forms(secret: &str) -> [String; 6] {
    let decoded = decoded(secret);
    let json = serde_json::Value::from(decoded.as_str()).to_string();
    let json = json.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let json = json.unwrap_or_default().to_owned();
    let replaced = |text: &str, pairs: &[&str]| {
        let pairs = pairs.iter().map(|pair| pair.split_at(1));
        pairs.fold(text.to_owned(), |text, (plain, escaped)| {
            text.replace(plain, escaped)
        })
    };
    let html = replaced(&decoded, &["&&amp;", "<&lt;", ">&gt;", "\"&quot;", "'&#39;"]);
    let of_php = replaced(&json, &["/\\/"]);
    let of_go = replaced(&json, &["&\\u0026", "<\\u003c", ">\\u003e"]);
    [secret.to_owned(), decoded, json, html, of_php, of_go]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Table;
    use crate::webhook::Basic;

    fn apply(config: &Config, answer: &str) -> String {
        let target = Target::parse(&config.url.reveal().unwrap()).unwrap();
        let added = Added::new(&config.headers, |_, _| Ok(())).unwrap();
        Redaction::new(config, &target, &added)
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
    fn every_configured_header_and_every_credential_of_the_url_is_cut_out() {
        for (url, name, value) in [
            ("https://h/", "x-token", "CANARY"),
            ("https://h/", "x-shop-signature", "v1=CANARY"),
            ("https://h/", "authorization", "ApiKey CANARY"),
            ("https://h/", "x-route", "{tenant_id}-CANARY-{topic}"),
            ("https://h/", "cookie", "a=b; session=CANARY"),
            ("https://CANARY@h/", "x-a", "b"),
            ("https://CANARY:@h/", "x-a", "b"),
            ("https://h/{topic}/hooks/CANARY", "x-a", "b"),
            ("https://h/hooks?sig=CANARY", "x-a", "b"),
            ("https://h/{topic}?sig=CANARY", "x-a", "b"),
        ] {
            let canary = "hunter2<&>\"'";
            let in_url = "hunter2%3C%26%3E%22%27";
            let mut config = Config::new(url.replace("CANARY", in_url));
            config.headers = Table::new([(name, value.replace("CANARY", canary))]).unwrap();
            let basic = STANDARD.encode(format!("{canary}:"));
            let html = "hunter2&lt;&amp;&gt;&quot;&#39;";
            let mut echoed = vec![canary, "{\"x\": \"hunter2<&>\\\"'\"}", html];
            if url.contains("hunter2") || url.contains("CANARY") {
                echoed.extend([in_url, basic.as_str()]);
            }
            for echo in echoed {
                let shown = apply(&config, echo);
                assert!(
                    !shown.contains("hunter2"),
                    "{url} {name}: {value}: {echo} is shown as {shown}"
                );
                let is_login = url.contains('@');
                assert!(!is_login || !shown.contains(&basic), "{shown}");
            }
        }
    }

    #[test]
    fn a_secret_is_cut_out_as_other_languages_escape_it() {
        let mut config = Config::new("https://h/");
        config.bearer = Some("hunter2/<&>".into());
        for echo in [
            r#"{"x": "hunter2\/<&>"}"#,
            r#"{"x": "hunter2/\u003c\u0026\u003e"}"#,
        ] {
            assert_eq!(apply(&config, echo), r#"{"x": "***"}"#);
        }
        // Quotes at its ends are its own.
        config.bearer = Some("\"hunter2\"".into());
        assert_eq!(apply(&config, r#"{"x": "\"hunter2\""}"#), r#"{"x": "***"}"#);
    }

    #[test]
    fn an_answer_without_a_secret_stays_as_it_is() {
        let mut config = Config::new("https://h/events");
        config.bearer = Some("a".into());
        config.headers = Table::new([("Accept", "application/json"), ("x-tenant", "{tenant_id}")]).unwrap();
        assert_eq!(apply(&config, "no application/json"), "no application/json");
        assert_eq!(
            apply(&config, "a bad request for /events"),
            "a bad request for /events"
        );
    }
}
