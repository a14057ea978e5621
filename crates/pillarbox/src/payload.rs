//! The payload of an event: JSON text, or other bytes.

use bytes::Bytes;
use serde::Serialize;

/// JSON text or bytes. Neither is parsed on the way from the store to the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// JSON text. A store may write it down differently: PostgreSQL's `jsonb` sorts keys and drops
    /// white space and duplicate keys. What must arrive byte for byte goes into [`Payload::Bytes`].
    Json(Bytes),
    /// Bytes that arrive as they are.
    Bytes(Bytes),
}

impl Payload {
    /// The empty JSON object.
    pub fn empty() -> Self {
        Self::Json(Bytes::from_static(b"{}"))
    }

    /// Serialises a value.
    ///
    /// # Errors
    /// When the value has no JSON form.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|text| Self::Json(text.into()))
    }

    /// What is sent.
    pub fn as_bytes(&self) -> &Bytes {
        match self {
            Self::Json(bytes) | Self::Bytes(bytes) => bytes,
        }
    }

    /// How many bytes are sent.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Is there nothing to send?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
