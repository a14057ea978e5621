//! Versions of payloads: consumers read old events in today's shape.
//!
//! An event carries the version of its payload's shape (`event_version`). A consumer is written for one version. An
//! *upcaster* turns a payload of one version into a payload of the next. Upcasters form a chain for each event type, so
//! that an event from years ago is read as if it were written today.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::versions::{Upcast, Upcasters};
//! use serde_json::json;
//!
//! let upcasters = Upcasters::new()
//!     // Version 2 has a currency.
//!     .add("OrderCreated", 1, |mut order| {
//!         order["currency"] = json!("EUR");
//!         Ok(order)
//!     })
//!     // Version 3 says `total` for `amount`.
//!     .add("OrderCreated", 2, |mut order| {
//!         order["total"] = order["amount"].take();
//!         Ok(order)
//!     });
//! upcasters.leads_to("OrderCreated", 3)?; // at the start: there is no gap
//!
//! let old = br#"{"amount": "19.90"}"#;
//! let Upcast::Changed(new) = upcasters.upcast("OrderCreated", 1, 3, old)? else { panic!() };
//! let new: serde_json::Value = serde_json::from_slice(&new)?;
//! assert_eq!(new["currency"], "EUR");
//! assert_eq!(new["total"], "19.90");
//! # Ok(())
//! # }
//! ```
//!
//! They are pure functions from JSON to JSON: no clock, no database. Numbers are those of serde_json, 64 bits wide; what
//! needs more digits is a text.
//!
//! They run where a consumer reads. [`Upcasting`] runs them before an event is published instead, for receivers that
//! cannot.
//!
//! **If we die here** nothing was changed: what is stored stays as it was written.

mod publish;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::text::json_error;

pub use self::publish::Upcasting;

/// Makes a payload of one version into one of the next.
type Upcaster = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// Every upcaster there is. Cheap to clone.
#[derive(Clone, Default)]
pub struct Upcasters {
    /// By event type, and by the version that they start from.
    chains: BTreeMap<String, BTreeMap<i32, Upcaster>>,
    /// Those that were there already.
    twice: Vec<(String, i32)>,
}

/// The result of upcasting a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upcast {
    /// It has the version already, and is untouched.
    Same,
    /// The new payload.
    Changed(Bytes),
}

/// Why upcasters are no chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenChain {
    /// A version has no way to the next.
    #[error(
        "nothing leads from version {from} of `{event_type}` to version {}, on the way from {oldest} to {to}; add that \
         upcaster",
        .from + 1
    )]
    Gap {
        /// Of this event type.
        event_type: String,
        /// The version from which nothing leads on.
        from: i32,
        /// The oldest version that there is an upcaster for.
        oldest: i32,
        /// Where the chain should lead.
        to: i32,
    },
    /// A version has two ways to the next.
    #[error("two upcasters lead from version {from} of `{event_type}`; one of them would never run")]
    Twice {
        /// Of this event type.
        event_type: String,
        /// The version that both start from.
        from: i32,
    },
}

/// Why a payload cannot be upcast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpcastError {
    /// It was written by a newer program than this.
    #[error("version {found} of `{event_type}` is newer than version {understood}, which is understood here")]
    Newer {
        /// Of this event type.
        event_type: String,
        /// The version that it has.
        found: i32,
        /// The version that is understood.
        understood: i32,
    },
    /// No upcaster starts from a version that old.
    #[error("no upcaster leads from version {found} of `{event_type}` to version {understood}")]
    Older {
        /// Of this event type.
        event_type: String,
        /// The version that it has.
        found: i32,
        /// The version that is understood.
        understood: i32,
    },
    /// An upcaster refused it.
    #[error("version {from} of `{event_type}` cannot be made into version {}: {reason}", .from + 1)]
    Refused {
        /// Of this event type.
        event_type: String,
        /// The version that it had then.
        from: i32,
        /// What the upcaster said.
        reason: String,
    },
    /// It is not JSON.
    #[error("payload is not JSON: {0}")]
    NotJson(String),
}

impl Upcasters {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the one that leads from version `from` of an event type to the next version. Its error says why a payload
    /// cannot be made into that.
    #[must_use]
    pub fn add(
        mut self,
        event_type: impl Into<String>,
        from: i32,
        upcaster: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        let event_type = event_type.into();
        let chain = self.chains.entry(event_type.clone()).or_default();
        if chain.insert(from, Arc::new(upcaster)).is_some() {
            self.twice.push((event_type, from));
        }
        self
    }

    /// Is there a way without a gap from the oldest version of this event type to `version`? To be asked at the start,
    /// for what a consumer understands. Upcasters past that version are not needed, and do no harm.
    ///
    /// # Errors
    /// Where the chain is broken.
    pub fn leads_to(&self, event_type: &str, version: i32) -> Result<(), BrokenChain> {
        if let Some((event_type, from)) = self.twice.iter().find(|(twice, _)| twice == event_type) {
            return Err(BrokenChain::Twice {
                event_type: event_type.clone(),
                from: *from,
            });
        }
        let Some(chain) = self.chains.get(event_type) else {
            return Ok(());
        };
        let oldest = chain.keys().next().copied().unwrap_or(version);
        match (oldest..version).find(|from| !chain.contains_key(from)) {
            None => Ok(()),
            Some(from) => Err(BrokenChain::Gap {
                event_type: event_type.to_owned(),
                from,
                oldest,
                to: version,
            }),
        }
    }

    /// Makes a payload of version `from` into one of version `to`.
    ///
    /// # Errors
    /// When it is newer, or too old, or an upcaster refuses it.
    pub fn upcast(
        &self,
        event_type: &str,
        from: i32,
        to: i32,
        payload: &[u8],
    ) -> Result<Upcast, UpcastError> {
        if from == to {
            return Ok(Upcast::Same);
        }
        if from > to {
            return Err(UpcastError::Newer {
                event_type: event_type.to_owned(),
                found: from,
                understood: to,
            });
        }
        let older = || UpcastError::Older {
            event_type: event_type.to_owned(),
            found: from,
            understood: to,
        };
        let chain = self.chains.get(event_type).ok_or_else(older)?;
        let not_json = |error: serde_json::Error| UpcastError::NotJson(json_error(&error));
        let mut value: Value = serde_json::from_slice(payload).map_err(not_json)?;
        for version in from..to {
            let upcaster = chain.get(&version).ok_or_else(older)?;
            value = upcaster(value).map_err(|reason| UpcastError::Refused {
                event_type: event_type.to_owned(),
                from: version,
                reason,
            })?;
        }
        let text = serde_json::to_vec(&value).map_err(not_json)?;
        Ok(Upcast::Changed(text.into()))
    }
}

impl fmt::Debug for Upcasters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = |chain: &BTreeMap<i32, Upcaster>| chain.keys().copied().collect::<Vec<_>>();
        let chains = self.chains.iter().map(|(name, chain)| (name, versions(chain)));
        f.debug_map().entries(chains).finish()
    }
}

#[cfg(test)]
mod tests;
