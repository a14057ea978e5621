//! Decompresses, upcasts and compresses payloads before they are sent.
//!
//! Each destination bounds how much it holds in memory for that, so that a thousand attempts at once cannot fill the memory.
//! Memory is reserved first. For a compressed payload it is the size that the frame declares, or the limit if it declares
//! none. The decoder fails if the payload turns out larger.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::compress::{self, DecompressError, is_compressed};
use pillarbox::{Delivery, Event, Outcome, Payload};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::cloudevents::is_json;
use super::memory::{Memory, Reserved};
use super::upcasts::{Chain, Upcasts};

/// How much may be recoded and not yet delivered.
const MEMORY: usize = 64 * 1024 * 1024;
/// How long to wait for memory: well below the timeout of an attempt.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to pause the destination when no memory was free.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Recodes for one destination.
pub(crate) struct Recoder {
    /// The size limit of decompressed payloads; none if payloads stay compressed.
    decompress: Option<usize>,
    upcasts: Upcasts,
    /// The size above which payloads are compressed, if they are.
    compress_over: Option<usize>,
    memory: Memory,
}

/// What one event needs before it is sent.
pub(crate) struct Plan {
    decompress: Option<usize>,
    upcast: Option<Arc<Chain>>,
    compress_over: Option<usize>,
}

/// A delivery with a recoded payload, and the memory that it takes.
pub(crate) struct Recoded {
    pub(crate) delivery: Delivery,
    _memory: Reserved,
}

impl Recoder {
    /// Decompresses payloads, and rejects those of more than `limit` bytes.
    pub(crate) fn decompressing(limit: usize) -> Self {
        Self::with_memory(Some(limit), MEMORY)
    }

    /// Leaves payloads compressed, and compresses those of more than `threshold` bytes.
    pub(crate) fn compressing(threshold: usize) -> Self {
        Self {
            compress_over: Some(threshold),
            ..Self::with_memory(None, MEMORY)
        }
    }

    /// Upcasts payloads, too.
    #[must_use]
    pub(crate) fn upcasting(self, upcasts: Upcasts) -> Self {
        Self { upcasts, ..self }
    }

    pub(super) fn with_memory(decompress: Option<usize>, memory: usize) -> Self {
        Self {
            decompress,
            upcasts: Upcasts::default(),
            compress_over: None,
            memory: Memory::new(memory),
        }
    }

    /// What this event needs before it is sent; most need nothing.
    pub(crate) fn plan(&self, event: &Event) -> Option<Plan> {
        let plan = Plan {
            decompress: self.decompress.filter(|_| is_compressed(event)),
            upcast: self.upcasts.chain(event),
            compress_over: self
                .compress_over
                .filter(|&over| event.content_encoding.is_none() && event.payload.len() > over),
        };
        let is_needed = plan.decompress.is_some() || plan.upcast.is_some() || plan.compress_over.is_some();
        is_needed.then_some(plan)
    }

    /// The delivery as it is to be sent. Rejects an invalid payload. Throttles if no memory is free, because the event is
    /// not at fault. Safe to cancel.
    pub(crate) async fn recode(&self, delivery: &Delivery, plan: Plan) -> Result<Recoded, Outcome> {
        let body = delivery.event.payload.as_bytes();
        let size = match plan.decompress {
            None => body.len(),
            Some(limit) => {
                let declared = compress::decompressed_size(body);
                let size = declared.map_or(limit, |size| usize::try_from(size).unwrap_or(usize::MAX));
                if size > limit {
                    return Err(rejected(&DecompressError::TooLarge { limit }));
                }
                size
            }
        };
        let memory = self.reserve(size).await?;
        let mut delivery = delivery.clone(); // the payload itself is shared
        let recode = move || plan.apply(&mut delivery.event).map(|()| delivery);
        let (recoded, memory) = (memory.work(size, recode).await)
            .map_err(|error| Outcome::retry(format!("recoding the payload failed: {error}")))?;
        Ok(Recoded {
            delivery: recoded?,
            _memory: memory,
        })
    }

    /// A payload that is larger than all the memory takes all of it, and is recoded alone.
    async fn reserve(&self, size: usize) -> Result<Reserved, Outcome> {
        let reserved = timeout(MEMORY_TIMEOUT, self.memory.reserve(size)).await;
        reserved.map_err(|_| Outcome::Throttled {
            reason: format!("no memory for recoded payloads was free for {MEMORY_TIMEOUT:?}"),
            after: Some(PAUSE),
        })
    }
}

impl Plan {
    fn apply(self, event: &mut Event) -> Result<(), Outcome> {
        if let Some(limit) = self.decompress {
            let says_json = is_json(event.media_type());
            let content = payload(event.payload.as_bytes(), limit, says_json);
            event.payload = content.map_err(|error| rejected(&error))?;
            event.content_encoding = None;
        }
        if let Some(chain) = self.upcast {
            chain.apply(event).map_err(Outcome::reject)?;
        }
        if let Some(threshold) = self.compress_over
            && let Some(smaller) = compress::compress(event, threshold)
        {
            *event = smaller;
        }
        Ok(())
    }
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

fn rejected(error: &DecompressError) -> Outcome {
    match error {
        DecompressError::TooLarge { .. } => Outcome::reject(format!(
            "{error}; raise the destination's `max_decompressed`, or set `compressed = true`"
        )),
        DecompressError::Corrupt(_) | DecompressError::NotBuilt => Outcome::reject(error.to_string()),
    }
}
