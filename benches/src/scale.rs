//! The size of each scenario.

use std::time::Duration;

/// The length of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Seconds: shows that every scenario runs.
    Smoke,
    /// Minutes.
    Quick,
    /// Long enough for a figure to publish.
    Full,
}

impl Scale {
    fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// The number of alternating pairs. A median needs at least three.
    pub(crate) fn pairs(self) -> usize {
        self.pick(1, 3, 5)
    }

    /// Rows that are drained into the null sink.
    pub(crate) fn drained(self) -> u32 {
        self.pick(3_000, 100_000, 600_000)
    }

    /// Transactions of one event per run. Runs with a hundred events have a tenth of it.
    pub(crate) fn enqueued(self) -> u32 {
        self.pick(20, 400, 1_000)
    }

    /// Events that a consumer handles per run.
    pub(crate) fn handled(self, per_transaction: usize) -> u32 {
        if per_transaction == 1 {
            self.pick(20, 1_000, 4_000)
        } else {
            self.pick(1_000, 20_000, 100_000)
        }
    }

    /// Events of 2 MiB, enqueued with and without compression.
    pub(crate) fn compressed(self) -> u32 {
        self.pick(3, 30, 100)
    }

    /// Rows that are delivered to a broker, which takes about twice as long per event.
    pub(crate) fn relayed(self) -> u32 {
        self.pick(2_000, 60_000, 300_000)
    }

    /// Small events that the daemon drains while its memory is measured.
    pub(crate) fn small(self) -> u32 {
        self.pick(3_000, 200_000, 1_000_000)
    }

    /// Events of 1 MiB that it drains. Together they must exceed its limit, or the figure would show nothing.
    pub(crate) fn large(self) -> u32 {
        self.pick(40, 400, 1_000)
    }

    /// Seconds for which an idle daemon is measured.
    pub(crate) fn idle_seconds(self) -> u32 {
        self.pick(2, 20, 60)
    }

    /// How long events are inserted at each rate whose latency is measured.
    pub(crate) fn latency_time(self) -> Duration {
        Duration::from_secs(self.pick(1, 15, 60))
    }

    /// Rows that are drained while a snapshot is held: enough for dead rows to accumulate.
    pub(crate) fn held(self) -> u32 {
        self.pick(3_000, 300_000, 1_500_000)
    }

    /// How long a steady backlog with keys is drained while a snapshot is held.
    pub(crate) fn held_time(self) -> Duration {
        Duration::from_secs(self.pick(3, 20, 60))
    }

    /// Rows of that backlog at a time.
    pub(crate) fn steady(self) -> u64 {
        self.pick(1_000, 10_000, 10_000)
    }

    /// How long single events with keys follow.
    pub(crate) fn single_time(self) -> Duration {
        Duration::from_secs(self.pick(1, 10, 30))
    }

    /// Delivered rows in the large table.
    pub(crate) fn old(self) -> u32 {
        self.pick(5_000, 1_000_000, 1_000_000)
    }

    /// Rows behind a blocked head.
    pub(crate) fn behind(self) -> u32 {
        self.pick(5_000, 100_000, 100_000)
    }

    /// The longest time for several workers together.
    pub(crate) fn drain_timeout(self) -> Duration {
        Duration::from_secs(self.pick(60, 300, 900))
    }

    /// Isolation is a small difference, so it needs at least five pairs. A smoke run needs one.
    pub(crate) fn fewest_for_isolation(self) -> usize {
        self.pick(1, 5, 5)
    }
}
