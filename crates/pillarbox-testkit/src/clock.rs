//! A clock that a test moves.

use std::sync::Mutex;
use std::time::Duration;

use pillarbox::Clock;
use time::OffsetDateTime;
use time::macros::datetime;

/// Moves by one microsecond with each reading, and when a test advances it. So two readings are never equal, as with a real clock.
#[derive(Debug)]
pub struct ManualClock(Mutex<Readings>);

#[derive(Debug)]
struct Readings {
    wall: OffsetDateTime,
    boot: Duration,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self(Mutex::new(Readings {
            wall: datetime!(2026-01-01 00:00 UTC),
            boot: Duration::from_secs(1_000),
        }))
    }
}

impl ManualClock {
    /// Moves the wall clock, also backwards. The boot clock follows only forwards.
    pub fn advance(&self, by: time::Duration) {
        self.with(|readings| {
            readings.wall += by;
            readings.boot += Duration::try_from(by).unwrap_or_default();
        });
    }

    fn with<T>(&self, read: impl FnOnce(&mut Readings) -> T) -> T {
        read(&mut self.0.lock().expect("no panic while the lock is held"))
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> OffsetDateTime {
        self.with(|readings| {
            readings.wall += Duration::from_micros(1);
            readings.wall
        })
    }

    fn boot(&self) -> Duration {
        self.with(|readings| {
            readings.boot += Duration::from_micros(1);
            readings.boot
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_goes_back_and_the_boot_clock_does_not() {
        let clock = ManualClock::default();
        let (wall, boot) = (clock.wall(), clock.boot());
        clock.advance(time::Duration::hours(-1));
        assert!(clock.wall() < wall);
        assert!(clock.boot() > boot);
    }
}
