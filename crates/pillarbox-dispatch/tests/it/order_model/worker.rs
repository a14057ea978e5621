//! What a worker has in memory.

use super::Rules;
use super::database::{Answer, Floor, Request, Verdict};

/// A claimed row that waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Queued {
    pub(super) row: u8,
    pub(super) claim: u8,
}

/// A verdict that is not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Decided {
    pub(super) row: u8,
    pub(super) claim: u8,
    pub(super) verdict: Verdict,
    pub(super) position: u8,
}

/// A claim under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) request: Request,
    /// The last settlement that was committed when it began.
    pub(super) seen: u8,
    pub(super) answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    /// A new one after a crash.
    pub(super) id: u8,
    pub(super) queue: Vec<Queued>,
    pub(super) decided: Vec<Decided>,
    /// The position of the last verdict.
    position: u8,
    /// The position of the last verdict that was committed.
    pub(super) seen: u8,
    /// The position of the verdict that closed the key.
    closed: Option<u8>,
    /// The position of the last verdict that was not `Delivered`.
    came_back: u8,
    pub(super) call: Option<Call>,
    pub(super) floor: Option<Floor>,
    /// Claims whose answer was lost, one bit each.
    pub(super) unknown: u16,
    /// Claims whose lease is over by this worker's clock, one bit each.
    pub(super) lapsed: u16,
}

impl Memory {
    pub(super) fn new(id: u8) -> Self {
        Self {
            id,
            queue: Vec::new(),
            decided: Vec::new(),
            position: 0,
            seen: 0,
            closed: None,
            came_back: 0,
            call: None,
            floor: None,
            unknown: 0,
            lapsed: 0,
        }
    }

    pub(super) fn has_lapsed(&self, claim: u8) -> bool {
        self.lapsed & (1 << claim) != 0
    }

    /// Does this worker believe that it holds rows of the claim?
    pub(super) fn holds(&self, claim: u8) -> bool {
        self.claims().any(|other| other == claim)
    }

    /// The claims whose rows it has.
    pub(super) fn claims(&self) -> impl Iterator<Item = u8> {
        let queued = self.queue.iter().map(|row| row.claim);
        let decided = self.decided.iter().map(|row| row.claim);
        let answer = self.call.iter().filter_map(|call| call.answer.as_ref());
        let arriving = answer
            .filter(|answer| !answer.rows.is_empty())
            .map(|answer| answer.claim);
        queued.chain(decided).chain(arriving)
    }

    /// Numbers claims and positions anew.
    pub(super) fn normalise(&mut self, claims: &[u8], number: impl Fn(u8) -> u8) {
        let renumbered = |bits: u16| {
            let set = claims.iter().filter(|claim| bits & (1 << **claim) != 0);
            set.fold(0, |bits, claim| bits | 1 << number(*claim))
        };
        self.lapsed = renumbered(self.lapsed);
        self.unknown = renumbered(self.unknown);
        for row in &mut self.queue {
            row.claim = number(row.claim);
        }
        for row in &mut self.decided {
            row.claim = number(row.claim);
        }
        let mut seen = self.seen;
        if let Some(call) = &mut self.call {
            seen = seen.min(call.seen);
            call.request.unknown = renumbered(call.request.unknown);
            if let Some(answer) = &mut call.answer {
                answer.claim = if answer.rows.is_empty() {
                    0
                } else {
                    number(answer.claim)
                };
            }
        }
        // Every later claim has seen what this one has seen.
        self.closed = self.closed.filter(|position| *position > seen);
        self.came_back = self.came_back.saturating_sub(seen);
        self.closed = self.closed.map(|position| position - seen);
        self.position -= seen;
        self.seen -= seen;
        for row in &mut self.decided {
            // Written out of order, a settlement may be older than one that is committed.
            row.position = row.position.saturating_sub(seen);
        }
        if let Some(call) = &mut self.call {
            call.seen -= seen;
        }
    }

    pub(super) fn decide(&mut self, rules: Rules, row: Queued, verdict: Verdict) {
        self.position += 1;
        self.decided.push(Decided {
            row: row.row,
            claim: row.claim,
            verdict,
            position: self.position,
        });
        if verdict != Verdict::Delivered {
            self.closed = Some(self.position);
            if rules.floor_reset {
                self.came_back = self.position;
                self.floor = None;
            }
        }
    }

    /// Releases the rows of the queue from this place on.
    pub(super) fn release_from(&mut self, rules: Rules, place: usize) {
        for row in self.queue.split_off(place) {
            self.decide(rules, row, Verdict::Release);
        }
    }

    /// A settlement is committed.
    pub(super) fn committed(&mut self, place: usize) -> Decided {
        let decided = self.decided.remove(place);
        self.seen = self.seen.max(decided.position);
        decided
    }

    /// The answer of a claim arrives.
    pub(super) fn arrive(&mut self, rules: Rules, call: Call) {
        let Some(answer) = call.answer else { return };
        if call.seen >= self.came_back {
            self.floor = answer.floor.or(self.floor);
            // From a floor above its ceiling nothing can be claimed. The next claim is a search.
            self.floor = self
                .floor
                .filter(|floor| !rules.ceiling || floor.at <= floor.ceiling);
        }
        let is_closed = rules.closed_keys && self.closed.is_some_and(|position| call.seen < position);
        for row in answer.rows {
            let row = Queued {
                row,
                claim: answer.claim,
            };
            if is_closed {
                self.decide(rules, row, Verdict::Release);
            } else {
                let place = self.queue.partition_point(|other| other.row < row.row);
                self.queue.insert(place, row);
            }
        }
        if !is_closed && self.closed.is_some_and(|position| call.seen >= position) {
            self.closed = None;
        }
    }
}
