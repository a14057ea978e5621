//! All histories, breadth first, so that the shortest violation is found first.

use std::collections::{HashMap, HashSet, VecDeque};

use super::database::{Floor, ROWS, Request, Take, Verdict};
use super::worker::{Call, Memory};
use super::{Faults, Rules, Status, World};

/// The request of a claim that is executed: it no longer matters.
const DONE: Request = Request {
    take: Take::Fresh,
    floor: None,
    unknown: 0,
    most: 0,
};

/// The result of an exploration.
pub(super) struct Explored {
    pub(super) states: usize,
    /// The row that arrived before an earlier one.
    pub(super) violation: Option<usize>,
    /// Did some history deliver all rows?
    pub(super) completed: bool,
}

pub(super) fn explore(rules: Rules, faults: Faults) -> Explored {
    let first = World::new(faults);
    let mut seen = HashSet::from([first.clone()]);
    let mut open = VecDeque::from([first]);
    let mut completed = false;
    while let Some(world) = open.pop_front() {
        completed |= world.is_done();
        if completed && world.is_safe() {
            continue;
        }
        let mut steps = Steps {
            rules,
            world: &world,
            next: Vec::new(),
            violation: None,
        };
        steps.all();
        if steps.violation.is_some() {
            return Explored {
                states: seen.len(),
                violation: steps.violation,
                completed,
            };
        }
        for next in steps.next {
            if seen.insert(next.clone()) {
                open.push_back(next);
            }
        }
    }
    Explored {
        states: seen.len(),
        violation: None,
        completed,
    }
}

/// How many states lead to no state in which all rows have arrived.
pub(super) fn stuck(rules: Rules, faults: Faults) -> usize {
    let mut worlds = vec![World::new(faults)];
    let mut places = HashMap::from([(worlds[0].clone(), 0)]);
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut place = 0;
    while let Some(world) = worlds.get(place).cloned() {
        let mut steps = Steps {
            rules,
            world: &world,
            next: Vec::new(),
            violation: None,
        };
        steps.all();
        for next in steps.next {
            let known = *places.entry(next).or_insert_with_key(|next| {
                worlds.push(next.clone());
                before.push(Vec::new());
                worlds.len() - 1
            });
            before[known].push(place);
        }
        place += 1;
    }
    let mut open: Vec<usize> = (0..worlds.len())
        .filter(|&place| worlds[place].is_done())
        .collect();
    let mut leads_on: HashSet<usize> = open.iter().copied().collect();
    while let Some(place) = open.pop() {
        open.extend(before[place].iter().filter(|&&place| leads_on.insert(place)));
    }
    worlds.len() - leads_on.len()
}

/// What may follow from one state.
struct Steps<'a> {
    rules: Rules,
    world: &'a World,
    next: Vec<World>,
    violation: Option<usize>,
}

