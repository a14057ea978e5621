//! Sagas: work of several services, one after another, that all of them do or that is undone.
//!
//! The application orchestrates a saga. Its state is a row in `pillarbox.sagas`. Its commands are events of the outbox,
//! written in the transaction that changes the row. Services reply, and each reply moves the saga on. Whatever fails, it
//! ends `completed` or `compensated`.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use pillarbox::saga::{Saga, Step};
//! use pillarbox::{Event, Outbox};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { number: u64, payment: Option<u64> }
//!
//! #[derive(Deserialize)]
//! struct Paid { payment: u64 }
//!
//! #[derive(Serialize, Event)]
//! #[event(namespace = "shop", topic = "payments", type = "ChargeCard")]
//! struct ChargeCard { order: u64 }
//!
//! #[derive(Serialize, Event)]
//! #[event(namespace = "shop", topic = "payments", type = "RefundCard")]
//! struct RefundCard { order: u64, payment: Option<u64> }
//!
//! let payment = Step::new("payment", |order: &Order| ChargeCard { order: order.number })
//!     .compensation(|order| RefundCard { order: order.number, payment: order.payment })
//!     .take(|order, paid: Paid| order.payment = Some(paid.payment))
//!     .timeout(Duration::from_secs(30));
//! let shipping = Step::new("shipping", |order: &Order| {
//!     Event::new("shop", "shipping").event_type("Ship").aggregate("order", order.number.to_string())
//! });
//! let saga = Saga::define("order")
//!     .address("shop", "order-saga") // its own timeouts come back by this topic
//!     .step(payment)
//!     .step(shipping)
//!     .build(&Outbox::default())?;
//! # drop(saga);
//! # Ok(())
//! # }
//! ```
//!
//! `saga.start(&mut transaction, 42, &order)` begins it with the application's own change. A consumer that gets the
//! replies and the saga's own messages calls `saga.handle(&mut transaction, &message)` for each, commits, and acknowledges.
//!
//! [`message`] lists the headers that services in any language echo. `docs/sagas.md` has the contract.
//!
//! | module | what it holds |
//! |---|---|
//! | `definition` | steps, and what they are made of |
//! | `state`, `machine`, `line` | the state of a saga, how it moves, and its log; pure |
//! | `start`, `handle`, `ask` | the verbs |
//! | `emit` | a decision as events |
//! | [`message`], `token` | headers, and what proves them |
//! | `row`, `postgres`, and `saga.rs` of the SQLite store | what the table holds |
//!
//! PostgreSQL and SQLite hold sagas, with every library but the blocking diesel. The memory store holds none.
//!
//! **If we die here** before the commit, nothing happened, and the message is delivered again. After it, the next command
//! and its timeout are in the outbox, and a second delivery changes nothing.

mod ask;
mod definition;
mod emit;
mod error;
mod handle;
mod line;
mod machine;
pub mod message;
#[cfg_attr(
    not(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel")),
    allow(
        dead_code,
        reason = "only a library that talks to PostgreSQL runs its statements"
    )
)]
pub(crate) mod postgres;
mod row;
mod start;
mod state;
mod token;

pub use self::ask::{AskResult, ask};
pub use self::definition::{Definition, InvalidSaga, Saga, Step};
pub use self::error::SagaError;
pub use self::handle::{Handled, Reply};
#[cfg(feature = "sqlite")]
pub(crate) use self::line::Line;
pub use self::machine::Why;
pub use self::message::{Ask, Command, Message};
#[doc(hidden)]
pub use self::row::{Log, Request, Response, Row};
pub use self::start::Started;
pub use self::state::{Action, Answer, Attempt, Status};
pub use self::token::Token;
