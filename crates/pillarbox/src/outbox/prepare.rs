//! Prepares an event for the database: converts, validates, adds the headers of the trace, and compresses it if it is
//! large.

use std::borrow::Cow;

use super::Outbox;
use crate::compress::compress;
use crate::enqueue::EnqueueError;
use crate::event::{Event, ToEvent};
use crate::trace;
use crate::validate::validate;

/// Converts, validates and traces an event. Compression is apart, because it takes time.
fn check<'a, E: ToEvent + ?Sized>(outbox: &Outbox, event: &'a E) -> Result<Cow<'a, Event>, EnqueueError> {
    let event = event.to_event().map_err(EnqueueError::NoJson)?;
    validate(&event, &outbox.limits)?;
    Ok(match trace::capture(&event) {
        Some(traced) => Cow::Owned(traced),
        None => event,
    })
}

pub(super) async fn one<'a, E: ToEvent + ?Sized>(
    outbox: &Outbox,
    event: &'a E,
) -> Result<Cow<'a, Event>, EnqueueError> {
    let event = check(outbox, event)?;
    Ok(compress_large(outbox, event).await)
}

pub(super) async fn all<'a, E: ToEvent>(
    outbox: &Outbox,
    events: &'a [E],
) -> Result<Vec<Cow<'a, Event>>, EnqueueError> {
    // All of them first: one invalid event rejects the call before any work is done.
    let checked: Vec<_> = events
        .iter()
        .map(|event| check(outbox, event))
        .collect::<Result<_, _>>()?;
    let mut prepared = Vec::with_capacity(checked.len());
    for event in checked {
        prepared.push(compress_large(outbox, event).await);
    }
    Ok(prepared)
}

/// Compresses a large event on a blocking thread: a megabyte takes a few milliseconds.
async fn compress_large<'a>(outbox: &Outbox, event: Cow<'a, Event>) -> Cow<'a, Event> {
    let Some(threshold) = exceeded_threshold(outbox, &event) else {
        return event;
    };
    let copy = Event::clone(&event); // the payload itself is shared
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing but arithmetic, and it can be dropped at any time"
    )]
    let compressed = tokio::task::spawn_blocking(move || compress(&copy, threshold)).await;
    match compressed {
        Ok(Some(compressed)) => Cow::Owned(compressed),
        // It would not shrink, or the runtime is shutting down: it stays uncompressed.
        Ok(None) | Err(_) => event,
    }
}

/// The same for callers that block anyway.
#[cfg(feature = "diesel")]
pub(super) fn all_blocking<'a, E: ToEvent>(
    outbox: &Outbox,
    events: &'a [E],
) -> Result<Vec<Cow<'a, Event>>, EnqueueError> {
    let compress_large = |event: Cow<'a, Event>| match exceeded_threshold(outbox, &event) {
        Some(threshold) => compress(&event, threshold).map_or(event, Cow::Owned),
        None => event,
    };
    let checked = events.iter().map(|event| check(outbox, event));
    checked.map(|event| event.map(compress_large)).collect()
}

/// The threshold, if the payload is larger.
fn exceeded_threshold(outbox: &Outbox, event: &Event) -> Option<usize> {
    outbox
        .compress_over
        .filter(|&threshold| event.payload.len() > threshold)
}
