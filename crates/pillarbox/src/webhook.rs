//! Signatures of webhooks, by [Standard Webhooks](https://www.standardwebhooks.com). The sink signs, the receiver verifies.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::webhook::Keys;
//! # use std::collections::HashMap;
//! # use time::OffsetDateTime;
//!
//! let keys = Keys::new(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])?;
//! # let (id, now, body) = ("0198a4f0-0000-7000-8000-000000000000", OffsetDateTime::now_utc(), br#"{"order": 42}"#);
//! # let headers = HashMap::from([
//! #     ("webhook-id", id.to_owned()),
//! #     ("webhook-timestamp", now.unix_timestamp().to_string()),
//! #     ("webhook-signature", keys.sign(id, now, body)),
//! # ]);
//! let verified = keys.verify(|name| headers.get(name).map(String::as_str), body, now)?;
//! // verified.event_id() is what an inbox remembers
//! # assert_eq!(verified.id, id);
//! # Ok(())
//! # }
//! ```
//!
//! The signature covers the id, the time of the attempt and the body, each byte of it: verify what arrived, before
//! anything parses it. A time that is too far from now is rejected, so that a captured request cannot be replayed later.
//! An [inbox](crate::inbox) detects an earlier replay.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use time::OffsetDateTime;
use uuid::Uuid;

/// What a secret begins with.
const PREFIX: &str = "whsec_";

/// How far a time may be from now.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// How many bytes a secret may have.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// The secrets that both sides know: several while one replaces another.
#[derive(Clone)]
pub struct Keys {
    keys: Vec<Vec<u8>>,
    tolerance: Duration,
}

/// Why a text is no secret. Never contains it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a signing secret is `whsec_` and 24 to 64 random bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)"
)]
pub struct NoSecret;

/// A webhook whose signature is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified<'a> {
    /// `webhook-id`: the same on every attempt.
    pub id: &'a str,
    /// `webhook-timestamp`: when this attempt was made.
    pub at: OffsetDateTime,
}

impl Verified<'_> {
    /// The event's id, if Pillarbox sent it.
    pub fn event_id(&self) -> Option<Uuid> {
        Uuid::parse_str(self.id).ok()
    }
}

/// Why a webhook is rejected. Answer 401, or 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// A header is missing.
    #[error("there is no header `{0}`")]
    Missing(&'static str),
    /// The timestamp is no number.
    #[error("`webhook-timestamp` is no number of seconds since 1970")]
    NoTime,
    /// The time is too far from now: it was sent long ago, or a clock is wrong.
    #[error("`webhook-timestamp` is {0} seconds away from now")]
    Stale(u64),
    /// No signature is valid: the sender has other secrets, or the body was changed.
    #[error("no signature is valid")]
    Forged,
}

impl Keys {
    /// These secrets, each as `whsec_` and base64. There must be one.
    ///
    /// # Errors
    /// When one of them is no secret, or there is none.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, NoSecret> {
        let keys = secrets.into_iter().map(|secret| key(secret.as_ref()));
        let keys: Vec<Vec<u8>> = keys.collect::<Option<_>>().ok_or(NoSecret)?;
        if keys.is_empty() {
            return Err(NoSecret);
        }
        Ok(Self {
            keys,
            tolerance: TOLERANCE,
        })
    }

    /// Sets how far `webhook-timestamp` may be from now; 5 minutes by default.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The value of `webhook-signature`: one signature for each secret.
    pub fn sign(&self, id: &str, at: OffsetDateTime, body: &[u8]) -> String {
        let timestamp = at.unix_timestamp().to_string();
        let signed = self.keys.iter().map(|key| {
            let mac = mac(key, id, &timestamp, body).finalize();
            format!("v1,{}", STANDARD.encode(mac.into_bytes()))
        });
        signed.collect::<Vec<_>>().join(" ")
    }

    /// Verifies that a holder of one of the secrets sent this just now. `header` returns the value of a header by its name
    /// in lower case; `body` is what arrived, untouched.
    ///
    /// # Errors
    /// When it is not.
    pub fn verify<'a>(
        &self,
        header: impl Fn(&'static str) -> Option<&'a str>,
        body: &[u8],
        now: OffsetDateTime,
    ) -> Result<Verified<'a>, Unverified> {
        let get = |name| header(name).ok_or(Unverified::Missing(name));
        let (id, timestamp) = (get("webhook-id")?, get("webhook-timestamp")?);
        let signatures = get("webhook-signature")?;
        let seconds: i64 = timestamp.parse().map_err(|_| Unverified::NoTime)?;
        let at = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| Unverified::NoTime)?;
        let away = now.unix_timestamp().abs_diff(seconds);
        if away > self.tolerance.as_secs() {
            return Err(Unverified::Stale(away));
        }
        let given = signatures.split(' ').filter_map(|one| one.strip_prefix("v1,"));
        let given: Vec<Vec<u8>> = given.filter_map(|text| STANDARD.decode(text).ok()).collect();
        let right = |key: &Vec<u8>| {
            let mac = mac(key, id, timestamp, body);
            // In the same time whatever is wrong.
            given.iter().any(|one| mac.clone().verify_slice(one).is_ok())
        };
        if self.keys.iter().any(right) {
            Ok(Verified { id, at })
        } else {
            Err(Unverified::Forged)
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} secrets)", self.keys.len())
    }
}

