//! A machine that was suspended: the boot clock jumps, timers do not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pillarbox::Clock;
use time::OffsetDateTime;

/// A clock that can be moved forward. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct JumpingClock {
    under: Arc<dyn Clock>,
    ahead: Arc<AtomicU64>,
}

impl JumpingClock {
    /// Shows the time of another clock, until it jumps.
    pub fn new(under: Arc<dyn Clock>) -> Self {
        Self {
            under,
            ahead: Arc::default(),
        }
    }

    /// Sleeps through this much time.
    pub fn jump(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).expect("a jump of centuries is a mistake");
        self.ahead.fetch_add(nanos, Ordering::SeqCst);
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead.load(Ordering::SeqCst))
    }
}

impl Clock for JumpingClock {
    fn wall(&self) -> OffsetDateTime {
        self.under.wall() + self.ahead()
    }

    fn boot(&self) -> Duration {
        self.under.boot() + self.ahead()
    }
}