impl Steps<'_> {
    fn all(&mut self) {
        self.producer();
        self.operator();
        for place in 0..2 {
            self.claimer(place);
            self.sender(place);
            self.settler(place);
            self.clock(place);
            self.crash(place);
        }
        self.take_over();
    }

    /// Adds what follows from a change.
    fn step(&mut self, change: impl FnOnce(&mut World)) {
        let mut next = self.world.clone();
        change(&mut next);
        next.normalise();
        if next != *self.world {
            self.next.push(next);
        }
    }

    /// Adds what follows from a fault, if there may be one more.
    fn fault(&mut self, count: impl Fn(&mut Faults) -> &mut u8, change: impl FnOnce(&mut World)) {
        let mut faults = self.world.faults;
        let left = count(&mut faults);
        if *left > 0 {
            *left -= 1;
            self.step(|world| {
                world.faults = faults;
                change(world);
            });
        }
    }

    /// Rows are numbered and committed. The next row of the key is numbered after the commit of the one before.
    fn producer(&mut self) {
        let rows = &self.world.database.rows;
        let is_new = |number: &usize| matches!(rows[*number].status, Status::Unborn | Status::Uncommitted);
        if let Some(number) = (0..ROWS).find(is_new) {
            let is_numbered = rows[number].status == Status::Uncommitted;
            self.step(|world| {
                let database = &mut world.database;
                if !is_numbered {
                    database.last += 1;
                    database.rows[number].seq = database.last;
                }
                // Without rows of other keys no floor can pass a row that is not committed.
                let commits = is_numbered || world.faults.others == 0;
                database.rows[number].status = if commits {
                    Status::Pending
                } else {
                    Status::Uncommitted
                };
            });
        }
        self.fault(
            |faults| &mut faults.others,
            |world| {
                world.database.last += 1;
                world.database.others = world.database.last;
            },
        );
    }

    /// A transaction of an operator locks a pending row and ends.
    fn operator(&mut self) {
        for number in 0..ROWS {
            let row = self.world.database.rows[number];
            if row.locked {
                self.step(|world| world.database.rows[number].locked = false);
            } else if row.status == Status::Pending {
                self.fault(
                    |faults| &mut faults.locks,
                    |world| world.database.rows[number].locked = true,
                );
            }
        }
    }

    fn claimer(&mut self, place: usize) {
        let (rules, worker) = (self.rules, &self.world.workers[place]);
        let id = (u8::try_from(place).unwrap_or_default(), worker.id);
        match &worker.call {
            // A worker that never had the lane asks for nothing, unless other rows give it a floor.
            None if self.world.database.tenure == 0 && place != 0 && self.world.database.others == 0 => {}
            None => {
                let is_step = self
                    .world
                    .database
                    .rows
                    .iter()
                    .any(|row| row.tried && row.is_unfinished());
                let is_expired = self.world.database.rows.iter().any(|row| row.expired);
                let kinds = [
                    (Take::Fresh, true),
                    (Take::Step, is_step),
                    (Take::Suspects, is_expired),
                ];
                for (take, _) in kinds.into_iter().filter(|(_, may)| *may) {
                    let floors = [None, worker.floor.filter(|_| take == Take::Fresh)];
                    let pending = self
                        .world
                        .database
                        .rows
                        .iter()
                        .filter(|row| row.status == Status::Pending);
                    let has_several = pending.count() > 1;
                    for floor in &floors[..1 + usize::from(floors[1].is_some())] {
                        self.begin(place, take, *floor, ROWS);
                        if has_several && take != Take::Suspects {
                            self.begin(place, take, *floor, 1);
                        }
                    }
                }
            }
            Some(call) if call.answer.is_none() => {
                let request = call.request;
                self.step(|world| {
                    let answer = world.database.claim(rules, id, request);
                    let is_empty = answer.rows.is_empty();
                    let worker = &mut world.workers[place];
                    if let Some(call) = &mut worker.call {
                        call.answer = Some(answer);
                        call.request = DONE;
                    }
                    // An answer without rows may as well arrive at once.
                    if let Some(call) = worker.call.take_if(|_| is_empty) {
                        worker.arrive(rules, call);
                    }
                });
            }
            Some(call) => {
                let call = call.clone();
                self.fault(
                    |faults| &mut faults.lost_answers,
                    |world| {
                        let worker = &mut world.workers[place];
                        worker.call = None;
                        worker.floor = None;
                        if let Some(answer) = &call.answer {
                            worker.unknown |= 1 << answer.claim;
                        }
                    },
                );
                self.step(|world| {
                    let worker = &mut world.workers[place];
                    worker.call = None;
                    worker.arrive(rules, call);
                });
            }
        }
    }

    /// Begins a claim: from a floor, or as a search from the bottom.
    fn begin(&mut self, place: usize, take: Take, floor: Option<Floor>, most: usize) {
        self.step(|world| {
            let worker = &mut world.workers[place];
            worker.call = Some(Call {
                request: Request {
                    take,
                    floor,
                    unknown: worker.unknown,
                    most,
                },
                seen: worker.seen,
                answer: None,
            });
        });
    }

    /// Sends the next row of the key, releases the last one, or gives up rows whose lease is over.
    fn sender(&mut self, place: usize) {
        let (rules, worker) = (self.rules, &self.world.workers[place]);
        let Some(&first) = worker.queue.first() else {
            return;
        };
        if worker.has_lapsed(first.claim) {
            self.step(|world| {
                let worker = &mut world.workers[place];
                worker.queue.remove(0);
                if rules.lost_rows_settled {
                    worker.decide(rules, first, Verdict::Suspect);
                }
                worker.release_from(rules, 0);
            });
            return;
        }
        let number = usize::from(first.row);
        if self.world.database.rows[..number]
            .iter()
            .any(|row| !row.has_arrived)
        {
            self.violation = Some(number);
        }
        self.step(|world| {
            world.database.rows[number].has_arrived = true;
            let worker = &mut world.workers[place];
            worker.queue.remove(0);
            worker.decide(rules, first, Verdict::Delivered);
        });
        self.fault(
            |faults| &mut faults.failures,
            |world| {
                let worker = &mut world.workers[place];
                worker.queue.remove(0);
                worker.decide(rules, first, Verdict::Retry);
                worker.release_from(rules, 0);
            },
        );
        let last = worker.queue.len() - 1;
        self.fault(
            |faults| &mut faults.releases,
            |world| world.workers[place].release_from(rules, last),
        );
    }

    fn settler(&mut self, place: usize) {
        let worker = &self.world.workers[place];
        let written = if self.rules.settled_in_order {
            worker.decided.len().min(1)
        } else {
            worker.decided.len()
        };
        for number in 0..written {
            self.step(|world| {
                let worker = &mut world.workers[place];
                let decided = worker.committed(number);
                world
                    .database
                    .settle(worker.id, decided.row, decided.claim, decided.verdict);
            });
        }
    }

    /// The lease of a claim is over: first by the worker's clock, then by the database's.
    fn clock(&mut self, place: usize) {
        let worker = &self.world.workers[place];
        for claim in 0..self.world.database.claims {
            if worker.has_lapsed(claim) {
                self.step(|world| world.database.expire(claim));
            } else if worker.holds(claim) || worker.unknown & (1 << claim) != 0 {
                self.fault(
                    |faults| &mut faults.lapses,
                    |world| world.workers[place].lapsed |= 1 << claim,
                );
            }
        }
    }

    /// A worker dies, and its successor starts. All leases of the dead worker expire sooner or later.
    fn crash(&mut self, place: usize) {
        let id = self.world.workers[place].id;
        self.fault(
            |faults| &mut faults.crashes,
            |world| world.workers[place] = Memory::new(id + 2),
        );
        if id >= 2 {
            for number in 0..ROWS {
                let row = self.world.database.rows[number];
                if row.status == Status::Processing && row.worker < 2 && usize::from(row.worker) == place {
                    self.step(|world| world.database.rows[number].expired = true);
                }
            }
        }
    }

    fn take_over(&mut self) {
        self.fault(
            |faults| &mut faults.takeovers,
            |world| {
                world.database.owner = 1 - world.database.owner;
                world.database.tenure += 1;
            },
        );
    }
}
