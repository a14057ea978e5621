//! What a worker has in memory.

use super::Rules;
use super::database::{Backlog, Read, Verdict, bit};

/// How a claimed row finds its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Route {
    /// The row has its destination.
    Known,
    /// It is sent without asking. Its settlement writes the destination.
    Direct,
    /// The store writes the destination first, and says whether the row may go.
    Asks,
}

/// A claimed row that waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Queued {
    pub(super) row: u8,
    pub(super) claim: u8,
    pub(super) route: Route,
}

/// A verdict that is not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Decided {
    pub(super) row: Queued,
    pub(super) verdict: Verdict,
}

/// The transaction of a claim. Each stage is what the next statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// `holders.sql`: the sequence was read, or the holders without the rule about their order.
    Holders(Look),
    /// `bottoms.sql`.
    Bottom(Look),
    /// `barriers_keyed.sql`. From here on the transaction locks the lane.
    Barriers(Read),
    /// `earlier_keyed.sql`.
    Earlier(Read),
    /// `claim_read.sql`, or the last part of `claim_keyed.sql`.
    Claim(Read),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) backlog: Backlog,
    pub(super) stage: Stage,
}

impl Call {
    pub(super) fn read_mut(&mut self) -> Option<&mut Read> {
        match &mut self.stage {
            Stage::Holders(_) | Stage::Bottom(_) => None,
            Stage::Barriers(read) | Stage::Earlier(read) | Stage::Claim(read) => Some(read),
        }
    }

    pub(super) fn look_mut(&mut self) -> Option<&mut Look> {
        match &mut self.stage {
            Stage::Holders(look) | Stage::Bottom(look) => Some(look),
            Stage::Barriers(_) | Stage::Earlier(_) | Stage::Claim(_) => None,
        }
    }
}

/// What a look for the bottom has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Look {
    pub(super) last: u8,
    pub(super) holders: u8,
    /// The first fresh row when the look began: used only without the rule.
    pub(super) lowest: u8,
    /// Has another look of the process ended meanwhile?
    pub(super) is_late: bool,
}

/// `watermark.rs`: below which number every row is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Watermark {
    pub(super) certain: u8,
    /// The last number when the sequence was read, and who held a lock after that and at every later look.
    asked: Option<(u8, u8)>,
}

impl Watermark {
    pub(super) fn look(&mut self, rules: Rules, look: Look) -> u8 {
        if !rules.bottom_waits_for_writers {
            self.certain = self.certain.max(look.last);
        }
        if look.is_late && rules.looks_in_order {
            return self.certain;
        }
        if let Some((asked, waiting)) = &mut self.asked {
            *waiting &= look.holders;
            if *waiting != 0 {
                return self.certain;
            }
            self.certain = self.certain.max(*asked);
        }
        self.asked = Some((look.last, look.holders)).filter(|_| look.holders != 0);
        if look.holders == 0 {
            self.certain = self.certain.max(look.last);
        }
        self.certain
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Memory {
    /// In the order of their numbers.
    pub(super) queue: Vec<Queued>,
    /// In no order: verdicts are written in any.
    pub(super) decided: Vec<Decided>,
    pub(super) call: Option<Call>,
    /// The bottom of each backlog.
    pub(super) bottoms: [u8; 2],
    /// Claims whose lease is over by this worker's clock, one bit each.
    pub(super) lapsed: u16,
}

impl Memory {
    pub(super) fn has_lapsed(&self, claim: u8) -> bool {
        self.lapsed & (1 << claim) != 0
    }

    /// Will this worker send rows of the claim?
    pub(super) fn sends(&self, claim: u8) -> bool {
        !self.has_lapsed(claim) && self.queue.iter().any(|row| row.claim == claim)
    }

    /// The claims whose rows it has.
    pub(super) fn claims(&self) -> impl Iterator<Item = u8> {
        let decided = self.decided.iter().map(|decided| decided.row.claim);
        self.queue.iter().map(|row| row.claim).chain(decided)
    }

    /// Numbers claims again.
    pub(super) fn normalise(&mut self, claims: &[u8], number: impl Fn(u8) -> u8) {
        let held: Vec<u8> = self.claims().collect();
        let lapsed = claims
            .iter()
            .filter(|claim| held.contains(claim) && self.has_lapsed(**claim));
        self.lapsed = lapsed.fold(0, |lapsed, claim| lapsed | 1 << number(*claim));
        for row in &mut self.queue {
            row.claim = number(row.claim);
        }
        for decided in &mut self.decided {
            decided.row.claim = number(decided.row.claim);
        }
        self.decided.sort_unstable();
        if let Some(read) = self.call.as_mut().and_then(Call::read_mut) {
            read.changed &= read.ready;
        }
    }

    pub(super) fn decide(&mut self, row: Queued, verdict: Verdict) {
        self.decided.push(Decided { row, verdict });
    }

    /// Releases the rows of the queue from this place on.
    pub(super) fn release_from(&mut self, place: usize) {
        for row in self.queue.split_off(place) {
            self.decide(row, Verdict::Release);
        }
    }

    /// Rows of a claim arrive.
    pub(super) fn arrive(&mut self, rows: impl Iterator<Item = u8>, claim: u8, route: Route) {
        self.queue.extend(rows.map(|row| Queued { row, claim, route }));
        self.queue.sort_unstable();
    }

    /// The rows that the next statement of routing writes: the first ones of a claim, at most so many.
    pub(super) fn asking(&self, most: usize) -> Option<(u8, Vec<u8>)> {
        let first = self.queue.iter().find(|row| row.route == Route::Asks)?;
        let same = |row: &&Queued| row.route == Route::Asks && row.claim == first.claim;
        let rows = self.queue.iter().filter(same).take(most).map(|row| row.row);
        Some((first.claim, rows.collect()))
    }

    /// A row has a new version.
    pub(super) fn changed(&mut self, number: u8) {
        if let Some(read) = self.call.as_mut().and_then(Call::read_mut) {
            read.changed |= bit(number);
        }
    }
}
