//! Decompresses payloads that are stored compressed.
//!
//! Each destination bounds how much is decompressed and not yet delivered, so that a thousand attempts at once cannot fill
//! the memory. Memory is reserved before a payload is decompressed. The size is the one that the frame declares, or the
//! limit if it declares none. The decoder fails if the payload turns out larger.

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
const MEMORY: usize = 64 * 1024 * KIB;
/// How long to wait for memory: well below the timeout of an attempt.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to pause the destination when no memory was free.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Larger payloads are decompressed on a blocking thread: about a millisecond of work.
const LARGE: usize = 512 * KIB;

/// Decompresses for one destination.
pub(crate) struct Decoder {
    limit: usize,
    /// All of its memory, in KiB.
    total: usize,
    /// The part that is free.
    free: Arc<Semaphore>,
}

/// A delivery with a decompressed payload, and the memory that it takes.
pub(crate) struct Decompressed {
    pub(crate) delivery: Delivery,
    _memory: OwnedSemaphorePermit,
}

impl Decoder {
    /// Rejects payloads of more than `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_memory(limit, MEMORY)
    }

    pub(super) fn with_memory(limit: usize, memory: usize) -> Self {
        let total = memory / KIB;
        Self {
            limit,
            total,
            free: Arc::new(Semaphore::new(total)),
        }
    }

    /// The delivery with its payload decompressed. Rejects an invalid payload. Throttles if no memory is free, because the
    /// event is not at fault. Safe to cancel.
    pub(crate) async fn decompress(&self, delivery: &Delivery) -> Result<Decompressed, Outcome> {
        let body = delivery.event.payload.as_bytes().clone();
        let declared = compress::decompressed_size(&body);
        let size = declared.map_or(self.limit, |size| usize::try_from(size).unwrap_or(usize::MAX));
        let limit = self.limit;
        if size > limit {
            return Err(rejected(&DecompressError::TooLarge { limit }));
        }
        let memory = self.reserve(size).await?;
        let says_json = is_json(delivery.event.media_type());
        let decompress = move || payload(&body, limit, says_json);
        let (payload, memory) = if size <= LARGE {
            (decompress(), memory)
        } else {
            // The thread owns the memory: it is in use until the work ends, even if the attempt was dropped.
            on_blocking_thread(move || (decompress(), memory)).await?
        };
        Ok(Decompressed {
            delivery: with_payload(delivery, payload.map_err(|error| rejected(&error))?),
            _memory: memory,
        })
    }

    /// A payload that is larger than all the memory takes all of it, and is decompressed alone.
    async fn reserve(&self, size: usize) -> Result<OwnedSemaphorePermit, Outcome> {
        let kib = u32::try_from(size.div_ceil(KIB).min(self.total)).unwrap_or(u32::MAX);
        let reserving = self.free.clone().acquire_many_owned(kib);
        match timeout(MEMORY_TIMEOUT, reserving).await {
            Ok(Ok(memory)) => Ok(memory),
            Ok(Err(_)) | Err(_) => Err(Outcome::Throttled {
                reason: format!("no memory for decompressed payloads was free for {MEMORY_TIMEOUT:?}"),
                after: Some(PAUSE),
            }),
        }
    }
}

/// Runs milliseconds of work off the threads that run tasks. See ADR 0010.
#[allow(
    clippy::disallowed_methods,
    reason = "decompressing does no I/O, and is too long for the runtime's threads"
)]
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Outcome> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Outcome::retry(format!("decompressing the payload failed: {error}")))
}

/// Bytes with a JSON media type become JSON again if they are valid, so that the log shows JSON.
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
