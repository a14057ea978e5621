//! The database: the rows, the lanes, and what each statement reads and writes.

use super::{Rules, Setting};

/// How many rows the key has. They are numbered from 0, in the order of the sequence.
pub(super) const ROWS: u8 = 3;

/// Rows, one bit each.
pub(super) type RowSet = u8;

pub(super) const fn bit(number: u8) -> RowSet {
    1 << number
}

pub(super) fn numbers(rows: RowSet) -> impl Iterator<Item = u8> {
    (0..ROWS).filter(move |number| rows & bit(*number) != 0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Status {
    /// Not inserted yet.
    #[default]
    Unborn,
    /// It has its number, and its transaction does not lock the table yet. Only without the rule.
    Drawn,
    /// Inserted by a transaction that has not committed.
    Uncommitted,
    Pending,
    Processing,
    Dead,
    Delivered,
}

/// Where a row waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Backlog {
    /// It has no destination yet.
    Unrouted,
    #[default]
    Broker,
}

impl Backlog {
    pub(super) const ALL: [Self; 2] = [Self::Unrouted, Self::Broker];

    pub(super) const fn place(self) -> usize {
        match self {
            Self::Unrouted => 0,
            Self::Broker => 1,
        }
    }
}

/// A row of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Row {
    pub(super) status: Status,
    pub(super) backlog: Backlog,
    /// Has it left the fresh rows (`open` is not 0)?
    pub(super) tried: bool,
    /// The rows that were committed before it took its number. Only they must arrive before it.
    pub(super) after: RowSet,
    pub(super) claim: Option<u8>,
    pub(super) expired: bool,
    /// Does a transaction of an operator lock it?
    pub(super) locked: bool,
    /// Is its insert prepared (`prepare transaction`)?
    pub(super) prepared: bool,
    /// Has the consumer received it?
    pub(super) has_arrived: bool,
}

impl Row {
    pub(super) fn is_committed(&self) -> bool {
        !matches!(self.status, Status::Unborn | Status::Drawn | Status::Uncommitted)
    }

    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self.status, Status::Pending | Status::Processing | Status::Dead)
    }

    fn is_fresh(&self) -> bool {
        self.is_unfinished() && !self.tried
    }

    fn is_held(&self, claim: u8) -> bool {
        self.status == Status::Processing && self.claim == Some(claim)
    }

    /// Is this another version of the row? A lock and an arrival write none.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let version = |row: &Self| Self {
            locked: false,
            has_arrived: false,
            ..*row
        };
        version(self) != version(other)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Database {
    pub(super) rows: [Row; ROWS as usize],
    /// The worker that leases the key's lane in each backlog, by its place.
    pub(super) owners: [usize; 2],
    /// How many claims there were.
    pub(super) claims: u8,
}

/// What a claim has read of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Read {
    /// The rows that are pending.
    pub(super) ready: RowSet,
    /// Rows from here on are not taken.
    pub(super) until: u8,
    /// Are there rows in the backlog that may be barriers?
    pub(super) has_barriers: bool,
    /// Ready rows after this one are moved: they are claimed by their key.
    pub(super) tried: Option<u8>,
    /// The rows that have changed since they were read.
    pub(super) changed: RowSet,
}

impl Read {
    pub(super) fn head(&self) -> u8 {
        numbers(self.ready).next().unwrap_or(ROWS)
    }

    pub(super) fn taken(&self) -> RowSet {
        self.ready & (bit(self.until) - 1)
    }

    pub(super) fn moved(&self) -> RowSet {
        let behind = |tried: u8| self.ready & !(bit(tried + 1) - 1) & !self.taken();
        self.tried.map_or(0, behind)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Verdict {
    Delivered,
    Retry,
    Release,
    /// In processing without an owner, with an expired lease.
    Suspect,
    Dead,
}

/// What routing makes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Routed {
    Goes,
    Waits,
    Lost,
}

impl Database {
    pub(super) fn new(setting: &Setting) -> Self {
        let mut database = Self {
            owners: setting.owners,
            ..Self::default()
        };
        for (row, number) in database.rows.iter_mut().zip(0..) {
            row.backlog = setting.backlogs[usize::from(number)];
            if number < setting.delivered {
                (row.status, row.has_arrived) = (Status::Delivered, true);
            } else if setting.is_inserted {
                row.status = Status::Pending;
                row.after = bit(number) - 1;
            }
        }
        database
    }

