//! The sink: builds the client once, then one request per attempt.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use pillarbox::webhook::Keys;
use pillarbox::{Clock, Delivery, Outcome, Sink, SystemClock};
use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, redirect, retry};

use super::classify;
use super::config::Config;
use super::encode::{self, Target};
use super::redaction::Redaction;
use super::url_tokens;
use crate::connection_log::ConnectionLog;
use crate::exposure::Login;
use crate::headers::Added;
use crate::message::{Form, HTTP, Writer};
use crate::registry::{ConfigError, reveal};
use crate::tls;

/// How much of an answer is read, so that a receiver cannot fill the memory.
const MAX_ANSWER: usize = 64 * 1024;

/// The webhook.
pub struct Webhook {
    client: Client,
    target: Target,
    writer: Writer,
    authorization: Option<HeaderValue>,
    keys: Option<Keys>,
    redaction: Redaction,
    log: ConnectionLog,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    /// The webhook of the destination `name`, in the plain format.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub fn new(name: &str, config: &Config) -> Result<Self, ConfigError> {
        Self::with_form(name, config, &Form::Plain)
    }

    pub(crate) fn with_form(name: &str, config: &Config, form: &Form) -> Result<Self, ConfigError> {
        let added = Added::new(&config.headers, encode::legal_header)?;
        let target = Target::parse(&reveal("url", &config.url)?)?;
        Ok(Self {
            client: client(config)?,
            redaction: Redaction::new(config, &target, &added)?,
            log: ConnectionLog::of_destination(name, target.host()),
            target,
            writer: Writer::new(name, &HTTP, added).with_form(form),
            authorization: authorization(config)?,
            keys: keys(config)?,
            clock: Arc::new(SystemClock),
        })
    }

    /// The body of the answer, up to a limit. Reading it frees the connection for the next request.
    async fn answer(&self, mut response: Response) -> BytesMut {
        let mut text = BytesMut::new();
        while text.len() < MAX_ANSWER {
            // The status is known: an error after it changes nothing.
            let Ok(Some(chunk)) = response.chunk().await else {
                break;
            };
            let room = MAX_ANSWER - text.len();
            text.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        text
    }
}

#[async_trait]
impl Sink for Webhook {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let authorization = self.authorization.as_ref();
        let request = encode::request(delivery, &self.target, &self.writer, authorization);
        let (url, mut headers, body) = match request {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        if let Some(keys) = &self.keys {
            encode::sign(&mut headers, keys, delivery, &body, self.clock.wall());
        }
        let response = match self.client.post(url).headers(headers).body(body).send().await {
            Ok(response) => response,
            Err(error) => return classify::failure(error, &self.target.host()),
        };
        self.log.connected(self.target.is_encrypted());
        let status = response.status();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| classify::retry_after(text, self.clock.wall()));
        let answer = self.redaction.apply(&self.answer(response).await);
        classify::answer(status, retry_after, answer.as_bytes(), self.target.is_constant())
    }

    fn part(&self, delivery: &Delivery) -> Option<String> {
        self.target.part(delivery, self.writer.destination())
    }

    /// Any answer means that the receiver is reachable, also an error for HEAD. Where the URL is not that of an event, no credentials
    /// are sent.
    async fn check(&self) -> Result<(), String> {
        let mut request = self.client.head(self.target.probe_url());
        if self.target.is_constant() {
            request = request.headers(encode::probe_headers(
                self.writer.added(),
                self.authorization.as_ref(),
            )?);
        }
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(classify::unreached(error, &self.target.host())),
        }
    }
}

/// The setting with which credentials would travel unencrypted to another machine.
pub(crate) fn exposure(config: &Config) -> Option<ConfigError> {
    let target = Target::parse(&config.url.reveal().ok()?).ok()?;
    let url = target.probe();
    let has_password = config.basic.is_some() || url.password().is_some_and(|password| !password.is_empty());
    let credentials = [
        (config.bearer.is_some(), "the token"),
        (has_password, "the password"),
        (config.headers.has_secret(), "a configured header"),
        (url_tokens::has_token(target.source()), "the token in it"),
    ];
    let credentials = credentials
        .iter()
        .find_map(|(is_sent, what)| is_sent.then_some(*what));
    let login = Login {
        key: "url",
        credentials,
        is_encrypted: target.is_encrypted(),
        hosts: url.host_str().into_iter().collect(),
        advice: "write https://",
    };
    login.exposure()
}