fn key(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
    LENGTHS.contains(&key.len()).then_some(key)
}

fn mac(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert_eq, proptest};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn sent_at() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_614_265_330).expect("a time")
    }

    fn keys(secrets: &[&str]) -> Keys {
        Keys::new(secrets).expect("secrets")
    }

    fn check(keys: &Keys, signature: &str, body: &[u8], now: OffsetDateTime) -> Result<(), Unverified> {
        let header = |name| match name {
            "webhook-id" => Some(ID),
            "webhook-timestamp" => Some("1614265330"),
            _ => Some(signature),
        };
        keys.verify(header, body, now).map(|verified| {
            assert_eq!((verified.id, verified.at), (ID, sent_at()));
        })
    }

    /// The example of the specification.
    #[test]
    fn the_specification_agrees() {
        let signature = keys(&[SECRET]).sign(ID, sent_at(), BODY);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn another_secret_another_body_and_another_time_are_refused() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let signature = keys(&[SECRET]).sign(ID, sent_at(), BODY);
        assert_eq!(check(&keys(&[SECRET]), &signature, BODY, sent_at()), Ok(()));
        for (keys, body) in [(keys(&[other]), BODY), (keys(&[SECRET]), b"{}".as_slice())] {
            assert_eq!(check(&keys, &signature, body, sent_at()), Err(Unverified::Forged));
        }
        for away in [-301, 301] {
            let now = sent_at() + time::Duration::seconds(away);
            assert_eq!(
                check(&keys(&[SECRET]), &signature, BODY, now),
                Err(Unverified::Stale(301))
            );
        }
    }

    #[test]
    fn secrets_can_take_each_others_place() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let both = keys(&[SECRET, other]).sign(ID, sent_at(), BODY);
        for secret in [SECRET, other] {
            assert_eq!(check(&keys(&[secret]), &both, BODY, sent_at()), Ok(()));
        }
        let old = keys(&[SECRET]).sign(ID, sent_at(), BODY);
        assert_eq!(check(&keys(&[other, SECRET]), &old, BODY, sent_at()), Ok(()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = keys(&[SECRET]).verify(|_| None, BODY, sent_at());
        assert_eq!(missing, Err(Unverified::Missing("webhook-id")));
        let none = keys(&[SECRET]).verify(|_| Some("x"), BODY, sent_at());
        assert_eq!(none, Err(Unverified::NoTime));
    }

    #[test]
    fn what_is_no_secret_is_refused_without_its_value() {
        for text in [
            "",
            "whsec_",
            "whsec_c2hvcnQ=",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_%",
        ] {
            let refused = Keys::new([text]).expect_err("no secret");
            assert!(
                text.is_empty() || !refused.to_string().contains(&format!("{text} ")),
                "{text}"
            );
        }
        assert_eq!(Keys::new::<&str>([]).expect_err("none"), NoSecret);
        assert!(!format!("{:?}", keys(&[SECRET])).contains("MfKQ"));
    }

    proptest! {
        #[test]
        fn no_header_can_make_it_panic(id: String, timestamp: String, signature: String, body: Vec<u8>) {
            let header = |name| Some(match name {
                "webhook-id" => id.as_str(),
                "webhook-timestamp" => timestamp.as_str(),
                _ => signature.as_str(),
            });
            keys(&[SECRET]).verify(header, &body, sent_at()).expect_err("made up");
        }

        #[test]
        fn what_is_signed_is_verified(id in "[a-z0-9-]{1,40}", body: Vec<u8>, second in 0..4_000_000_000_i64) {
            let at = OffsetDateTime::from_unix_timestamp(second).expect("a time");
            let (timestamp, signature) = (second.to_string(), keys(&[SECRET]).sign(&id, at, &body));
            let header = |name| Some(match name {
                "webhook-id" => id.as_str(),
                "webhook-timestamp" => timestamp.as_str(),
                _ => signature.as_str(),
            });
            let verified = keys(&[SECRET]).verify(header, &body, at).map(|verified| verified.id);
            prop_assert_eq!(verified, Ok(id.as_str()));
        }
    }
}
