//! Finds the handler of an event.

use std::collections::HashMap;
use std::collections::hash_map;

use pillarbox::versions::{BrokenChain, Upcasters};

use crate::handler::Erased;

/// Why a consumer cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two handlers have the same event type.
    #[error("two handlers are registered for the event type `{0}` (remove one)")]
    TwoHandlers(String),
    /// Two handlers are registered with `otherwise`.
    #[error("two handlers are registered for all other event types (remove one)")]
    TwoOthers,
    /// There is no handler: the consumer would acknowledge and lose every message.
    #[error("no handler is registered: every message would be lost (register one with `on`)")]
    NoHandler,
    /// An older version of an event cannot be upcast to the one that a handler declared.
    #[error(transparent)]
    Upcasters(#[from] BrokenChain),
    /// The consumer's name is empty. The inbox stores marks under it.
    #[error("the consumer's name is empty: the inbox stores marks under it (choose one and keep it)")]
    NoName,
}

/// A handler, and the version that it understands.
pub(crate) struct Entry<Tx> {
    /// None: it accepts every version.
    pub(crate) version: Option<i32>,
    pub(crate) handler: Box<dyn Erased<Tx>>,
}

/// All handlers of a consumer.
pub(crate) struct Registry<Tx> {
    by_type: HashMap<String, Entry<Tx>>,
    other: Option<Entry<Tx>>,
    pub(crate) upcasters: Upcasters,
    /// The first mistake; reported when the consumer starts.
    mistake: Option<StartError>,
}

impl<Tx> Registry<Tx> {
    pub(crate) fn new() -> Self {
        Self {
            by_type: HashMap::new(),
            other: None,
            upcasters: Upcasters::new(),
            mistake: None,
        }
    }

    pub(crate) fn add(&mut self, event_type: String, version: i32, handler: Box<dyn Erased<Tx>>) {
        match self.by_type.entry(event_type) {
            hash_map::Entry::Vacant(free) => {
                free.insert(Entry {
                    version: Some(version),
                    handler,
                });
            }
            hash_map::Entry::Occupied(taken) => {
                let mistake = StartError::TwoHandlers(taken.key().clone());
                self.mistake.get_or_insert(mistake);
            }
        }
    }

    pub(crate) fn add_other(&mut self, handler: Box<dyn Erased<Tx>>) {
        if self.other.is_some() {
            self.mistake.get_or_insert(StartError::TwoOthers);
        }
        self.other = Some(Entry {
            version: None,
            handler,
        });
    }

    /// Returns the first mistake.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.by_type.is_empty() && self.other.is_none() {
            return Err(StartError::NoHandler);
        }
        for (event_type, entry) in &self.by_type {
            if let Some(version) = entry.version {
                self.upcasters.leads_to(event_type, version)?;
            }
        }
        Ok(())
    }

    pub(crate) fn find(&self, event_type: Option<&str>) -> Option<&Entry<Tx>> {
        let own = event_type.and_then(|event_type| self.by_type.get(event_type));
        own.or(self.other.as_ref())
    }
}
