//! When to look for work, and how. Pure: the finder tells it what it heard and asks for the next step.
//!
//! A **poll** is a *probe* and, if that claims nothing, a *search*. A probe claims at once from the backlogs that had rows
//! lately. A search asks the store which backlogs have due rows. It also finds new backlogs and rows that were committed late.
//!
//! ```text
//!                woken, begun                       nothing claimed
//!   ┌─ quiet ───────────────────► probing ─────────────────────────► searching
//!   │    ▲                           │ rows claimed                      │
//!   │    │ all of them claimed       ▼                                   │
//!   │    ├───────────────────── after activity ◄─────────────────────────┘
//!   │    │ ended: one search       │  ▲
//!   │    └─────────────────────────┘  └─ polls: a quarter of the time since the activity, at least 2 ms
//!   └──► a search once in a while: every poll interval, or half as often while a watch reports new events
//! ```
//!
//! The sequence of events moves before the commit, so a poll that comes at once may be too early. How long the transaction
//! takes is unknown. Polls whose distance is a quarter of the time since the activity find its rows at most that quarter late:
//! those of a transaction of 100 ms after 125 ms. A watch ends these polls when no such transaction is open any more, or when
//! this worker has claimed as many rows as were begun. Without a watch they go on until they are as far apart as the poll
//! interval.
//!
//! Under load, when events are begun within 10 ms of the last claim, polls follow each other after 2 ms and the watch rests.
//! Searches among them are 25 ms apart. The load is over when no poll has claimed a row for 20 ms.
//!
//! Events may be none of this worker's: of a namespace outside its scope, of a lane of another worker, for a paused
//! destination. The longer such events are all that it hears of, the further apart are its polls, up to 64 ms. A search rests
//! four times as long as it took, and at most the poll interval, whatever is heard.

use std::time::Duration;

/// The shortest time between two polls: a small claim costs about as much as one of fifty rows.
const SHORTEST: Duration = Duration::from_millis(2);
/// After so many polls for new events without a row the shortest time doubles, at most five times.
const FRUITLESS: u32 = 8;
const MOST_DOUBLINGS: u32 = 5;
/// The shortest time between two searches of polls that claim nothing.
const SEARCH_AGAIN: Duration = Duration::from_millis(5);
/// How long searches are put off by polls that claim rows.
const SEARCH_UNDER_LOAD: Duration = Duration::from_millis(25);
/// Events that are begun so soon after others were claimed mean load.
const LOAD: Duration = Duration::from_millis(10);
/// So long after the last rows the load is over.
const NO_LOAD: Duration = Duration::from_millis(20);

/// What the finder heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The application woke the dispatcher.
    Woken,
    /// A watch saw about so many events that are being enqueued.
    Begun(u64),
    /// A watch saw that all of them can be claimed now.
    Ended,
    /// All work was claimed: so many rows since the last time.
    Exhausted(u64),
    /// There is a watch now, or no longer.
    Watched(bool),
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Claim from the recent backlogs.
    Probe,
    /// Search the store.
    Search,
    /// Nothing until then, unless something is heard.
    Wait(Duration),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Rhythm {
    longest: Duration,
    is_watched: bool,
    /// When events were last begun or claimed.
    active_at: Option<Duration>,
    /// When a poll last claimed rows.
    claimed_at: Option<Duration>,
    /// Do polls follow the activity?
    is_active: bool,
    /// Do new events come so fast that polls without a watch cost less?
    is_loaded: bool,
    /// How many events were begun and not claimed.
    missing: u64,
    /// Were events begun since the last poll?
    is_woken: bool,
    /// How many polls for new events were made since rows were last claimed.
    fruitless: u32,
    /// When the poll under way began.
    polling: Option<Duration>,
    is_probing: bool,
    polled_at: Option<Duration>,
    searched_at: Option<Duration>,
    /// Until when the last search rests.
    rested_at: Duration,
    poll_at: Duration,
    search_at: Duration,
}

