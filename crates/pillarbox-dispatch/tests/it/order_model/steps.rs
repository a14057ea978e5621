//! What may follow from one state: what producers, operators, workers and clocks do.

use super::database::{Backlog, ROWS, Routed, Row, Status, Verdict, bit, numbers};
use super::worker::{Call, Memory, Queued, Route, Watermark};
use super::{Faults, Rules, World};

/// What happened, and the place of the worker.
pub(super) type Step = (&'static str, usize);

/// What may follow from one state.
pub(super) struct Steps<'a> {
    pub(super) rules: Rules,
    pub(super) world: &'a World,
    pub(super) next: Vec<(World, Step)>,
    pub(super) violation: Option<String>,
}

impl Steps<'_> {
    pub(super) fn all(&mut self) {
        self.producers();
        self.operator();
        for place in 0..2 {
            self.claimer(place);
            self.router(place);
            self.sender(place);
            self.settler(place);
            self.crash(place);
        }
        self.clock();
        self.take_over();
    }

    /// Adds what follows from a change.
    pub(super) fn step(&mut self, step: Step, change: impl FnOnce(&mut World)) {
        let mut next = self.world.clone();
        change(&mut next);
        for number in 0..ROWS {
            if next.database.row(number).differs(self.world.database.row(number)) {
                for worker in &mut next.workers {
                    worker.changed(number);
                }
            }
        }
        next.normalise();
        if next != *self.world {
            self.next.push((next, step));
        }
    }

    /// Adds what follows from a fault, if there may be one more.
    pub(super) fn fault(
        &mut self,
        step: Step,
        count: impl Fn(&mut Faults) -> &mut u8,
        change: impl FnOnce(&mut World),
    ) {
        let mut faults = self.world.faults;
        let left = count(&mut faults);
        if *left > 0 {
            *left -= 1;
            self.step(step, |world| {
                world.faults = faults;
                change(world);
            });
        }
    }

    /// Transactions take their numbers in the order of the rows, and commit in any order.
    fn producers(&mut self) {
        let database = &self.world.database;
        let committed = database.committed();
        let next = (0..ROWS).find(|number| database.row(*number).status == Status::Unborn);
        let is_under_lock = self.rules.numbers_under_lock;
        self.fail_over();
        if let Some(number) = next {
            self.step(("inserts a row", 2), |world| {
                let row = world.database.row_mut(number);
                row.after = committed;
                row.status = match is_under_lock {
                    true => Status::Uncommitted,
                    false => Status::Drawn,
                };
            });
        }
        for number in 0..ROWS {
            match database.row(number).status {
                Status::Drawn => self.step(("locks the table", 2), |world| {
                    world.database.row_mut(number).status = Status::Uncommitted;
                }),
                Status::Uncommitted => {
                    self.step(("commits a row", 2), |world| {
                        let row = world.database.row_mut(number);
                        (row.status, row.prepared) = (Status::Pending, false);
                    });
                    if !database.row(number).prepared {
                        self.fault(
                            ("prepares a transaction", 2),
                            |faults| &mut faults.prepares,
                            |world| world.database.row_mut(number).prepared = true,
                        );
                    }
                }
                _ => {}
            }
        }
    }

    /// A server takes over that lacks the last row. The sequence gives its number again.
    fn fail_over(&mut self) {
        let rows = &self.world.database.rows;
        let Some(last) = rows.iter().rposition(|row| row.status != Status::Unborn) else {
            return;
        };
        // A row that was claimed is not lost: it would only be sent twice.
        if rows[last].claim.is_some() || rows[last].has_arrived {
            return;
        }
        let is_reset = self.rules.failover_resets_bottoms;
        self.fault(
            ("fails over", 2),
            |faults| &mut faults.failovers,
            |world| {
                let row = &mut world.database.rows[last];
                *row = Row {
                    backlog: row.backlog,
                    ..Row::default()
                };
                for worker in &mut world.workers {
                    worker.call = None;
                    if is_reset {
                        worker.bottoms = [0; 2];
                    }
                }
                if is_reset {
                    world.watermarks = [Watermark::default(); 2];
                }
            },
        );
    }

    /// An operator locks a pending row in a transaction that ends, retries a pending row, or retries a dead one.
    fn operator(&mut self) {
        for number in 0..ROWS {
            let (rules, row) = (self.rules, *self.world.database.row(number));
            let retry = |world: &mut World| {
                let row = world.database.row_mut(number);
                row.tried = rules.retried_rows_by_key;
                row.status = Status::Pending;
            };
            match row.status {
                Status::Pending if row.locked => self.step(("unlocks a row", 2), |world| {
                    world.database.row_mut(number).locked = false;
                }),
                Status::Pending => {
                    self.fault(
                        ("locks a row", 2),
                        |faults| &mut faults.locks,
                        |world| world.database.row_mut(number).locked = true,
                    );
                    self.fault(("retries a row", 2), |faults| &mut faults.retries, retry);
                }
                Status::Dead => self.step(("retries a dead row", 2), retry),
                _ => {}
            }
        }
    }

    /// Writes the destinations of rows that ask: of one, or of all rows of the claim.
    fn router(&mut self, place: usize) {
        let rules = self.rules;
        for most in [1, ROWS] {
            let Some((claim, rows)) = self.world.workers[place].asking(usize::from(most)) else {
                return;
            };
            self.step(("routes", place), |world| {
                let routed = world.database.route(rules, &rows, claim);
                let worker = &mut world.workers[place];
                let mut is_broken = false;
                for (number, routed) in rows.iter().zip(routed) {
                    is_broken |= routed == Routed::Lost;
                    let same = |row: &Queued| row.row == *number && row.claim == claim;
                    let Some(at) = worker.queue.iter().position(same) else {
                        continue;
                    };
                    worker.queue[at].route = Route::Known;
                    if routed != Routed::Goes {
                        worker.queue.remove(at);
                    } else if is_broken {
                        let row = worker.queue.remove(at);
                        worker.decide(row, Verdict::Release);
                    }
                }
                if is_broken {
                    let rest = worker.queue.iter().position(|row| row.claim == claim);
                    worker.release_from(rest.unwrap_or(worker.queue.len()));
                }
            });
        }
    }

    /// Sends the next row of the key, releases the last one, or gives up a row whose lease is over.
    fn sender(&mut self, place: usize) {
        let worker = &self.world.workers[place];
        let Some(&first) = worker.queue.first() else {
            return;
        };
        if worker.has_lapsed(first.claim) {
            self.step(("gives up a row whose lease is over", place), |world| {
                let worker = &mut world.workers[place];
                worker.queue.remove(0);
                worker.release_from(0);
            });
            return;
        }
        let last = worker.queue.len() - 1;
        self.fault(
            ("releases a row", place),
            |faults| &mut faults.releases,
            |world| world.workers[place].release_from(last),
        );
        if first.route == Route::Asks {
            return;
        }
        self.check(place, first.row);
        self.step(("delivers a row", place), |world| {
            world.database.row_mut(first.row).has_arrived = true;
            let worker = &mut world.workers[place];
            worker.queue.remove(0);
            worker.decide(first, Verdict::Delivered);
        });
        let ended = |verdict: Verdict| {
            move |world: &mut World| {
                let worker = &mut world.workers[place];
                worker.queue.remove(0);
                worker.decide(first, verdict);
                worker.release_from(0);
            }
        };
        let retry = ended(Verdict::Retry);
        self.fault(("fails to deliver", place), |faults| &mut faults.failures, retry);
        let suspect = ended(Verdict::Suspect);
        self.fault(("suspects a row", place), |faults| &mut faults.suspects, suspect);
        let dead = ended(Verdict::Dead);
        self.fault(("gives a row up", place), |faults| &mut faults.deaths, dead);
    }

    /// May the row be sent?
    fn check(&mut self, place: usize, number: u8) {
        let database = &self.world.database;
        let row = database.row(number);
        let name = ["A", "B"][place];
        if numbers(row.after).any(|earlier| !database.row(earlier).has_arrived) {
            self.violation = Some(format!("{name} sends row {} before an earlier one", number + 1));
        }
        if self.world.settled & bit(number) != 0 {
            self.violation = Some(format!(
                "{name} sends row {} again after it was settled",
                number + 1
            ));
        }
    }

    fn settler(&mut self, place: usize) {
        let rules = self.rules;
        for (number, decided) in self.world.workers[place].decided.iter().enumerate() {
            let (row, claim) = (decided.row.row, decided.row.claim);
            let is_routed = decided.row.route != Route::Asks;
            self.step((settles(decided.verdict), place), |world| {
                world.workers[place].decided.remove(number);
                world
                    .database
                    .settle(rules, row, claim, decided.verdict, is_routed);
                if world.database.row(row).status == Status::Delivered {
                    world.settled |= bit(row);
                }
            });
        }
    }

    /// The lease of a claim is over: first by the worker's clock, then by the database's.
    fn clock(&mut self) {
        for claim in 0..self.world.database.claims {
            let workers = &self.world.workers;
            let sender = workers.iter().position(|worker| worker.sends(claim));
            let has_lapsed = workers.iter().any(|worker| worker.has_lapsed(claim));
            let is_held = workers
                .iter()
                .any(|worker| worker.claims().any(|other| other == claim));
            if let Some(place) = sender {
                self.fault(
                    ("finds a lease over", place),
                    |faults| &mut faults.lapses,
                    |world| world.workers[place].lapsed |= 1 << claim,
                );
            } else if has_lapsed || !is_held {
                self.step(("ends a lease", 2), |world| world.database.expire(claim));
            } else {
                self.fault(
                    ("ends a lease", 2),
                    |faults| &mut faults.lapses,
                    |world| world.database.expire(claim),
                );
            }
        }
    }

    /// A worker dies, and its successor starts. Its transaction is rolled back.
    fn crash(&mut self, place: usize) {
        self.fault(
            ("dies", place),
            |faults| &mut faults.crashes,
            |world| {
                world.workers[place] = Memory::default();
                if !world.shares_watermark {
                    *world.watermark(place) = Watermark::default();
                }
            },
        );
    }

    /// The other worker takes a lane, which no claim locks. The old owner does not notice.
    fn take_over(&mut self) {
        for backlog in Backlog::ALL {
            if self.world.setting_without(backlog) {
                continue;
            }
            let locks = |worker: &Memory| {
                let mut call = worker.call.filter(|call| call.backlog == backlog);
                call.as_mut().and_then(Call::read_mut).is_some()
            };
            if self.rules.lanes_locked && self.world.workers.iter().any(locks) {
                continue;
            }
            self.fault(
                ("takes a lane over", 2),
                |faults| &mut faults.takeovers,
                |world| {
                    let owner = &mut world.database.owners[backlog.place()];
                    *owner = 1 - *owner;
                },
            );
        }
    }
}

fn settles(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Delivered => "settles a row as delivered",
        Verdict::Retry => "settles a row to be retried",
        Verdict::Release => "settles a row as released",
        Verdict::Suspect => "settles a row as a suspect",
        Verdict::Dead => "settles a row as dead",
    }
}
