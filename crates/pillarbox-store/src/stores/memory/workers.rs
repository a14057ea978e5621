//! Heartbeats, and leases of lane ranges.
//!
//! **If we die here** the lanes are free when their lease expires.

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::Table;
use crate::operate::{Paused, WorkerRecord};
use crate::store::{Heartbeat, LANES, LaneRequest, Range};

/// The default number of lane ranges.
const RANGES: u16 = 32;

#[derive(Debug)]
pub(super) struct Worker {
    heartbeat: Heartbeat,
    started_at: OffsetDateTime,
    seen_at: OffsetDateTime,
}

impl Worker {
    fn is_alive(&self, now: OffsetDateTime) -> bool {
        self.seen_at + self.heartbeat.ttl >= now
    }
}

/// The lanes of one namespace.
#[derive(Debug)]
pub(super) struct Lanes {
    owners: Vec<Option<Owner>>,
    wanted: u16,
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    worker: Uuid,
    until: OffsetDateTime,
    leaving: bool,
}

impl Lanes {
    fn new(ranges: u16) -> Self {
        let ranges = ranges.clamp(1, LANES);
        Self {
            owners: vec![None; usize::from(ranges)],
            wanted: ranges,
        }
    }

    fn ranges(&self) -> u16 {
        u16::try_from(self.owners.len()).unwrap_or(LANES)
    }

    /// Divides the lanes into the wanted number of ranges, if all are free.
    fn divide(&mut self, wanted: Option<u16>, now: OffsetDateTime) {
        self.wanted = wanted.map_or(self.wanted, |wanted| wanted.clamp(1, LANES));
        let held = |owner: &Option<Owner>| owner.is_some_and(|owner| owner.until >= now);
        if self.wanted != self.ranges() && !self.owners.iter().any(held) {
            *self = Self::new(self.wanted);
        }
    }

    /// Renews this worker's ranges, and leases or leaves some until it has `part` of them.
    fn share(&mut self, worker: Uuid, part: usize, lease: Duration, now: OffsetDateTime) {
        let part = if self.wanted == self.ranges() { part } else { 0 };
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

/// The first and the last lane of a range.
fn range(number: u16, ranges: u16) -> (u16, u16) {
    let start = |number: u16| {
        let start = u32::from(number) * u32::from(LANES) / u32::from(ranges);
        u16::try_from(start).unwrap_or(LANES)
    };
    (start(number), start(number + 1) - 1)
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
        let mut ours = Vec::new();
        for namespace in &request.namespaces {
            let part = |ranges: u16| self.part(request.worker, namespace, ranges, now);
            let ranges = request.ranges.unwrap_or(RANGES);
            let before = self.lanes.get(namespace);
            let part = part(before.map_or(ranges, |lanes| {
                if request.ranges.is_some() {
                    ranges
                } else {
                    lanes.wanted
                }
            }));
            let lanes = self
                .lanes
                .entry(namespace.clone())
                .or_insert_with(|| Lanes::new(ranges));
            let all = lanes.ranges();
            for number in 0..all {
                let (first, last) = range(number, all);
                let is_released = |released: &Range| {
                    released.namespace == *namespace && released.first == first && released.last == last
                };
                let owner = &mut lanes.owners[usize::from(number)];
                if owner.is_some_and(|owner| owner.worker == request.worker)
                    && request.release.iter().any(is_released)
                {
                    *owner = None;
                }
            }
            lanes.divide(request.ranges, now);
            lanes.share(request.worker, part, request.lease, now);
            ours.extend(self.ranges(request.worker, namespace, now));
        }
        ours
    }

    /// This worker's part of the ranges: an equal share, and one more for the first few workers.
    fn part(&self, worker: Uuid, namespace: &str, ranges: u16, now: OffsetDateTime) -> usize {
        let others: Vec<Uuid> = self
            .workers
            .iter()
            .filter(|(id, other)| {
                **id != worker && other.is_alive(now) && other.heartbeat.scope.contains(namespace)
            })
            .map(|(id, _)| *id)
            .collect();
        let rank = others.iter().filter(|other| **other < worker).count();
        let ranges = usize::from(ranges);
        let count = others.len() + 1;
        ranges / count + usize::from(rank < ranges % count)
    }

    fn ranges(&self, worker: Uuid, namespace: &str, now: OffsetDateTime) -> Vec<Range> {
        let Some(lanes) = self.lanes.get(namespace) else {
            return Vec::new();
        };
        let all = lanes.ranges();
        let mine = lanes.owners.iter().enumerate().filter_map(|(number, owner)| {
            let owner = owner.filter(|owner| owner.worker == worker && owner.until >= now)?;
            let (first, last) = range(u16::try_from(number).ok()?, all);
            Some(Range {
                namespace: namespace.to_owned(),
                first,
                last,
                leaving: owner.leaving,
            })
        });
        mine.collect()
    }

    /// May this worker claim from the lane?
    pub(super) fn owns(&self, worker: Uuid, namespace: &str, lane: u16, now: OffsetDateTime) -> bool {
        self.ranges(worker, namespace, now)
            .iter()
            .any(|range| !range.leaving && (range.first..=range.last).contains(&lane))
    }

    pub(super) fn pause(&mut self, destination: &str, reason: &str, disabled: bool, now: OffsetDateTime) {
        let paused = Paused {
            since: now,
            reason: reason.to_owned(),
            disabled,
        };
        self.paused.entry(destination.to_owned()).or_insert(paused);
    }

    pub(super) fn worker_records(&self, now: OffsetDateTime) -> Vec<WorkerRecord> {
        let lanes = |id: Uuid| -> u32 {
            self.lanes
                .keys()
                .flat_map(|namespace| self.ranges(id, namespace, now))
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
