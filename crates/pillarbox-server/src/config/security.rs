//! `[security]`: what is unencrypted or readable by others is a warning. With `strict = true` it is an error.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pillarbox_sinks::headers::may_be_secret;
use pillarbox_sinks::{Template, webhook};

use super::Http;
use super::document::Document;
use super::error::Finding;
use super::resolve::Resolver;

/// Keys whose values are secrets.
const SECRETS: [&str; 9] = [
    "authorization",
    "bearer",
    "cookie",
    "credentials",
    "password",
    "proxy-authorization",
    "signing_secrets",
    "token",
    "x-api-key",
];

/// Who may read and write the configuration file, besides its owner and group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FileMode {
    others_read: bool,
    others_write: bool,
}

impl FileMode {
    /// Of this file. A pipe or a file that is gone by now counts as private.
    pub(super) fn of(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
        let mode = metadata.map_or(0, |metadata| metadata.mode());
        Self {
            others_read: mode & 0o004 != 0,
            others_write: mode & 0o002 != 0,
        }
    }
}

/// The end of an error that is a warning without `strict`.
pub(crate) const REFUSED_BY_STRICT: &str = "refused by `strict` under [security]";

impl Resolver {
    /// Reports a file that others can change, or read although it has a secret.
    pub(super) fn check_file(&mut self, mode: FileMode, document: &Document<'_>) {
        let secret = document.find_text(|path, value| {
            let key = Document::key_of(path).to_ascii_lowercase();
            SECRETS.contains(&key.as_str()) || has_password(value) || is_webhook_secret(document, path, value)
        });
        if let Some(place) = secret.filter(|_| mode.others_read) {
            let message = "a secret in a file that every user of this machine can read (chmod 640, or write \
                           { file = \"/path\" } or { env = \"NAME\" } instead)";
            self.insecure.push(Finding::new(place, message));
        }
        if mode.others_write {
            let message = "every user of this machine can change the configuration (chmod o-w)";
            self.insecure.push(Finding::new(super::Place::File, message));
        }
    }

    /// Reports files of secrets that others can read or change.
    pub(super) fn check_secret_files(&mut self, document: &Document<'_>) {
        for (path, place) in document.secret_files() {
            let mode = FileMode::of(&path);
            let path = path.display();
            if mode.others_read {
                let message = format!("every user of this machine can read the secret in {path} (chmod o-r)");
                self.insecure.push(Finding::new(place.clone(), message));
            }
            if mode.others_write {
                let message =
                    format!("every user of this machine can change the secret in {path} (chmod o-w)");
                self.insecure.push(Finding::new(place, message));
            }
        }
    }

    /// Reports an API that other machines reach: it has no authentication.
    pub(super) fn check_remote(&mut self, http: &Http, document: &Document<'_>) {
        if http.listen.ip().is_loopback() || !http.allow_remote {
            return;
        }
        let message = format!(
            "the API has no authentication, and other machines can reach it at {} (listen on 127.0.0.1, and open \
             `ops_listen` for probes)",
            http.listen
        );
        self.insecure
            .push(Finding::new(document.place_of("http.allow_remote"), message));
    }

    /// With `strict` nothing insecure is accepted.
    pub(super) fn apply_strict(&mut self, strict: bool) {
        let insecure = std::mem::take(&mut self.insecure);
        if !strict {
            return self.warnings.extend(insecure);
        }
        let refused = insecure.into_iter().map(|finding| {
            let message = format!("{}; {REFUSED_BY_STRICT}", finding.message);
            Finding::new(finding.place, message)
        });
        self.wrong.extend(refused);
    }
}

/// Is it a header of a webhook with text of its own, or a URL with a token?
fn is_webhook_secret(document: &Document<'_>, path: &str, value: &str) -> bool {
    let Some((table, key)) = path.rsplit_once('.') else {
        return false;
    };
    let (destination, is_header) = match table.strip_suffix(".headers") {
        Some(destination) => (destination, true),
        None => (table, false),
    };
    if document.text_at(&format!("{destination}.type")) != Some("webhook") {
        return false;
    }
    if !is_header {
        return key == "url" && webhook::has_token(value);
    }
    let text = Template::parse(value).map_or_else(|_| value.to_owned(), |value| value.without_fields());
    may_be_secret(key) && text.contains(char::is_alphanumeric)
}

/// Is it a URL with a password?
pub(crate) fn has_password(text: &str) -> bool {
    let user = text
        .split_once("://")
        .and_then(|(_, rest)| rest.rsplit_once('@'))
        .map(|(user, _)| user);
    user.is_some_and(|user| user.contains(':')) || text.contains("password=")
}