    pub(super) fn row(&self, number: u8) -> &Row {
        &self.rows[usize::from(number)]
    }

    pub(super) fn row_mut(&mut self, number: u8) -> &mut Row {
        &mut self.rows[usize::from(number)]
    }

    fn unfinished(&self, backlog: Backlog) -> impl Iterator<Item = (u8, &Row)> {
        let rows = (0..).zip(&self.rows);
        rows.filter(move |(_, row)| row.is_unfinished() && row.backlog == backlog)
    }

    fn first(&self, backlog: Backlog, is_wanted: impl Fn(&Row) -> bool) -> Option<u8> {
        let wanted = self.unfinished(backlog).find(|(_, row)| is_wanted(row));
        wanted.map(|(number, _)| number)
    }

    pub(super) fn committed(&self) -> RowSet {
        let rows = (0..).zip(&self.rows).filter(|(_, row)| row.is_committed());
        rows.fold(0, |rows, (number, _)| rows | bit(number))
    }

    /// How many numbers the sequence has given.
    pub(super) fn last(&self) -> u8 {
        let is_unborn = |number: &u8| self.row(*number).status == Status::Unborn;
        (0..ROWS).find(is_unborn).unwrap_or(ROWS)
    }

    /// The transactions that hold a lock on the table, by their names. A prepared transaction has another name.
    pub(super) fn holders(&self, rules: Rules) -> u8 {
        let rows = (0..)
            .zip(&self.rows)
            .filter(|(_, row)| row.status == Status::Uncommitted);
        rows.fold(0, |names, (number, row)| {
            let is_renamed = row.prepared && !rules.prepared_transactions_keep_their_names;
            names | bit(number + if is_renamed { ROWS } else { 0 })
        })
    }

    /// `bottoms.sql`: the first fresh row of the backlog.
    pub(super) fn lowest(&self, backlog: Backlog, bottom: u8) -> u8 {
        let mut fresh = self.unfinished(backlog).filter(|(_, row)| row.is_fresh());
        fresh
            .find(|(number, _)| *number >= bottom)
            .map_or(ROWS, |(number, _)| number)
    }

    /// `read_keyed.sql`: the fresh rows from one number up to another.
    pub(super) fn read(&self, backlog: Backlog, from: u8, to: u8) -> Read {
        let mut read = Read {
            ready: 0,
            until: ROWS,
            has_barriers: self.first(backlog, |row| row.tried).is_some()
                || (backlog == Backlog::Broker && self.first(Backlog::Unrouted, |_| true).is_some()),
            tried: None,
            changed: 0,
        };
        for (number, row) in self.unfinished(backlog) {
            if row.is_fresh() && (from..to).contains(&number) {
                match row.status {
                    Status::Pending => read.ready |= bit(number),
                    _ => read.until = read.until.min(number),
                }
            }
        }
        read
    }

    /// `barriers_keyed.sql`.
    pub(super) fn barriers(&self, rules: Rules, backlog: Backlog, read: &mut Read) {
        if rules.tried_rows_block {
            read.tried = self.first(backlog, |row| row.tried);
        }
        let mut unrouted = None;
        if rules.unrouted_rows_block && backlog == Backlog::Broker {
            unrouted = self.first(Backlog::Unrouted, |_| true);
        }
        for number in read.tried.into_iter().chain(unrouted) {
            read.until = read.until.min(number);
        }
    }

    /// `earlier_keyed.sql`.
    pub(super) fn earlier(&self, rules: Rules, backlog: Backlog, bottom: u8, read: &mut Read) {
        let mut unfinished = self.unfinished(backlog);
        if rules.earlier_rows_block && unfinished.any(|(number, _)| (bottom..read.head()).contains(&number)) {
            read.until = 0;
        }
    }

    /// What `claim_keyed.sql` reads: the first unfinished rows of the key. A claim steps to keys that have a row which was
    /// tried, and sometimes to any.
    pub(super) fn run(&self, rules: Rules, backlog: Backlog, most: u8) -> Read {
        let mut barrier = ROWS;
        if rules.unrouted_rows_block && backlog == Backlog::Broker {
            barrier = self.first(Backlog::Unrouted, |_| true).unwrap_or(ROWS);
        }
        let run = self.unfinished(backlog);
        let run = run.take_while(|(number, row)| row.status == Status::Pending && *number < barrier);
        let ready = run
            .take(usize::from(most))
            .fold(0, |rows, (number, _)| rows | bit(number));
        Read {
            ready,
            until: ROWS,
            has_barriers: false,
            tried: None,
            changed: 0,
        }
    }

