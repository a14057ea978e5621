//! The database: the rows, the lane, and what each statement does to them.

use super::Rules;

/// How many rows the key has.
pub(super) const ROWS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Status {
    /// Not inserted yet.
    #[default]
    Unborn,
    /// Inserted by a transaction that has not committed.
    Uncommitted,
    Pending,
    Processing,
    Delivered,
}

/// A row of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Row {
    pub(super) status: Status,
    pub(super) seq: u8,
    /// Has it left the fresh rows (`open` is not 0)?
    pub(super) tried: bool,
    pub(super) worker: u8,
    pub(super) claim: u8,
    pub(super) expired: bool,
    /// Does another transaction lock it?
    pub(super) locked: bool,
    /// Has the consumer received it?
    pub(super) has_arrived: bool,
}

impl Row {
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self.status, Status::Pending | Status::Processing)
    }

    fn is_held(&self, worker: u8, claim: u8) -> bool {
        self.status == Status::Processing && self.worker == worker && self.claim == claim
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Database {
    pub(super) rows: [Row; ROWS],
    /// The worker that leases the lane, by its place.
    pub(super) owner: u8,
    /// How often the lane has changed hands.
    pub(super) tenure: u8,
    /// The last number of the sequence.
    pub(super) last: u8,
    /// The highest number of a committed row of another key.
    pub(super) others: u8,
    /// How many claims there were.
    pub(super) claims: u8,
}

/// Nothing fresh below `at` is unfinished, apart from rows in flight in this worker and rows numbered above the ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Floor {
    pub(super) at: u8,
    pub(super) ceiling: u8,
    pub(super) tenure: u8,
}

/// What a claim may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Take {
    /// Fresh rows in the order of insertion.
    Fresh,
    /// The run of a key that has a row that is not fresh.
    Step,
    /// Rows whose lease expired.
    Suspects,
}

/// A request as its statement has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) take: Take,
    pub(super) floor: Option<Floor>,
    /// Claims whose answer was lost, one bit each.
    pub(super) unknown: u16,
    /// How many rows it reads at most.
    pub(super) most: usize,
}

/// What a claim returns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Answer {
    pub(super) claim: u8,
    pub(super) rows: Vec<u8>,
    pub(super) floor: Option<Floor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Delivered,
    Retry,
    /// Pending again. A fresh row stays fresh.
    Release,
    /// In processing without an owner, expired.
    Suspect,
}

impl Database {
    /// Executes a claim of the worker at `place` with this id.
    pub(super) fn claim(&mut self, rules: Rules, (place, worker): (u8, u8), request: Request) -> Answer {
        let mut answer = Answer {
            claim: self.claims,
            rows: Vec::new(),
            floor: None,
        };
        let is_owner = !rules.one_owner || self.owner == place;
        match request.take {
            Take::Fresh => self.fresh(rules, (is_owner, worker), request, &mut answer),
            Take::Step | Take::Suspects if !is_owner => {}
            Take::Step => answer.rows = self.run(request.most),
            Take::Suspects => answer.rows = self.expired(),
        }
        for &row in &answer.rows {
            let row = &mut self.rows[usize::from(row)];
            row.status = Status::Processing;
            row.worker = worker;
            row.claim = self.claims;
            row.expired = false;
        }
        if !answer.rows.is_empty() {
            self.claims += 1;
        }
        answer
    }

    /// Of rows in its own lanes. A worker without this lane has others, and a floor.
    fn fresh(&mut self, rules: Rules, (is_owner, worker): (bool, u8), request: Request, answer: &mut Answer) {
        let valid = |floor: &Floor| !rules.floor_per_tenure || floor.tenure == self.tenure;
        let floor = request.floor.filter(valid);
        let mut next = floor.unwrap_or(Floor {
            at: 0,
            ceiling: self.last,
            tenure: self.tenure,
        });
        let ceiling = if rules.ceiling { next.ceiling } else { self.last };
        let (mut blocked, mut hole, mut highest, mut scanned) = (false, None, self.others, 0);
        for number in 0..ROWS {
            let row = self.rows[number];
            if !row.is_unfinished() || !is_owner {
                continue;
            }
            if row.tried {
                // Found by its key, wherever it is.
                blocked |= rules.earlier_rows_block;
                continue;
            }
            if row.seq < next.at || row.seq > ceiling {
                continue;
            }
            if scanned == request.most {
                highest = row.seq - 1;
                break;
            }
            scanned += 1;
            highest = highest.max(row.seq);
            let is_ours = row.worker == worker || !rules.others_block;
            let in_flight = row.status == Status::Processing && is_ours && !row.expired;
            if in_flight && !(rules.lost_answers_block && request.unknown & (1 << row.claim) != 0) {
                continue;
            }
            if row.locked {
                if rules.holes {
                    hole = hole.or(Some(row.seq));
                    blocked = true;
                }
                continue;
            }
            if row.status == Status::Pending && !blocked {
                answer.rows.push(u8::try_from(number).unwrap_or_default());
                continue;
            }
            blocked |= rules.earlier_rows_block;
            if rules.moved && hole.is_none() {
                self.rows[number].tried = true;
            }
        }
        next.at = hole.unwrap_or(next.at.max(highest.min(ceiling) + 1));
        answer.floor = Some(next);
    }

    /// The key's first rows up to one that cannot be claimed. None if one of them is in processing.
    fn run(&self, most: usize) -> Vec<u8> {
        let unfinished = || (0u8..).zip(&self.rows).filter(|(_, row)| row.is_unfinished());
        if unfinished().any(|(_, row)| row.status == Status::Processing) {
            return Vec::new();
        }
        let free = unfinished().take_while(|(_, row)| !row.locked);
        free.map(|(number, _)| number).take(most).collect()
    }

    fn expired(&self) -> Vec<u8> {
        let unfinished = (0u8..).zip(&self.rows).filter(|(_, row)| row.is_unfinished());
        let expired = |(_, row): &(u8, &Row)| row.status == Status::Processing && row.expired && !row.locked;
        unfinished.take_while(expired).map(|(number, _)| number).collect()
    }

    pub(super) fn settle(&mut self, worker: u8, number: u8, claim: u8, verdict: Verdict) {
        let row = &mut self.rows[usize::from(number)];
        if !row.is_held(worker, claim) {
            return;
        }
        match verdict {
            Verdict::Delivered => row.status = Status::Delivered,
            Verdict::Release => row.status = Status::Pending,
            Verdict::Retry => {
                row.status = Status::Pending;
                row.tried = true;
            }
            Verdict::Suspect => {
                row.expired = true;
                row.tried = true;
                row.worker = u8::MAX;
                row.claim = u8::MAX;
            }
        }
    }

    /// The lease of a claim is over.
    pub(super) fn expire(&mut self, claim: u8) {
        for row in self.rows.iter_mut().filter(|row| row.claim == claim) {
            row.expired |= row.status == Status::Processing;
        }
    }
}
