//! Reads the events that a transaction sees in the outbox: for tests of applications.
//!
//! **If we die here** nothing happened: this only reads.

use bytes::Bytes;

use super::sealed::Backend as _;
use super::{Connection, Outbox};
use crate::compress::{DecompressError, decompress, is_compressed};
use crate::error::StoreError;
use crate::event::Event;
use crate::payload::Payload;

impl Outbox {
    /// The events in the outbox that the transaction of `connection` sees, its own included, in the order in which they
    /// were enqueued. What was compressed is decompressed; siblings are left out.
    ///
    /// For [tests](crate::testing): it reads all of them. A test that rolls its transaction back leaves nothing behind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use pillarbox_store::stores::memory::Memory;
    /// use pillarbox::{Event, Outbox};
    ///
    /// let outbox = Outbox::default();
    /// let mut transaction = Memory::default().begin();
    /// outbox.enqueue(&mut transaction, &Event::new("shop", "orders")).await?;
    /// assert_eq!(outbox.enqueued(&mut transaction).await?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the database fails, or a payload cannot be decompressed.
    pub async fn enqueued<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
    ) -> Result<Vec<Event>, StoreError> {
        as_said(self, connection.backend().read(self, None).await?)
    }

    /// [`enqueued`](Self::enqueued), of one namespace only: for an outbox that others use too.
    ///
    /// # Errors
    /// As for [`enqueued`](Self::enqueued).
    pub async fn enqueued_by<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        namespace: &str,
    ) -> Result<Vec<Event>, StoreError> {
        as_said(self, connection.backend().read(self, Some(namespace)).await?)
    }
}

/// The events as they were before they were prepared for the database.
pub(super) fn as_said(outbox: &Outbox, events: Vec<Event>) -> Result<Vec<Event>, StoreError> {
    let restored = |event: Event| {
        let id = event.id;
        let unreadable = |error| StoreError::Other(format!("event {id}: {error}"));
        restored(event, outbox.limits.payload).map_err(unreadable)
    };
    events.into_iter().map(restored).collect()
}

/// The event as it was before it was compressed, if it was.
///
/// # Errors
/// When it cannot be decompressed.
pub fn restored(mut event: Event, limit: usize) -> Result<Event, DecompressError> {
    if !is_compressed(&event) {
        return Ok(event);
    }
    let content: Bytes = decompress(event.payload.as_bytes(), limit)?;
    event.content_encoding = None;
    event.payload = if event.media_type() == "application/json" {
        event.content_type = None;
        Payload::Json(content)
    } else {
        Payload::Bytes(content)
    };
    Ok(event)
}