    /// Claims the rows that were read. Those that are locked or have changed are left, with the later rows of their key.
    /// `claim_by_key.sql` moves others.
    pub(super) fn claim(&mut self, rules: Rules, read: &Read) -> RowSet {
        let mut claimed = 0;
        for number in numbers(read.taken()) {
            let (locked, changed) = (self.row(number).locked, read.changed & bit(number) != 0);
            if locked && rules.locked_rows_end_their_key || changed && rules.changed_rows_end_their_key {
                break;
            }
            if !locked && !changed {
                claimed |= bit(number);
            }
        }
        for number in numbers(read.moved() & !read.changed) {
            let row = self.row_mut(number);
            row.tried |= !row.locked;
        }
        self.hold(claimed);
        claimed
    }

    fn hold(&mut self, rows: RowSet) {
        let claim = self.claims;
        for number in numbers(rows) {
            let row = self.row_mut(number);
            (row.status, row.claim, row.expired) = (Status::Processing, Some(claim), false);
        }
        self.claims += u8::from(rows != 0);
    }

    /// `claim_expired.sql`: the first rows of the key, if their leases have expired.
    pub(super) fn claim_suspects(&mut self, rules: Rules, place: usize, backlog: Backlog) -> RowSet {
        let is_before = |row: &Row| row.backlog == backlog || backlog == Backlog::Broker;
        let rows = (0..)
            .zip(&self.rows)
            .filter(|(_, row)| row.is_unfinished() && is_before(row));
        let is_suspect = |row: &Row| {
            let is_own_lane = self.owners[row.backlog.place()] == place || !rules.lanes_locked;
            row.status == Status::Processing && row.expired && !row.locked && is_own_lane
        };
        let mut suspects = 0;
        for (number, row) in rows {
            if is_suspect(row) {
                suspects |= if row.backlog == backlog { bit(number) } else { 0 };
            } else if rules.suspects_in_order {
                break;
            }
        }
        self.hold(suspects);
        suspects
    }

    /// `route.sql` for these rows of a claim.
    pub(super) fn route(&mut self, rules: Rules, rows: &[u8], claim: u8) -> Vec<Routed> {
        let before = self.clone();
        let route = |number: &u8| {
            let row = self.row_mut(*number);
            if !row.is_held(claim) || row.backlog != Backlog::Unrouted {
                return Routed::Lost;
            }
            let mut earlier = before.unfinished(Backlog::Broker);
            let waits = earlier.any(|(other, row)| other < *number && row.claim != Some(claim));
            row.backlog = Backlog::Broker;
            row.tried |= rules.routed_rows_by_key;
            if waits {
                (row.status, row.claim) = (Status::Pending, None);
                return Routed::Waits;
            }
            Routed::Goes
        };
        rows.iter().map(route).collect()
    }

    /// Writes a verdict, and the destination if the row has none.
    pub(super) fn settle(&mut self, rules: Rules, number: u8, claim: u8, verdict: Verdict, is_routed: bool) {
        let row = self.row_mut(number);
        if !row.is_held(claim) && rules.settles_fenced {
            return;
        }
        let is_moved = is_routed && row.backlog == Backlog::Unrouted;
        if is_moved {
            row.backlog = Backlog::Broker;
        }
        row.claim = None;
        row.expired = false;
        let by_key = match is_moved {
            true => rules.routed_rows_by_key,
            false => rules.returned_rows_by_key,
        };
        row.tried |= by_key;
        match verdict {
            Verdict::Delivered => row.status = Status::Delivered,
            Verdict::Retry | Verdict::Release => row.status = Status::Pending,
            Verdict::Dead => (row.status, row.tried) = (Status::Dead, true),
            Verdict::Suspect => (row.status, row.expired) = (Status::Processing, true),
        }
    }

    /// The lease of a claim is over.
    pub(super) fn expire(&mut self, claim: u8) {
        for row in self.rows.iter_mut().filter(|row| row.is_held(claim)) {
            row.expired = true;
        }
    }
}
