//! The message that every sink makes of an event: the contract is `docs/sinks/message-format.md`.
//!
//! Every destination has the same keys for it, beside those of its sink:
//!
//! ```toml
//! format = "cloudevents"
//! source = "https://shop.example/{namespace}"
//! max_decompressed = "16MiB"
//! ```
//!
//! | file | |
//! |---|---|
//! | `config.rs` | the keys |
//! | `writer.rs` | an event as headers and a body, by format |
//! | `cloudevents.rs`, `binding.rs` | the attributes, and how each protocol names and writes them |
//! | `reader.rs` | a message as the event that it describes, for consumers |
//! | `upcasts.rs` | old payloads in the version that the receivers know |
//! | `recoder.rs`, `recoded.rs`, `key_order.rs` | payloads, decompressed, upcast or compressed in the order of their keys |
//! | `memory.rs` | how much memory that takes at once, here and in consumers |
//!
//! An event that needs none of this, and is not sent as a CloudEvent, pays nothing for it.
//!
//! **If we die here** nothing was sent: all of this happens before the send.

mod binding;
mod cloudevents;
mod config;
mod key_order;
mod memory;
mod reader;
mod recoded;
mod recoder;
pub mod upcasts;
mod writer;

pub(crate) use binding::{AMQP, HTTP, KAFKA, NATS, REDIS};
pub(crate) use config::Form;
pub use config::{Config, Format, MAX_DECOMPRESSED};
#[doc(hidden)]
pub use memory::{Memory, Reserved};
pub use reader::{Incoming, Protocol, Read, Unreadable, read};
pub use recoded::Recoding;
pub(crate) use recoder::Recoder;
pub use upcasts::Upcasts;
pub(crate) use writer::{Parts, Writer};
