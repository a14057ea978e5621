//! Bounds the messages in flight, in number and in bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The default limit of the bytes of all messages in flight.
pub(crate) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Bytes are counted in these units, which also cover what a message takes beside its body.
const UNIT: usize = 1024;

/// The room for messages in flight.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// All units.
    units: u32,
}

/// The room that one message takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    _message: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl InFlight {
    pub(crate) fn new(messages: usize, bytes: usize) -> Self {
        let units = u32::try_from((bytes / UNIT).max(1)).unwrap_or(u32::MAX);
        Self {
            messages: Arc::new(Semaphore::new(messages.clamp(1, Semaphore::MAX_PERMITS))),
            // On 32-bit machines a semaphore holds fewer than `u32::MAX`.
            bytes: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// Waits for room. A message that is larger than all of it waits until it is alone. Safe to cancel.
    pub(crate) async fn hold(self, len: usize) -> Held {
        let units = self.units_of(len);
        let message = self.messages.acquire_owned().await;
        let bytes = self.bytes.acquire_many_owned(units).await;
        Held {
            _message: message.expect("the semaphore is never closed"),
            _bytes: bytes.expect("the semaphore is never closed"),
        }
    }

    /// The same, if there is room now.
    pub(crate) fn try_hold(&self, len: usize) -> Option<Held> {
        let units = self.units_of(len);
        Some(Held {
            _message: self.messages.clone().try_acquire_owned().ok()?,
            _bytes: self.bytes.clone().try_acquire_many_owned(units).ok()?,
        })
    }

    /// Would twice the bytes in flight fit?
    pub(crate) fn is_half_free(&self) -> bool {
        let used = (self.units as usize).saturating_sub(self.bytes.available_permits());
        used <= self.units as usize / 2
    }

    fn units_of(&self, len: usize) -> u32 {
        let units = u32::try_from(len / UNIT + 1).unwrap_or(u32::MAX);
        units.min(self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn messages_are_bounded_in_number_and_in_bytes() {
        let few = InFlight::new(2, MAX_BYTES);
        let held: Vec<Held> = (0..2).map_while(|_| few.try_hold(10)).collect();
        assert_eq!((held.len(), few.try_hold(10).is_some()), (2, false));
        let small = InFlight::new(1000, 4 * MIB);
        let held: Vec<Held> = std::iter::from_fn(|| small.try_hold(MIB - 1)).collect();
        assert_eq!(held.len(), 4);
        drop(held);
        assert!(small.try_hold(MIB).is_some());
    }

    #[test]
    fn half_of_the_room_is_free_up_to_half_of_the_bytes() {
        let small = InFlight::new(1000, 4 * MIB);
        let half: Vec<Held> = (0..2).map_while(|_| small.try_hold(MIB - 1)).collect();
        assert!(half.len() == 2 && small.is_half_free());
        let more = small.try_hold(10);
        assert!(more.is_some() && !small.is_half_free());
    }

    #[test]
    fn a_message_larger_than_the_limit_passes_alone() {
        let small = InFlight::new(1000, MIB);
        let other = small.try_hold(10);
        assert!(other.is_some() && small.try_hold(50 * MIB).is_none());
        let mut waiting = small.clone().hold(50 * MIB).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        drop(other);
        let large = (&mut waiting).now_or_never();
        assert!(large.is_some() && small.try_hold(10).is_none());
    }
}
