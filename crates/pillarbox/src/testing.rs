//! For tests of the code that enqueues: assert that an event was enqueued.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox_store::stores::memory::Memory;
//! use pillarbox::testing::{Expected, assert_enqueued};
//! use pillarbox::{Event, Outbox};
//! use serde_json::json;
//!
//! #[derive(serde::Serialize, Event)]
//! #[event(topic = "orders", type = "OrderCreated")]
//! struct OrderCreated {
//!     #[event(key)]
//!     order: u64,
//!     total: String,
//! }
//!
//! // The code under test, on a transaction of the memory store:
//! let outbox = Outbox::default();
//! let mut transaction = Memory::default().begin();
//! let created = OrderCreated { order: 42, total: "19.90".to_owned() };
//! outbox.enqueue(&mut transaction, &created).await?;
//!
//! let events = outbox.enqueued(&mut transaction).await?;
//! // The whole event, whatever its id:
//! assert_enqueued(&events, &created);
//! // Or what matters of it:
//! assert_enqueued(
//!     &events,
//!     &Expected::event_type("OrderCreated")
//!         .ordering_key("42")
//!         .payload_includes(json!({"total": "19.90"})),
//! );
//! # Ok(())
//! # }
//! ```
//!
//! The events are those of [`Outbox::enqueued`](crate::Outbox::enqueued), which sees what a transaction of any library
//! has enqueued so far; of `Memory::events` of the memory store; or of
//! [`Recorded::events`](crate::Recorded::events), which an aggregate recorded.

mod compare;
mod expected;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt::{self, Write};

pub use self::compare::Difference;
pub use self::expected::Expected;
use crate::event::{Event, ToEvent};
use crate::payload::Payload;

/// What an event is expected to be: an [`Event`] or a typed one, equal in everything but its id and the headers of its
/// trace; or what is [`Expected`] of it.
pub trait Expectation {
    /// In what the event differs; nothing, if it is the one.
    fn differences(&self, event: &Event) -> Vec<Difference>;

    /// What is expected, in a line.
    fn describe(&self) -> String;
}

impl<E: ToEvent> Expectation for E {
    fn differences(&self, event: &Event) -> Vec<Difference> {
        compare::whole(&made(self), event)
    }

    fn describe(&self) -> String {
        Line(&made(self)).to_string()
    }
}

fn made(typed: &impl ToEvent) -> Event {
    match typed.to_event() {
        Ok(event) => event.into_owned(),
        Err(error) => panic!("the expected event has no JSON form: {error}"),
    }
}

/// Asserts that one of the events is the expected one, and returns it.
///
/// # Panics
/// When none is: with a list of those that there are, and in what the nearest one differs.
#[track_caller]
pub fn assert_enqueued<I, X>(events: I, expected: &X) -> Event
where
    I: IntoIterator<Item: Borrow<Event>>,
    X: Expectation + ?Sized,
{
    let events: Vec<Event> = events.into_iter().map(|event| event.borrow().clone()).collect();
    let compared: Vec<_> = events.iter().map(|event| expected.differences(event)).collect();
    match compared.iter().position(Vec::is_empty) {
        Some(position) => events[position].clone(),
        None => panic!("{}", complaint(&events, &compared, &expected.describe())),
    }
}

/// Asserts that there are no events.
///
/// # Panics
/// When there are: with a list of them.
#[track_caller]
pub fn assert_nothing_enqueued<I>(events: I)
where
    I: IntoIterator<Item: Borrow<Event>>,
{
    let events: Vec<Event> = events.into_iter().map(|event| event.borrow().clone()).collect();
    assert!(
        events.is_empty(),
        "nothing should have been enqueued; there {}",
        list(&events)
    );
}

fn complaint(events: &[Event], compared: &[Vec<Difference>], expected: &str) -> String {
    let mut text = format!(
        "the expected event was not enqueued\nexpected: {expected}\nthere {}",
        list(events)
    );
    let nearest = compared
        .iter()
        .enumerate()
        .min_by_key(|(_, differences)| differences.len());
    if let Some((position, differences)) = nearest {
        let number = position + 1;
        text.push_str(&format!("the nearest is {number}, which differs in"));
        for difference in differences {
            text.push_str(&format!("\n  {difference}"));
        }
    }
    text
}

fn list(events: &[Event]) -> String {
    let mut text = match events {
        [] => return "is nothing at all\n".to_owned(),
        [_] => "is\n".to_owned(),
        _ => "are\n".to_owned(),
    };
    for (position, event) in events.iter().enumerate() {
        let number = position + 1;
        text.push_str(&format!("  {number}. {}\n", Line(event)));
    }
    text
}

/// An event in a line.
struct Line<'a>(&'a Event);

/// How much of a payload is shown.
const SHOWN: usize = 200;

impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.0;
        write!(out, "{}/{}", event.namespace, event.topic)?;
        if let Some(kind) = &event.event_type {
            write!(out, " {kind} v{}", event.event_version)?;
        }
        for (name, value) in [
            ("aggregate", &event.aggregate_id),
            ("key", &event.ordering_key),
            ("dedupe key", &event.dedupe_key),
        ] {
            if let Some(value) = value {
                write!(out, ", {name} {value}")?;
            }
        }
        match &event.payload {
            Payload::Json(text) => {
                let text = String::from_utf8_lossy(text);
                write!(out, ": {}", text.chars().take(SHOWN).collect::<String>())?;
                if text.chars().count() > SHOWN {
                    out.write_char('…')?;
                }
                Ok(())
            }
            Payload::Bytes(bytes) => write!(out, ": {} bytes of {}", bytes.len(), event.media_type()),
        }
    }
}
