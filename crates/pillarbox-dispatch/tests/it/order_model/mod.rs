//! Every history of a few steps of the claim of rows with a key (docs/adr/0018-keyed-in-insertion-order.md), as a model.
//!
//! Three rows of one key, two workers, a backlog without a destination and one with. The model has the rows and lanes of the
//! database, and the memory of each worker. Each statement of a claim is a step, and anything may happen between two of them that
//! the locks permit. Each test explores all histories within its [faults](Faults).
//!
//! With all rules no history sends a row before one that was committed before it was numbered, and each state leads to one in
//! which all rows have arrived. Each rule has a test that removes it. Some history then breaks the order, and the test prints it;
//! or the test says which other rules cover it.
//!
//! A claim may read from any floor, because floors are hints. A row that becomes a family is, in the model, the member that
//! goes to the destination.

mod claims;
mod database;
mod explore;
mod histories;
mod removals;
mod steps;
mod worker;

use database::{Backlog, Database, ROWS, RowSet, Status, bit};
use explore::{Explored, explore};
use worker::{Memory, Watermark};

/// The rules of the ADR. A test removes one.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// Only the owner of a lane claims from it. The read locks the lane until the claim has ended.
    lanes_locked: bool,
    /// A key with an unfinished row before the first one that was read is not taken. The claim asks for it from the bottom.
    earlier_rows_block: bool,
    /// Both questions are asked after the read, and may see more.
    probes_after_read: bool,
    /// Rows behind one that was tried are not taken. The claim asks for the first one, whatever its number.
    tried_rows_block: bool,
    /// Rows behind one without a destination are not taken.
    unrouted_rows_block: bool,
    /// A row that another transaction locks ends the claim of its key.
    locked_rows_end_their_key: bool,
    /// So does a row that has changed since it was read.
    changed_rows_end_their_key: bool,
    /// A row that gets its destination leaves the fresh rows in the same statement.
    routed_rows_by_key: bool,
    /// So does a row that comes back.
    returned_rows_by_key: bool,
    /// So does a row that an operator retries.
    retried_rows_by_key: bool,
    /// A row without a destination asks the store before it is sent, if any row has one.
    routing_asks: bool,
    /// A settlement is written only to a row that is held under its claim.
    settles_fenced: bool,
    /// Of the rows whose lease expired only the first unfinished ones of the key are taken.
    suspects_in_order: bool,
    /// A producer locks the table before it takes a number.
    numbers_under_lock: bool,
    /// A prepared transaction counts as the transaction that it was before.
    prepared_transactions_keep_their_names: bool,
    /// The bottom waits for every transaction that locks the table.
    bottom_waits_for_writers: bool,
    /// The sequence is read before the holders of the lock.
    sequence_before_holders: bool,
    /// The first fresh row is read after both.
    bottom_read_last: bool,
    /// A look does not count if another one of the same process has ended since it began.
    looks_in_order: bool,
    /// After a failover no bottom is known. The new server may give numbers again that the old one had given.
    failover_resets_bottoms: bool,
}

const ALL: Rules = Rules {
    lanes_locked: true,
    earlier_rows_block: true,
    probes_after_read: true,
    tried_rows_block: true,
    unrouted_rows_block: true,
    locked_rows_end_their_key: true,
    changed_rows_end_their_key: true,
    routed_rows_by_key: true,
    returned_rows_by_key: true,
    retried_rows_by_key: true,
    routing_asks: true,
    settles_fenced: true,
    suspects_in_order: true,
    numbers_under_lock: true,
    prepared_transactions_keep_their_names: true,
    bottom_waits_for_writers: true,
    sequence_before_holders: true,
    bottom_read_last: true,
    looks_in_order: true,
    failover_resets_bottoms: true,
};

/// How often each fault may happen in one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Faults {
    /// The destination refuses a row: it is retried.
    failures: u8,
    /// A row has no attempts left. It is dead until an operator retries it.
    deaths: u8,
    /// A row may be what breaks connections. It stays in processing, with an expired lease.
    suspects: u8,
    /// A worker dies.
    crashes: u8,
    /// The other worker takes a lane. The old owner does not notice.
    takeovers: u8,
    /// The lease of a claim expires: first by the worker's clock, later by the database's.
    lapses: u8,
    /// A worker releases a waiting row for lack of room.
    releases: u8,
    /// An operator's transaction locks a row.
    locks: u8,
    /// An operator retries a pending row.
    retries: u8,
    /// A claim is committed and its answer is lost.
    lost_answers: u8,
    /// A producer prepares its transaction.
    prepares: u8,
    /// A server takes over that lacks the last row and its number.
    failovers: u8,
}

