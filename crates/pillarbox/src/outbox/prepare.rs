//! What happens to an event before a database sees it: made of what the caller has, checked.

use std::borrow::Cow;

use super::Outbox;
use crate::enqueue::EnqueueError;
use crate::event::{Event, ToEvent};
use crate::validate::validate;

pub(super) fn one<'a, E: ToEvent + ?Sized>(
    outbox: &Outbox,
    event: &'a E,
) -> Result<Cow<'a, Event>, EnqueueError> {
    let event = event.to_event().map_err(EnqueueError::NoJson)?;
    validate(&event, &outbox.limits)?;
    Ok(event)
}

pub(super) fn all<'a, E: ToEvent>(
    outbox: &Outbox,
    events: &'a [E],
) -> Result<Vec<Cow<'a, Event>>, EnqueueError> {
    events.iter().map(|event| one(outbox, event)).collect()
}
