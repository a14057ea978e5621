//! Memory for payloads that are decompressed or changed, bounded in total: however many come at once, they cannot fill the
//! memory.
//!
//! **If we die here** nothing happened: the work has no effect.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

const KIB: usize = 1024;
/// Larger payloads are worked on by a blocking thread: about a millisecond of work.
const LARGE: usize = 512 * KIB;

/// The memory.
#[derive(Debug)]
pub struct Memory {
    /// All of it, in KiB.
    total: usize,
    /// The part that is free.
    free: Arc<Semaphore>,
}

/// A part of the memory, which is free again when this is dropped.
#[derive(Debug)]
pub struct Reserved {
    _permit: OwnedSemaphorePermit,
}

impl Memory {
    /// This many bytes.
    pub fn new(bytes: usize) -> Self {
        let total = (bytes / KIB)
            .clamp(1, u32::MAX as usize)
            .min(Semaphore::MAX_PERMITS);
        Self {
            total,
            free: Arc::new(Semaphore::new(total)),
        }
    }

    /// Waits until this many bytes are free. More than there are take all of them. Safe to cancel.
    pub async fn reserve(&self, bytes: usize) -> Reserved {
        let kib = u32::try_from(bytes.div_ceil(KIB).min(self.total)).unwrap_or(u32::MAX);
        let permit = self.free.clone().acquire_many_owned(kib).await;
        Reserved {
            _permit: permit.expect("the semaphore is never closed"),
        }
    }
}

impl Reserved {
    /// Works on a payload of this many bytes, if that is long on a blocking thread. The thread owns the memory: it is in use
    /// until the work ends, even if the caller was dropped. See ADR 0010.
    ///
    /// # Errors
    /// When the work panicked.
    #[allow(
        clippy::disallowed_methods,
        reason = "the work does no I/O, and is too long for the runtime's threads"
    )]
    pub async fn work<T: Send + 'static>(
        self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Self), JoinError> {
        if bytes <= LARGE {
            return Ok((work(), self));
        }
        tokio::task::spawn_blocking(move || (work(), self)).await
    }
}