fn client(config: &Config) -> Result<Client, ConfigError> {
    tls::ensure_provider();
    let mut builder = Client::builder()
        .user_agent(concat!("pillarbox/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .retry(retry::never()) // the dispatcher decides when to try again
        .timeout(config.timeout)
        .connect_timeout(config.connect_timeout);
    let files = config.tls.load()?;
    if let Some(ca) = files.ca {
        let certificates = reqwest::Certificate::from_pem_bundle(&ca)
            .map_err(|error| ConfigError::at("tls.ca_file", format!("holds no certificate: {error}")))?;
        builder = builder.tls_certs_merge(certificates);
    }
    if let Some(identity) = files.identity {
        let pem = [identity.cert.as_slice(), b"\n", identity.key.as_slice()].concat();
        let identity = reqwest::Identity::from_pem(&pem).map_err(|error| {
            ConfigError::at("tls.cert_file", format!("and its key cannot be used: {error}"))
        })?;
        builder = builder.identity(identity);
    }
    builder
        .build()
        .map_err(|error| ConfigError::at("tls", format!("cannot be used: {}", classify::words(error))))
}

fn keys(config: &Config) -> Result<Option<Keys>, ConfigError> {
    if config.signing_secrets.is_empty() {
        return Ok(None);
    }
    let secrets = config.signing_secrets.iter();
    let secrets: Vec<String> = secrets
        .map(|secret| reveal("signing_secrets", secret))
        .collect::<Result<_, _>>()?;
    let keys = Keys::new(secrets)
        .map_err(|error| ConfigError::at("signing_secrets", format!("cannot be used: {error}")))?;
    Ok(Some(keys))
}

fn authorization(config: &Config) -> Result<Option<HeaderValue>, ConfigError> {
    let text = match (&config.bearer, &config.basic) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(ConfigError::at(
                "bearer",
                "and `basic` exclude each other; keep one",
            ));
        }
        (Some(token), None) => format!("Bearer {}", reveal("bearer", token)?),
        (None, Some(basic)) => {
            let password = reveal("basic.password", &basic.password)?;
            format!("Basic {}", STANDARD.encode(format!("{}:{password}", basic.user)))
        }
    };
    let value = encode::secret(&text)
        .ok_or_else(|| ConfigError::at("bearer", "holds a character that HTTP forbids"))?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Table;
    use crate::webhook::Basic;

    fn config() -> Config {
        Config::new("https://example.com/hook")
    }

    #[test]
    fn two_kinds_of_authorization_are_refused() {
        let config = Config {
            bearer: Some("token".into()),
            basic: Some(Basic {
                user: "shop".to_owned(),
                password: "secret".into(),
            }),
            ..config()
        };
        assert_eq!(Webhook::new("partner", &config).err().unwrap().key, "bearer");
    }

    #[test]
    fn a_configured_header_that_http_forbids_is_refused_without_its_value() {
        for (name, value) in [("x y", "hunter2"), ("x-token", "hunter2\r\n")] {
            let mut config = config();
            config.headers = Table::new([(name, value)]).unwrap();
            let error = Webhook::new("partner", &config).err().unwrap();
            assert_eq!(error.key, "headers");
            assert!(!error.problem.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_no_signing_secret_is_refused_without_its_value() {
        let config = Config {
            signing_secrets: vec!["hunter2".into()],
            ..config()
        };
        let error = Webhook::new("partner", &config).err().unwrap();
        assert_eq!(error.key, "signing_secrets");
        assert!(error.problem.contains("openssl rand"), "{error}");
        assert!(!error.problem.contains("hunter2"), "{error}");
    }

    #[test]
    fn basic_authorization_is_encoded() {
        let config = Config {
            basic: Some(Basic {
                user: "shop".to_owned(),
                password: "secret".into(),
            }),
            ..config()
        };
        let value = authorization(&config).unwrap().unwrap();
        assert_eq!(value.to_str().unwrap(), "Basic c2hvcDpzZWNyZXQ=");
        assert!(value.is_sensitive());
    }
}
