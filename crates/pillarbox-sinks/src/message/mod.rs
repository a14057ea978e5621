//! What goes out of an event, whatever carries it: the contract is `docs/sinks/message-format.md`.
//!
//! Every destination has the same few keys for it, beside those of its sink:
//!
//! ```toml
//! format = "cloudevents"
//! source = "https://shop.example/{namespace}"
//! max_decompressed = "16MiB"
//! ```
//!
//! | file | |
//! |---|---|
//! | `config.rs` | what can be said |
//! | `writer.rs` | an event as headers and a body, by format |
//! | `cloudevents.rs`, `binding.rs` | the attributes, and how each protocol names and writes them |
//! | `reader.rs` | the way back: a message as what it says of its event, for consumers |
//! | `decoder.rs`, `decoded.rs`, `turns.rs` | what is stored compressed, delivered as it was and in its turn |
//!
//! An event that is neither compressed nor sent as a CloudEvent pays nothing for any of this.
//!
//! **If we die here** nothing was sent: all of it comes before the send.

mod binding;
mod cloudevents;
mod config;
mod decoded;
mod decoder;
mod reader;
mod turns;
mod writer;

pub(crate) use binding::{AMQP, HTTP, KAFKA, NATS, REDIS};
pub(crate) use config::Form;
pub use config::{Config, Format, MAX_DECOMPRESSED};
pub use decoded::Decoded;
pub(crate) use decoder::Decoder;
pub use reader::{Incoming, Protocol, Read, Unreadable, read};
pub(crate) use writer::{Parts, Writer};
