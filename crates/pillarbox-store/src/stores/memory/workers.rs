//! Heartbeats, and leases of lane ranges.
//!
//! **If we die here** the lanes are free when their lease expires.

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::Table;
use crate::operate::{Paused, WorkerRecord};
use crate::store::{Backlog, Heartbeat, LANES, LaneRequest, Range};
use crate::stores::sharing::{LiveWorker, Sharers, lanes};

#[derive(Debug)]
pub(super) struct Worker {
    heartbeat: Heartbeat,
    started_at: OffsetDateTime,
    seen_at: OffsetDateTime,
}

impl Worker {
    pub(super) fn is_alive(&self, now: OffsetDateTime) -> bool {
        self.seen_at + self.heartbeat.ttl >= now
    }
}

/// The lanes of one backlog.
#[derive(Debug)]
pub(super) struct Lanes {
    owners: Vec<Option<Owner>>,
    /// The setting that the division follows.
    wanted: u16,
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    worker: Uuid,
    until: OffsetDateTime,
    leaving: bool,
}

impl Lanes {
    fn new(ranges: u16, wanted: u16) -> Self {
        Self {
            owners: vec![None; usize::from(ranges.clamp(1, LANES))],
            wanted,
        }
    }

    fn ranges(&self) -> u16 {
        u16::try_from(self.owners.len()).unwrap_or(LANES)
    }

    fn is_held(&self, now: OffsetDateTime) -> bool {
        self.owners.iter().flatten().any(|owner| owner.until >= now)
    }

    /// Renews this worker's ranges, and leases or leaves some until it has `part` of them.
    fn share(&mut self, worker: Uuid, part: usize, lease: Duration, now: OffsetDateTime) {
        let until = now + lease;
        let mut mine = 0;
        for owner in self.owners.iter_mut().flatten() {
            if owner.worker == worker && owner.until >= now {
                mine += 1;
                owner.until = until;
                owner.leaving = mine > part;
            }
        }
        for owner in &mut self.owners {
            let free = owner.is_none_or(|owner| owner.until < now);
            if mine < part && free {
                mine += 1;
                *owner = Some(Owner {
                    worker,
                    until,
                    leaving: false,
                });
            }
        }
    }
}

impl Table {
    pub(super) fn heartbeat(&mut self, heartbeat: &Heartbeat, now: OffsetDateTime) {
        let started_at = self
            .workers
            .get(&heartbeat.worker)
            .map_or(now, |worker| worker.started_at);
        let worker = Worker {
            heartbeat: heartbeat.clone(),
            started_at,
            seen_at: now,
        };
        self.workers.insert(heartbeat.worker, worker);
    }

    pub(super) fn deregister(&mut self, worker: Uuid) {
        self.workers.remove(&worker);
        for owner in self.lanes.values_mut().flat_map(|lanes| &mut lanes.owners) {
            if owner.is_some_and(|owner| owner.worker == worker) {
                *owner = None;
            }
        }
    }

    pub(super) fn lease_lanes(&mut self, request: &LaneRequest, now: OffsetDateTime) -> Vec<Range> {
        let live = self.live_workers(now);
        let mut ours = Vec::new();
        for backlog in &request.backlogs {
            let sharers = Sharers::of(backlog, &live, request);
            let new = || Lanes::new(sharers.ranges.min(request.new_ranges), sharers.ranges);
            let held = self.lanes.entry(backlog.clone()).or_insert_with(new);
            let all = held.ranges();
            for (number, owner) in (0..all).zip(&mut held.owners) {
                let range = lanes(number, all);
                let is_released = |released: &Range| {
                    released.backlog == *backlog && (released.first, released.last) == range
                };
                if owner.is_some_and(|owner| owner.worker == request.worker)
                    && request.release.iter().any(is_released)
                {
                    *owner = None;
                }
            }
            if held.wanted != sharers.ranges && !held.is_held(now) {
                *held = new();
            }
            let part = if held.wanted == sharers.ranges {
                sharers.part(request.worker, held.ranges())
            } else {
                0
            };
            held.share(request.worker, part, request.lease, now);
            ours.extend(self.ranges(request.worker, backlog, now));
        }
        ours
    }

    pub(super) fn prune_lanes(&mut self, now: OffsetDateTime) -> usize {
        let before = self.lanes.len();
        self.lanes.retain(|_, lanes| lanes.is_held(now));
        before - self.lanes.len()
    }

    /// The live workers, in the order of their start.
    pub(super) fn live_workers(&self, now: OffsetDateTime) -> Vec<LiveWorker> {
        let mut live: Vec<(&Uuid, &Worker)> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.is_alive(now))
            .collect();
        live.sort_by_key(|(id, worker)| (worker.started_at, **id));
        live.into_iter()
            .map(|(id, worker)| LiveWorker {
                id: *id,
                scope: worker.heartbeat.scope.clone(),
                serves: worker.heartbeat.serves.clone(),
            })
            .collect()
    }

    fn ranges(&self, worker: Uuid, backlog: &Backlog, now: OffsetDateTime) -> Vec<Range> {
        let Some(held) = self.lanes.get(backlog) else {
            return Vec::new();
        };
        let all = held.ranges();
        let mine = (0..all).zip(&held.owners).filter_map(|(number, owner)| {
            let owner = owner.filter(|owner| owner.worker == worker && owner.until >= now)?;
            let (first, last) = lanes(number, all);
            Some(Range {
                backlog: backlog.clone(),
                first,
                last,
                leaving: owner.leaving,
            })
        });
        mine.collect()
    }

    /// May this worker claim from the lane?
    pub(super) fn owns(&self, worker: Uuid, backlog: &Backlog, lane: u16, now: OffsetDateTime) -> bool {
        self.ranges(worker, backlog, now)
            .iter()
            .any(|range| !range.leaving && (range.first..=range.last).contains(&lane))
    }

    pub(super) fn pause(
        &mut self,
        destination: &str,
        reason: &str,
        disabled: bool,
        now: OffsetDateTime,
    ) -> bool {
        let paused = Paused {
            since: now,
            reason: reason.to_owned(),
            disabled,
        };
        if self.paused.contains_key(destination) {
            return false;
        }
        self.paused.insert(destination.to_owned(), paused);
        true
    }

    pub(super) fn worker_records(&self, now: OffsetDateTime) -> Vec<WorkerRecord> {
        let lanes = |id: Uuid| -> u32 {
            self.lanes
                .keys()
                .flat_map(|backlog| self.ranges(id, backlog, now))
                .map(|range| u32::from(range.last - range.first) + 1)
                .sum()
        };
        let mut records: Vec<WorkerRecord> = self
            .workers
            .iter()
            .map(|(id, worker)| WorkerRecord {
                id: *id,
                host: worker.heartbeat.host.clone(),
                version: worker.heartbeat.version.clone(),
                scope: worker.heartbeat.scope.names(),
                started_at: worker.started_at,
                seen_at: worker.seen_at,
                alive: worker.is_alive(now),
                lanes: lanes(*id),
                claimed: worker.heartbeat.claimed,
                delivered: worker.heartbeat.delivered,
                failed: worker.heartbeat.failed,
                breakers: worker.heartbeat.breakers.clone(),
            })
            .collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.started_at));
        records
    }
}
