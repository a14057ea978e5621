//! What a backend brings to the suite: a place of its own for every case, and eyes that see what
//! arrived there.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use pillarbox::{Event, Sink};
use uuid::Uuid;

use crate::proxy::Proxy;
use crate::store_suite::Skipped;

/// Why a destination without a proxy skips the cases with faults.
const WITHOUT_PROXY: Skipped = Skipped("no proxy can make this destination fail");

/// A message that arrived, as its readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The event's id, from where the sink's page says that it is.
    pub id: Uuid,
    /// All headers, their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// What the event carries.
    pub payload: Bytes,
    /// The media type.
    pub content_type: String,
    /// How the payload is encoded.
    pub content_encoding: Option<String>,
}

/// How a destination encodes the attributes of a CloudEvent in headers.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// What their names begin with, in lower case.
    pub prefix: &'static str,
    /// Are their values percent-encoded?
    pub percent_encoded: bool,
}

impl Attributes {
    /// The value of an attribute.
    ///
    /// # Panics
    /// When it is encoded wrongly.
    pub fn read(&self, header: &str) -> String {
        if !self.percent_encoded {
            return header.to_owned();
        }
        assert!(header.is_ascii(), "{header} is not encoded");
        let mut bytes = Vec::new();
        let mut rest = header.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            if *first != b'%' {
                bytes.push(*first);
                continue;
            }
            let (digits, after) = rest.split_at(2);
            let digits = std::str::from_utf8(digits).expect("it is ASCII");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits follow"));
            rest = after;
        }
        String::from_utf8(bytes).expect("text is encoded as UTF-8")
    }
}

/// The id of an event from what every format has somewhere: for places that have none of their own for it.
///
/// # Panics
/// When there is none.
pub fn event_id(headers: &BTreeMap<String, String>, payload: &[u8]) -> Uuid {
    let names = ["pillarbox-id", "ce-id", "ce_id", "cloudevents_id"];
    let header = names.into_iter().find_map(|name| headers.get(name).cloned());
    let id = header.unwrap_or_else(|| {
        let event: serde_json::Value = serde_json::from_slice(payload).expect("a structured event is JSON");
        event["id"].as_str().expect("an event has an id").to_owned()
    });
    id.parse().expect("the id is a UUID")
}

/// A destination that no other test uses.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// A new sink that delivers there.
    async fn sink(&self) -> Arc<dyn Sink>;

    /// All that arrived so far, in the order of its arrival. Does not wait.
    async fn arrived(&self) -> Vec<Arrived>;

    /// Does the destination drop duplicates, by the id of the row?
    fn drops_duplicates(&self) -> bool {
        false
    }

    /// The proxy between the sinks and their server, if there is one. It makes the server unavailable, silent and
    /// disconnected.
    fn proxy(&self) -> Option<&Proxy> {
        None
    }

    /// The host that the logs of a sink's connection show, if the sink keeps one open. Other tests must have another.
    fn connection_host(&self) -> Option<String> {
        None
    }

    /// The name of the [`Outcome`](pillarbox::Outcome) when the destination is unavailable.
    fn when_gone(&self) -> &'static str {
        "unavailable"
    }

    /// Makes the destination unavailable, at least for sinks that are made afterwards.
    ///
    /// # Errors
    /// If this destination cannot be unavailable.
    async fn go_away(&self) -> Result<(), Skipped> {
        let proxy = self.proxy().ok_or(WITHOUT_PROXY)?;
        proxy.refuse().await;
        Ok(())
    }

    /// Undoes [`go_away`](Self::go_away) and [`fall_silent`](Self::fall_silent).
    async fn come_back(&self) {
        if let Some(proxy) = self.proxy() {
            proxy.restore().await;
        }
    }

    /// What is sent arrives, but no answer comes back.
    ///
    /// # Errors
    /// If this destination always answers.
    async fn fall_silent(&self) -> Result<(), Skipped> {
        self.proxy().ok_or(WITHOUT_PROXY)?.mute();
        Ok(())
    }

    /// Closes the connections that are open.
    async fn cut(&self) {
        if let Some(proxy) = self.proxy() {
            proxy.cut();
        }
    }

    /// An event that will never be accepted here.
    ///
    /// # Errors
    /// When everything is accepted.
    fn poison(&self) -> Result<Event, Skipped>;

    /// A sink with a wrong password, and the password.
    ///
    /// # Errors
    /// When there are no passwords here.
    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped>;

    /// A sink that connects with TLS. The server has a certificate of a private CA, which the sink knows or not.
    ///
    /// # Errors
    /// When there is no TLS here.
    async fn with_tls(&self, knows_the_ca: bool) -> Result<Arc<dyn Sink>, Skipped>;

    /// A sink whose configuration adds these headers; their values are templates.
    ///
    /// # Errors
    /// When nothing is configured here.
    async fn with_headers(&self, headers: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped>;

    /// A sink of a destination with these keys, as they are written in the configuration, built by the registry.
    ///
    /// # Errors
    /// When nothing is configured here, or not this.
    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped>;

    /// How CloudEvents have their attributes in headers here, if there are headers.
    fn attributes(&self) -> Option<Attributes>;

    /// Called after a case that passed; what a failed one leaves is there to be looked at.
    async fn clean_up(&self) {}
}