/// How a history begins, and what may happen in it.
#[derive(Debug, Clone, Copy)]
struct Setting {
    faults: Faults,
    /// The backlog into which each row is inserted.
    backlogs: [Backlog; ROWS as usize],
    /// The worker that owns the key's lane in each backlog.
    owners: [usize; 2],
    /// Are all rows inserted already, one after the other?
    is_inserted: bool,
    /// So many rows have arrived already.
    delivered: u8,
    /// Are both workers in one process?
    shares_watermark: bool,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    database: Database,
    workers: [Memory; 2],
    /// One for each worker, or one for both.
    watermarks: [Watermark; 2],
    shares_watermark: bool,
    /// Rows that were settled as delivered.
    settled: RowSet,
    /// The backlogs that have rows at the beginning, and the destination's.
    backlogs: [bool; 2],
    faults: Faults,
}

impl World {
    fn new(setting: &Setting) -> Self {
        Self {
            database: Database::new(setting),
            workers: [Memory::default(), Memory::default()],
            watermarks: [Watermark::default(); 2],
            shares_watermark: setting.shares_watermark,
            settled: 0,
            backlogs: [setting.backlogs.contains(&Backlog::Unrouted), true],
            faults: setting.faults,
        }
    }

    /// Has this backlog no row in any history?
    fn setting_without(&self, backlog: Backlog) -> bool {
        !self.backlogs[backlog.place()]
    }

    fn watermark(&mut self, place: usize) -> &mut Watermark {
        let place = if self.shares_watermark { 0 } else { place };
        &mut self.watermarks[place]
    }

    /// Numbers claims again, and drops what no longer matters. So equal situations are one state.
    fn normalise(&mut self) {
        let rows = self.database.rows.iter_mut();
        for row in rows.filter(|row| row.status == Status::Delivered) {
            (row.claim, row.tried, row.expired, row.locked) = (None, false, false, false);
            row.backlog = Backlog::Broker;
        }
        let rows = self.database.rows.iter().filter_map(|row| row.claim);
        let mut claims: Vec<u8> = rows.chain(self.workers.iter().flat_map(Memory::claims)).collect();
        claims.sort_unstable();
        claims.dedup();
        let number = |claim: u8| (0..).zip(&claims).find(|(_, other)| **other == claim);
        let number = |claim: u8| number(claim).map_or(claim, |(number, _)| number);
        for row in &mut self.database.rows {
            row.claim = row.claim.map(number);
        }
        for worker in &mut self.workers {
            worker.normalise(&claims, number);
        }
        self.database.claims = (0..)
            .zip(&claims)
            .map(|(number, _)| number + 1)
            .max()
            .unwrap_or(0);
        let looks = |worker: &mut Memory| worker.call.as_mut().is_some_and(|call| call.look_mut().is_some());
        if self.database.committed() == bit(ROWS) - 1 && !self.workers.iter_mut().any(looks) {
            // Every look returns the same from here on.
            self.watermarks = [Watermark::default(); 2];
        }
    }

    /// Have all rows arrived that another one could overtake?
    fn is_safe(&self) -> bool {
        let rows = &self.database.rows;
        let overtaken = rows.iter().fold(0, |rows, row| rows | row.after);
        let is_last = rows.iter().all(|row| row.status != Status::Unborn);
        is_last
            && (0..)
                .zip(rows)
                .all(|(number, row)| row.has_arrived || overtaken & bit(number) == 0)
    }

    /// Has every row arrived?
    fn is_done(&self) -> bool {
        self.database.rows.iter().all(|row| row.has_arrived)
    }
}

const NONE: Faults = Faults {
    failures: 0,
    deaths: 0,
    suspects: 0,
    crashes: 0,
    takeovers: 0,
    lapses: 0,
    releases: 0,
    locks: 0,
    retries: 0,
    lost_answers: 0,
    prepares: 0,
    failovers: 0,
};

use Backlog::{Broker, Unrouted};

/// Rows of one backlog, which are there from the beginning.
const fn inserted(faults: Faults) -> Setting {
    Setting {
        faults,
        backlogs: [Broker; ROWS as usize],
        owners: [0, 0],
        is_inserted: true,
        delivered: 0,
        shares_watermark: false,
    }
}

/// Rows of one backlog that are inserted meanwhile.
const fn growing(faults: Faults) -> Setting {
    Setting {
        is_inserted: false,
        ..inserted(faults)
    }
}

/// Rows of two backlogs. A owns the lane of those without a destination, B that of the others.
const fn routed(backlogs: [Backlog; ROWS as usize], faults: Faults) -> Setting {
    Setting {
        backlogs,
        owners: [0, 1],
        ..inserted(faults)
    }
}

/// Rows of one key of which the first has arrived, so that two are inserted meanwhile.
const fn growing_by_two(faults: Faults) -> Setting {
    Setting {
        delivered: 1,
        ..growing(faults)
    }
}

/// Explores all histories without some rules, and prints how many states there are.
fn histories(remove: impl Fn(&mut Rules), setting: &Setting, whole: bool) -> Explored {
    let mut rules = ALL;
    remove(&mut rules);
    let explored = explore(rules, setting, whole);
    println!("{} states: {setting:?}", explored.states);
    explored
}
