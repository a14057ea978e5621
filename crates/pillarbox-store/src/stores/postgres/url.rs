//! The URL of a database: read once, checked, and printed without its password.
//!
//! sqlx ignores parameters that it does not know and logs their values. It verifies no certificate with `sslmode=require` and
//! `sslrootcert`, and takes `sslmode=allow` for plain text. So the URL is checked here before sqlx sees it.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use pillarbox::internal::is_local;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::store::StoreError;

/// The parameters that are understood, besides `options[NAME]`.
const KNOWN: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];
/// Those that name the file of a certificate authority.
const ROOT_CERT: [&str; 3] = ["sslrootcert", "ssl-root-cert", "ssl-ca"];

/// Those that name a file.
const FILES: [&str; 7] = [
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslrootcert",
];
const MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// Where a database is and how to log in. Prints without its password.
#[derive(Clone)]
pub struct Url {
    text: String,
    options: PgConnectOptions,
}

impl Url {
    /// What sqlx connects with. Its `Debug` prints the password.
    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// `host:port`, or the path of the socket.
    pub fn address(&self) -> String {
        match self.options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        }
    }

    /// The database, which has the name of the user unless the URL names it.
    pub fn database(&self) -> &str {
        let user = self.options.get_username();
        self.options.get_database().unwrap_or(user)
    }

    /// How the connection is protected.
    pub(super) fn tls(&self) -> PgSslMode {
        self.options.get_ssl_mode()
    }

    /// What is not protected on the way to the database, and what to do. None if the server is this machine, or is
    /// verified.
    pub fn warning(&self) -> Option<String> {
        let is_here = self.options.get_socket().is_some() || is_local(self.options.get_host());
        let risk = match self.tls() {
            _ if is_here => return None,
            PgSslMode::VerifyFull => return None,
            PgSslMode::Disable | PgSslMode::Allow => "the connection is not encrypted",
            PgSslMode::Prefer => "the connection may be unencrypted, and the server is not verified",
            PgSslMode::Require => "the connection is encrypted, but the server is not verified",
            PgSslMode::VerifyCa => "any server with a certificate of the same authority is accepted",
        };
        Some(format!(
            "`url` has sslmode={} for {}: {risk} (set sslmode=verify-full, and sslrootcert=FILE for a private authority)",
            word(self.tls()),
            self.address()
        ))
    }
}

/// The value of `sslmode`.
pub(super) fn word(mode: PgSslMode) -> &'static str {
    match mode {
        PgSslMode::Disable => "disable",
        PgSslMode::Allow => "allow",
        PgSslMode::Prefer => "prefer",
        PgSslMode::Require => "require",
        PgSslMode::VerifyCa => "verify-ca",
        PgSslMode::VerifyFull => "verify-full",
    }
}

impl FromStr for Url {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let invalid = |why: &str| StoreError::Invalid(format!("invalid database URL: {why}"));
        let rest = match text.split_once("://") {
            Some(("postgres" | "postgresql", rest)) => rest,
            _ => {
                return Err(invalid(
                    "it must begin with postgres:// (postgres://user@host/database)",
                ));
            }
        };
        // What follows the host could be a part of the password, so it is not repeated.
        let after_host = rest.find(['/', '?', '#']).map_or("", |end| &rest[end..]);
        if after_host.contains(['@', '#']) {
            return Err(invalid(
                "`/`, `?`, `#` and `@` must be percent-encoded in the user, the password, the database and parameters (write \
                 %2F, %3F, %23 and %40)",
            ));
        }
        let query = after_host.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs: Vec<(&str, &str)> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        for (key, value) in &pairs {
            check_parameter(key, value).map_err(|why| invalid(&why))?;
        }
        // The error of the parser never repeats the URL.
        let options = PgConnectOptions::from_str(text).map_err(|error| invalid(&error.to_string()))?;
        let has_root_cert = pairs.iter().any(|(key, _)| ROOT_CERT.contains(key))
            || std::env::var_os("PGSSLROOTCERT").is_some();
        let mode = match options.get_ssl_mode() {
            PgSslMode::Allow => {
                return Err(invalid(
                    "sslmode=allow is not supported: it means no encryption (set verify-full, or disable)",
                ));
            }
            // As in libpq. A fallback to an unverified connection would make the certificate useless.
            PgSslMode::Prefer | PgSslMode::Require if has_root_cert => PgSslMode::VerifyCa,
            mode => mode,
        };
        Ok(Self {
            text: text.to_owned(),
            options: options.ssl_mode(mode).application_name("pillarbox"),
        })
    }
}

/// Is it a parameter that is understood? sqlx reports a file that it cannot read as a database that cannot be reached.
fn check_parameter(key: &str, value: &str) -> Result<(), String> {
    let is_option = key.starts_with("options[") && key.ends_with(']');
    if !KNOWN.contains(&key) && !is_option {
        return Err(unknown(key));
    }
    if matches!(key, "sslmode" | "ssl-mode") && !MODES.contains(&value.to_ascii_lowercase().as_str()) {
        return Err(format!(
            "`{key}` is none of disable, prefer, require, verify-ca and verify-full"
        ));
    }
    let file = percent_decode_str(value).decode_utf8_lossy();
    if FILES.contains(&key) && !file.trim_start().starts_with("-----BEGIN") {
        std::fs::File::open(file.as_ref()).map_err(|error| {
            // Not the value: it may be the key itself.
            format!("the file of `{key}` cannot be read: {error} (it is a PEM file)")
        })?;
    }
    Ok(())
}

