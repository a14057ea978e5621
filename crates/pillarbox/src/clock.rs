//! The source of time.
//!
//! Two times, because they answer two questions. The wall clock says when something is due; a
//! database has its own and decides. The boot clock says how long a worker may trust its lease: it
//! never jumps and, unlike [`std::time::Instant`] on Linux, goes on while the machine is suspended,
//! so that a laptop that slept through its lease knows it.

use std::fmt::Debug;
use std::time::Duration;

use time::OffsetDateTime;

/// A source of time, so that tests can move it.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The date and time. May jump, also backwards.
    fn wall(&self) -> OffsetDateTime;

    /// How long it is since some fixed moment, suspension included. Never goes backwards.
    fn boot(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the home of the wall clock")]
    fn wall(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }

    #[cfg(target_os = "linux")]
    fn boot(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// Elsewhere `Monotonic` is the best there is; on macOS it counts suspension too.
    #[cfg(not(target_os = "linux"))]
    fn boot(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}

/// Tokio's clock: virtual in a test that paused it, otherwise the machine's monotonic one.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: tokio::time::Instant,
    epoch: OffsetDateTime,
}

impl TokioClock {
    /// A clock whose wall shows `epoch` now. To be called inside a tokio runtime.
    pub fn starting_at(epoch: OffsetDateTime) -> Self {
        Self {
            start: tokio::time::Instant::now(),
            epoch,
        }
    }
}

impl Clock for TokioClock {
    fn wall(&self) -> OffsetDateTime {
        self.epoch + self.boot()
    }

    fn boot(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_never_goes_backwards() {
        let mut last = SystemClock.boot();
        for _ in 0..10_000 {
            let now = SystemClock.boot();
            assert!(now >= last);
            last = now;
        }
        assert!(last > Duration::ZERO);
    }
}
