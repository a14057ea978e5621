//! Payloads that are stored compressed, as they were.
//!
//! How much is decompressed and not yet delivered is bounded for each destination, so that a thousand attempts
//! at once cannot fill the memory. Room is taken before anything is decompressed, by what the frame claims, or by
//! the limit where it claims nothing; the decoder holds it to that.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::compress::{self, DecompressError};
use pillarbox::{Delivery, Outcome, Payload};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::cloudevents::is_json;

const KIB: usize = 1024;
/// How much may be decompressed and not yet delivered.
const ROOM: usize = 64 * 1024 * KIB;
/// How long to wait for room: well below the time that an attempt has.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the destination is left alone when there was none.
pub(super) const LATER: Duration = Duration::from_secs(1);
/// What is larger is decompressed aside: about a millisecond of work.
const ASIDE: usize = 512 * KIB;

/// Decompresses for one destination.
pub(crate) struct Decoder {
    limit: usize,
    /// All the room there is, in KiB.
    all: usize,
    /// What is left of it.
    room: Arc<Semaphore>,
}

/// A delivery as it was before it was compressed, and the room that it takes.
pub(crate) struct Unpacked {
    pub(crate) delivery: Delivery,
    _room: OwnedSemaphorePermit,
}

impl Decoder {
    /// Nothing larger than `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_room(limit, ROOM)
    }

    pub(super) fn with_room(limit: usize, room: usize) -> Self {
        let all = room / KIB;
        Self {
            limit,
            all,
            room: Arc::new(Semaphore::new(all)),
        }
    }

    /// The delivery with its payload as it was. What cannot be decompressed is rejected; without room it is not its
    /// fault, and it comes again. Safe to cancel.
    pub(crate) async fn unpack(&self, delivery: &Delivery) -> Result<Unpacked, Outcome> {
        let body = delivery.event.payload.as_bytes().clone();
        let claim = compress::decompressed_size(&body);
        let size = claim.map_or(self.limit, |size| usize::try_from(size).unwrap_or(usize::MAX));
        let limit = self.limit;
        if size > limit {
            return Err(rejected(&DecompressError::TooLarge { limit }));
        }
        let room = self.take(size).await?;
        let says_json = is_json(delivery.event.media_type());
        let decompress = move || payload(&body, limit, says_json);
        let (payload, room) = if size <= ASIDE {
            (decompress(), room)
        } else {
            // The room goes along: what nobody waits for any more still takes it.
            aside(move || (decompress(), room)).await?
        };
        Ok(Unpacked {
            delivery: with_payload(delivery, payload.map_err(|error| rejected(&error))?),
            _room: room,
        })
    }

    /// One that is larger than all the room takes all of it, and goes alone.
    async fn take(&self, size: usize) -> Result<OwnedSemaphorePermit, Outcome> {
        let kib = u32::try_from(size.div_ceil(KIB).min(self.all)).unwrap_or(u32::MAX);
        let taking = self.room.clone().acquire_many_owned(kib);
        match timeout(PATIENCE, taking).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(Outcome::Throttled {
                reason: format!("the memory for decompressed payloads was in use for {PATIENCE:?}"),
                after: Some(LATER),
            }),
        }
    }
}

/// Runs what takes milliseconds where it holds up nobody. See ADR 0010.
#[allow(
    clippy::disallowed_methods,
    reason = "decompressing is pure work, and too long for the runtime's threads"
)]
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Outcome> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Outcome::retry(format!("the payload was not decompressed: {error}")))
}

/// Bytes that say they are JSON, and are, are JSON again: a sink that shows JSON shows it.
fn payload(body: &[u8], limit: usize, says_json: bool) -> Result<Payload, DecompressError> {
    let content = compress::decompress(body, limit)?;
    let is_json = says_json && serde_json::from_slice::<&RawValue>(&content).is_ok();
    Ok(if is_json {
        Payload::Json(content)
    } else {
        Payload::Bytes(content)
    })
}

fn with_payload(delivery: &Delivery, payload: Payload) -> Delivery {
    let mut delivery = delivery.clone();
    delivery.event.payload = payload;
    delivery.event.content_encoding = None;
    delivery
}

fn rejected(error: &DecompressError) -> Outcome {
    match error {
        DecompressError::TooLarge { .. } => Outcome::reject(format!(
            "{error}; raise the destination's `max_decompressed`, or set `compressed = true`"
        )),
        DecompressError::Corrupt(_) | DecompressError::NotBuilt => Outcome::reject(error.to_string()),
    }
}
