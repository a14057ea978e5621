//! How much of everything.

/// How long a run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Seconds: shows that everything runs.
    Smoke,
    /// Minutes.
    Quick,
    /// As long as a figure for the books needs.
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

    /// How often peer and Pillarbox take turns. Three is the least that has a median.
    pub(crate) fn pairs(self) -> usize {
        self.pick(1, 3, 5)
    }

    /// The backlog that is drained into nothing.
    pub(crate) fn drained(self) -> u32 {
        self.pick(3_000, 100_000, 600_000)
    }

    /// Transactions of one event in a turn; those of a hundred are a tenth of it.
    pub(crate) fn enqueued(self) -> u32 {
        self.pick(20, 400, 1_000)
    }

    /// Events that a consumer handles in one turn.
    pub(crate) fn handled(self, per_transaction: usize) -> u32 {
        if per_transaction == 1 {
            self.pick(20, 1_000, 4_000)
        } else {
            self.pick(1_000, 20_000, 100_000)
        }
    }

    /// Events of 2 MiB that are enqueued with and without compression.
    pub(crate) fn compressed(self) -> u32 {
        self.pick(3, 30, 100)
    }

    /// The backlog that goes to a broker, which takes about as long per event again.
    pub(crate) fn relayed(self) -> u32 {
        self.pick(2_000, 60_000, 300_000)
    }

    /// Small events that pass through the daemon while its memory is watched.
    pub(crate) fn small(self) -> u32 {
        self.pick(3_000, 200_000, 1_000_000)
    }

    /// Events of 1 MiB that do; in all more than the daemon may hold, or it would show nothing.
    pub(crate) fn large(self) -> u32 {
        self.pick(40, 400, 1_000)
    }

    /// Seconds for which an idle daemon is watched.
    pub(crate) fn idle_seconds(self) -> u32 {
        self.pick(2, 20, 60)
    }

    /// Single events whose way is timed.
    pub(crate) fn samples(self) -> usize {
        self.pick(3, 40, 100)
    }

    /// The backlog that is drained while a snapshot is held: for as long as dead rows need to pile up.
    pub(crate) fn held(self) -> u32 {
        self.pick(3_000, 300_000, 1_500_000)
    }

    /// Rows that are delivered already where the size of the table is measured.
    pub(crate) fn old(self) -> u32 {
        self.pick(5_000, 1_000_000, 1_000_000)
    }

    /// Rows behind a blocked head.
    pub(crate) fn behind(self) -> u32 {
        self.pick(5_000, 100_000, 100_000)
    }

    /// How long several workers together may take.
    pub(crate) fn patience(self) -> std::time::Duration {
        std::time::Duration::from_secs(self.pick(60, 300, 900))
    }

    /// Isolation is a small difference: five pairs at least, unless nothing is to be learned.
    pub(crate) fn fewest_for_isolation(self) -> usize {
        self.pick(1, 5, 5)
    }
}
