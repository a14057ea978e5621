//! Deliveries for the unit tests.

use pillarbox::{Delivery, Event};
use time::macros::datetime;
use uuid::Uuid;

use crate::headers::{Added, Table};
use crate::registry::ConfigError;

/// The first attempt to deliver the event.
pub(crate) fn delivery(event: Event) -> Delivery {
    Delivery {
        id: event.id,
        seq: 1,
        event,
        lane: None,
        attempts: 1,
        max_attempts: None,
        created_at: datetime!(2026-01-02 03:04:05 UTC),
        claim: Uuid::nil(),
        suspect: false,
        contested: false,
    }
}

/// What a destination with these headers adds.
pub(crate) fn added(
    headers: &[(&str, &str)],
    legal: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<Added, ConfigError> {
    Added::new(&Table::new(headers.iter().copied()).unwrap(), legal)
}