impl Rhythm {
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            longest,
            is_watched: false,
            active_at: None,
            claimed_at: None,
            is_active: true,
            is_loaded: false,
            missing: 0,
            is_woken: false,
            fruitless: 0,
            polling: None,
            is_probing: false,
            polled_at: None,
            searched_at: None,
            rested_at: Duration::ZERO,
            poll_at: Duration::MAX,
            search_at: Duration::ZERO,
        }
    }

    /// Notes what was heard.
    pub(crate) fn hear(&mut self, heard: Heard, now: Duration) {
        match heard {
            Heard::Woken => self.active(now),
            Heard::Begun(events) => {
                self.missing = self.missing.saturating_add(events);
                self.is_loaded = since(self.claimed_at, now) < LOAD;
                self.active(now);
            }
            Heard::Ended => {
                self.missing = 0;
                self.is_active = !self.is_watched;
                self.search_at = self.search_at.min(self.soon(now));
            }
            Heard::Exhausted(rows) => self.exhausted(rows, now),
            Heard::Watched(is_watched) => {
                // It may have missed something before it began or after it ended.
                if std::mem::replace(&mut self.is_watched, is_watched) != is_watched {
                    self.active(now);
                }
            }
        }
    }

    /// What to do now. `can_probe` if there are recent backlogs, `has_work` if the claimer has something to claim anyway.
    pub(crate) fn step(&mut self, can_probe: bool, has_work: bool, now: Duration) -> Step {
        self.is_loaded &= since(self.claimed_at, now) < NO_LOAD;
        let can_poll = !self.is_probing && !has_work;
        let search_at = self.search_at.max(self.rested_at);
        let poll_at = match (can_poll, can_probe) {
            (false, _) => Duration::MAX,
            (true, true) => self.poll_at,
            (true, false) => self.poll_at.max(self.rested_at),
        };
        let next = search_at.min(poll_at);
        if now < next {
            return Step::Wait(next - now);
        }
        self.polling = Some(now);
        let is_woken = std::mem::take(&mut self.is_woken);
        self.fruitless = self.fruitless.saturating_add(u32::from(is_woken));
        self.is_probing = can_probe && now < search_at;
        if self.is_probing {
            Step::Probe
        } else {
            Step::Search
        }
    }

    /// A search that began then has ended. `has_work` if it found some. `due_in` is when the next row is due that waits.
    pub(crate) fn searched(
        &mut self,
        began: Duration,
        has_work: bool,
        due_in: Option<Duration>,
        now: Duration,
    ) {
        self.polled_at = Some(now);
        self.searched_at = Some(now);
        // It reads past settled rows, which may be slow where the database cannot vacuum.
        let rest = (now.saturating_sub(began) * 4).max(SHORTEST).min(self.longest);
        self.rested_at = now + rest;
        let longest = if self.is_watched && !has_work {
            self.longest * 2
        } else {
            self.longest
        };
        self.search_at = now + longest.min(due_in.unwrap_or(longest)).max(rest);
        self.poll_at = now.saturating_add(self.pause(now).max(rest));
    }

    /// Should a watch wait for events now? Returns whether it also waits for the end of transactions.
    pub(crate) fn wants_watch(&self) -> Option<bool> {
        (!self.is_loaded && !self.is_probing).then_some(self.is_active)
    }

    fn active(&mut self, now: Duration) {
        self.active_at = Some(now);
        self.is_active = true;
        self.is_woken = true;
        self.poll_at = self.soon(now);
    }

    fn exhausted(&mut self, rows: u64, now: Duration) {
        self.missing = self.missing.saturating_sub(rows);
        let was_probing = std::mem::take(&mut self.is_probing);
        // Otherwise the rest of a key was claimed, because its first rows are settled. That says nothing about new events.
        let Some(began) = self.polling.take() else {
            return;
        };
        if rows > 0 {
            self.is_active = !self.is_watched || self.is_loaded || self.missing > 0;
            self.active_at = Some(now);
            self.claimed_at = Some(now);
            self.fruitless = 0;
        }
        self.polled_at = Some(now);
        self.poll_at = now.saturating_add(self.pause(now).max(now.saturating_sub(began)));
        let after = if rows > 0 { SEARCH_UNDER_LOAD } else { SEARCH_AGAIN };
        if self.is_active && (was_probing || rows > 0) {
            let search_at = self.searched_at.map_or(now, |at| at + after);
            self.search_at = self.search_at.min(search_at.max(now));
        }
    }

    /// The time until the next poll.
    fn pause(&self, now: Duration) -> Duration {
        if self.is_active {
            (since(self.active_at, now) / 4).max(SHORTEST).min(self.longest)
        } else {
            Duration::MAX
        }
    }

    /// Now, unless the last poll was a moment ago.
    fn soon(&self, now: Duration) -> Duration {
        let doublings = (self.fruitless / FRUITLESS).min(MOST_DOUBLINGS);
        self.polled_at
            .map_or(now, |at| now.max(at + SHORTEST * (1 << doublings)))
    }
}

fn since(at: Option<Duration>, now: Duration) -> Duration {
    at.map_or(Duration::MAX, |at| now.saturating_sub(at))
}

#[cfg(test)]
mod tests;
