//! The sample of an outbox in memory.

use std::time::Duration;

use super::Memory;
use crate::sample::{Depth, INTERVAL, STALE_AFTER, Sample, SampleRequest, Sampled};
use crate::state::Status;
use crate::store::UNROUTED;

impl Memory {
    pub(super) fn take_sample(&self, request: &SampleRequest) -> Sampled {
        let now = self.clock.wall();
        let table = self.table();
        let known = request.destinations.iter().cloned().chain([UNROUTED.to_owned()]);
        let mut sample = Sample {
            cap: u64::MAX,
            destinations: known.map(|name| (name, Depth::default())).collect(),
            workers_alive: table
                .workers
                .values()
                .filter(|worker| worker.is_alive(now))
                .count() as u64,
            ..Sample::default()
        };
        for row in table.rows.values() {
            let destination = row.event.destination.as_deref();
            let depth = sample.depth(destination.unwrap_or_default());
            match row.state.status {
                Status::Pending => {
                    depth.pending += 1;
                    let waited = (now - row.state.due).as_seconds_f64();
                    depth.oldest_pending_seconds = depth.oldest_pending_seconds.max(waited);
                }
                Status::Processing => {
                    depth.processing += 1;
                    let held = Duration::try_from(now - row.updated_at).unwrap_or_default();
                    sample.stale_processing += u64::from(held > STALE_AFTER);
                    sample.oldest_processing_seconds =
                        sample.oldest_processing_seconds.max(held.as_secs_f64());
                }
                Status::Dead => {
                    depth.dead += 1;
                    let blocks = |row: &super::Row| {
                        row.lane.is_some()
                            && !table.rows.values().any(|other| row.waits_for(other, destination))
                    };
                    sample.blocked_keys += u64::from(blocks(row));
                }
                Status::Delivered => {}
                Status::Unknown(_) => depth.unknown += 1,
            }
        }
        for (name, paused) in &table.paused {
            let depth = sample.depth(name);
            depth.paused |= !paused.disabled;
            depth.disabled |= paused.disabled;
        }
        Sampled {
            sample: Some(sample),
            age: Duration::ZERO,
            due_in: INTERVAL,
            manual_retries: table.manual_retries,
            now,
        }
    }
}
