//! The statements of a claim.

use super::World;
use super::database::{Backlog, ROWS, Read, bit, numbers};
use super::steps::{Step, Steps};
use super::worker::{Call, Look, Route, Stage};

impl Steps<'_> {
    /// The next statement of a claim, or the first one of any.
    pub(super) fn claimer(&mut self, place: usize) {
        let Some(call) = self.world.workers[place].call else {
            for backlog in Backlog::ALL {
                self.look(place, backlog);
                self.read(place, backlog);
            }
            return;
        };
        let (rules, backlog) = (self.rules, call.backlog);
        match call.stage {
            Stage::Holders(look) => {
                let (last, holders) = (self.world.database.last(), self.world.database.holders(rules));
                let look = match rules.sequence_before_holders {
                    true => Look { holders, ..look },
                    false => Look { last, ..look },
                };
                let stage = Stage::Bottom(look);
                self.goes_on(("looks further", place), place, Call { backlog, stage });
            }
            Stage::Bottom(look) => self.bottom(place, backlog, look),
            Stage::Barriers(mut read) => {
                self.world.database.barriers(rules, backlog, &mut read);
                let stage = Stage::Earlier(read);
                self.goes_on(("asks for barriers", place), place, Call { backlog, stage });
            }
            Stage::Earlier(mut read) => {
                let bottom = self.world.workers[place].bottoms[backlog.place()];
                self.world.database.earlier(rules, backlog, bottom, &mut read);
                let stage = Stage::Claim(read);
                self.goes_on(("asks for earlier rows", place), place, Call { backlog, stage });
            }
            Stage::Claim(read) => self.claim(place, backlog, &read),
        }
    }

    fn goes_on(&mut self, step: Step, place: usize, call: Call) {
        self.step(step, |world| world.workers[place].call = Some(call));
    }

    /// A look for the bottom begins. It is one step if no transaction may insert any more.
    fn look(&mut self, place: usize, backlog: Backlog) {
        let (rules, world) = (self.rules, self.world);
        let database = &world.database;
        let is_needed =
            database.owners[backlog.place()] == place || world.faults.takeovers > 0 || world.shares_watermark;
        if world.setting_without(backlog) || !is_needed {
            return;
        }
        let bottom = world.workers[place].bottoms[backlog.place()];
        let mut look = Look {
            lowest: database.lowest(backlog, bottom),
            ..Look::default()
        };
        match rules.sequence_before_holders {
            true => look.last = database.last(),
            false => look.holders = database.holders(rules),
        }
        if database.committed() == bit(ROWS) - 1 {
            self.bottom(place, backlog, Look { last: ROWS, ..look });
        } else {
            let stage = Stage::Holders(look);
            self.goes_on(("looks for the bottom", place), place, Call { backlog, stage });
        }
    }

    /// The watermark gets what was seen, and then the first fresh row is read.
    fn bottom(&mut self, place: usize, backlog: Backlog, look: Look) {
        let rules = self.rules;
        self.step(("knows the bottom", place), |world| {
            let certain = world.watermark(place).look(rules, look);
            if world.shares_watermark {
                let calls = world.workers.iter_mut().filter_map(|worker| worker.call.as_mut());
                calls
                    .filter_map(Call::look_mut)
                    .for_each(|look| look.is_late = true);
            }
            let worker = &mut world.workers[place];
            worker.call = None;
            let bottom = &mut worker.bottoms[backlog.place()];
            let lowest = match rules.bottom_read_last {
                true => world.database.lowest(backlog, *bottom),
                false => look.lowest,
            };
            *bottom = (*bottom).max(lowest.min(certain));
        });
    }

    /// The statement that a claim begins with. A worker asks for nothing in a lane that it does not own.
    fn read(&mut self, place: usize, backlog: Backlog) {
        let (rules, database) = (self.rules, &self.world.database);
        if rules.lanes_locked && database.owners[backlog.place()] != place {
            return;
        }
        let mut known: Vec<Read> = Vec::new();
        // The floor is any, and so is the number of rows that are read.
        for (from, to) in (0..ROWS).flat_map(|from| (from + 1..=ROWS).map(move |to| (from, to))) {
            let read = database.read(backlog, from, to);
            if read.ready == 0 || known.contains(&read) {
                continue;
            }
            known.push(read);
            let mut stage = match read.has_barriers {
                true => Stage::Barriers(read),
                false => Stage::Earlier(read),
            };
            if !rules.probes_after_read {
                let (mut read, bottom) = (read, self.world.workers[place].bottoms[backlog.place()]);
                database.barriers(rules, backlog, &mut read);
                database.earlier(rules, backlog, bottom, &mut read);
                stage = Stage::Claim(read);
            }
            self.goes_on(("reads fresh rows", place), place, Call { backlog, stage });
        }
        for most in [1, ROWS] {
            let run = database.run(rules, backlog, most);
            if run.ready != 0 {
                let stage = Stage::Claim(run);
                self.goes_on(("reads a run of its key", place), place, Call { backlog, stage });
            }
        }
        for route in self.routes(backlog) {
            self.step(("claims suspects", place), |world| {
                let claim = world.database.claims;
                let rows = world.database.claim_suspects(rules, place, backlog);
                world.workers[place].arrive(numbers(rows), claim, route);
            });
        }
    }

    /// How claimed rows may find their destination: rows without one ask if any row has one.
    fn routes(&self, backlog: Backlog) -> Vec<Route> {
        let mut rows = self.world.database.rows.iter();
        let is_contested = rows.any(|row| row.is_unfinished() && row.backlog == Backlog::Broker);
        match backlog {
            Backlog::Broker => vec![Route::Known],
            Backlog::Unrouted if is_contested && self.rules.routing_asks => vec![Route::Asks],
            Backlog::Unrouted => vec![Route::Asks, Route::Direct],
        }
    }

    /// The claim is executed and committed. Nothing can come between: the rows are locked.
    fn claim(&mut self, place: usize, backlog: Backlog, read: &Read) {
        let rules = self.rules;
        for route in self.routes(backlog) {
            let claim = |world: &mut World| {
                world.workers[place].call = None;
                let claim = world.database.claims;
                let rows = world.database.claim(rules, read);
                (claim, rows)
            };
            self.step(("claims", place), |world| {
                let (claim, rows) = claim(world);
                world.workers[place].arrive(numbers(rows), claim, route);
            });
            self.fault(
                ("claims, and the answer is lost", place),
                |faults| &mut faults.lost_answers,
                |world| {
                    claim(world);
                },
            );
        }
    }
}