fn unknown(key: &str) -> String {
    let hint = match key {
        "channel_binding"
        | "gssencmode"
        | "require_auth"
        | "ssl_min_protocol_version"
        | "sslcrl"
        | "sslnegotiation" => "it is libpq's alone; remove it",
        "connect_timeout" => "remove it; the store has its own timeouts",
        _ => {
            "known: sslmode, sslrootcert, sslcert, sslkey, host, port, user, password, dbname, options, application_name"
        }
    };
    // The text before `=` may be a mistyped password.
    let is_word = key.len() <= 40 && key.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let name = if is_word {
        format!(" `{key}`")
    } else {
        String::new()
    };
    format!("unknown parameter{name} ({hint})")
}

impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Url {}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "postgres://{}@{}/{}?sslmode={}",
            self.options.get_username(),
            self.address(),
            self.database(),
            word(self.tls())
        )
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> PgSslMode {
        url.parse::<Url>().unwrap().tls()
    }

    #[test]
    fn a_certificate_authority_is_always_used() {
        let ca = "sslrootcert=/dev/null";
        for (parameters, expected) in [
            ("sslmode=require&", "verify-ca"),
            ("sslmode=prefer&", "verify-ca"),
            ("", "verify-ca"),
            ("sslmode=verify-full&", "verify-full"),
            ("sslmode=disable&", "disable"),
        ] {
            let url = format!("postgres://u@h/d?{parameters}{ca}");
            assert_eq!(word(mode(&url)), expected, "{url}");
        }
        assert_eq!(
            word(mode("postgres://u@h/d?ssl-mode=require&ssl-ca=/dev/null")),
            "verify-ca"
        );
        assert_eq!(word(mode("postgres://u@h/d?sslmode=require")), "require");
    }

    #[test]
    fn what_is_not_understood_is_refused_and_its_value_is_not_printed() {
        for (url, expected) in [
            ("postgres://u@h/d?sslmode=allow", "sslmode=allow is not supported"),
            (
                "postgres://u@h/d?sslpassword=hunter2",
                "unknown parameter `sslpassword`",
            ),
            (
                "postgres://u@h/d?Password=hunter2",
                "unknown parameter `Password`",
            ),
            ("postgres://u@h/d?passwd=hunter2", "unknown parameter `passwd`"),
            ("postgres://u@h/d?channel_binding=require", "remove it"),
            ("postgres://u@h/d?hunter2", "unknown parameter ("),
            ("postgres://u@h/d?sslmode=hunter2", "`sslmode` is none of disable"),
            (
                "postgres://u@h/d?sslrootcert=/hunter2",
                "the file of `sslrootcert` cannot be read: No such file",
            ),
            ("postgres://u:1?hunter2@h/d", "percent-encoded"),
            ("postgres://u:1/hunter2@h/d", "percent-encoded"),
            ("postgres://u:1#hunter2@h/d", "percent-encoded"),
            ("postgres://u:1#hunter2", "percent-encoded"),
            ("postgres://u:hunter2/d", "invalid database URL"),
            ("postgres://u:hunter2@h:port/d", "invalid database URL"),
            ("postgres://[hunter2", "invalid database URL"),
            ("host=h password=hunter2", "must begin with postgres://"),
        ] {
            let error = url.parse::<Url>().unwrap_err().to_string();
            assert!(
                error.contains(expected) && !error.contains("hunter2"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        for url in [
            "postgres://u:hunter2@h:5433/d",
            "postgres://u:hunter2@h:5433/d?application_name=x&sslkey=-----BEGIN%20hunter2",
            "postgresql://h:5433/d?user=u&password=hunter2",
            "postgresql://u@h:5433/d?password=%68unter2",
            "postgres://u:hun%3Fter2@h:5433/d",
            "postgres://u:hunter2@x@h:5433/d",
        ] {
            let url: Url = url.parse().unwrap();
            assert_eq!(url.to_string(), "postgres://u@h:5433/d?sslmode=prefer");
            assert_eq!(format!("{url:?}"), url.to_string());
        }
    }

    #[test]
    fn only_a_verified_server_or_this_machine_needs_no_warning() {
        let warning = |url: &str| url.parse::<Url>().unwrap().warning();
        for url in [
            "postgres://u@localhost/d",
            "postgres://u@127.0.0.1/d?sslmode=disable",
            "postgres://u@[::1]/d",
            "postgres://u@%2Fvar%2Frun/d",
            "postgres://u@x/d?host=/var/run",
            "postgres://u@db.example.com/d?sslmode=verify-full",
        ] {
            assert_eq!(warning(url), None, "{url}");
        }
        for (parameters, risk) in [
            ("", "may be unencrypted"),
            ("?sslmode=disable", "is not encrypted"),
            ("?sslmode=require", "is not verified"),
            ("?sslmode=verify-ca", "any server"),
            ("?host=localhost&hostaddr=10.0.0.1", "may be unencrypted"),
        ] {
            let warning = warning(&format!("postgres://u:hunter2@db.example.com/d{parameters}")).unwrap();
            assert!(
                warning.contains(risk) && warning.contains("sslmode=verify-full"),
                "{warning}"
            );
            assert!(
                warning.starts_with("`url` ") && !warning.contains("hunter2"),
                "{warning}"
            );
        }
    }
}
