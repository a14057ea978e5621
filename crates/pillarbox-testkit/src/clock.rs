//! A clock that a test moves.

use std::sync::Mutex;
use std::time::Duration;

use pillarbox::Clock;
use time::OffsetDateTime;
use time::macros::datetime;

/// Stands still unless it is moved, but for one microsecond per look: two things that happen one after
/// the other never happen at the same time, as with a real clock.
#[derive(Debug)]
pub struct ManualClock(Mutex<Hands>);

#[derive(Debug)]
struct Hands {
    wall: OffsetDateTime,
    boot: Duration,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self(Mutex::new(Hands {
            wall: datetime!(2026-01-01 00:00 UTC),
            boot: Duration::from_secs(1_000),
        }))
    }
}

impl ManualClock {
    /// Moves the wall clock, also backwards. The boot clock follows only forwards.
    pub fn advance(&self, by: time::Duration) {
        self.with(|hands| {
            hands.wall += by;
            hands.boot += Duration::try_from(by).unwrap_or_default();
        });
    }

    fn with<T>(&self, look: impl FnOnce(&mut Hands) -> T) -> T {
        look(&mut self.0.lock().expect("nobody panics while holding the hands"))
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> OffsetDateTime {
        self.with(|hands| {
            hands.wall += Duration::from_micros(1);
            hands.wall
        })
    }

    fn boot(&self) -> Duration {
        self.with(|hands| {
            hands.boot += Duration::from_micros(1);
            hands.boot
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
