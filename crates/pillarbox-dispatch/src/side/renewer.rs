//! Renews the leases of rows that need more than half of one: waiting rows, and rows that are being sent.
//!
//! A row that another worker claimed is not sent. If it is being sent, the attempt is dropped.
//!
//! **If we die here** leases expire, no send starts after that, and other workers claim the rows.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{StoreError, failpoint};
use uuid::Uuid;

use crate::worker::Worker;
use crate::worker::task::{Next, Task};

/// How many rows are in one statement, and the rest of the last claim: a claim that is renewed as a whole costs one row.
const MOST: usize = 2000;

/// See the module.
pub(crate) struct Renewer {
    worker: Arc<Worker>,
}

impl Renewer {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self { worker }
    }

    fn lease(&self) -> Duration {
        self.worker.settings.lease
    }
}

/// Divides rows, given as (row, claim) claim by claim, into parts that divide no claim.
fn whole_claims(rows: &[(Uuid, Uuid)]) -> Vec<&[(Uuid, Uuid)]> {
    let mut parts = Vec::new();
    let mut rest = rows;
    while !rest.is_empty() {
        let mut end = 0;
        for claim in rest.chunk_by(|(_, one), (_, next)| one == next) {
            end += claim.len();
            if end >= MOST {
                break;
            }
        }
        let (part, left) = rest.split_at(end);
        parts.push(part);
        rest = left;
    }
    parts
}

impl Task for Renewer {
    async fn tick(&mut self) -> Result<Next, StoreError> {
        let worker = &self.worker;
        // Leases are renewed at between a half and five eighths of their time: there is time left to retry.
        let interval = self.lease() / 8;
        let Some(before) = worker.now().checked_sub(self.lease() / 2) else {
            return Ok(Next::Wait(interval));
        };
        let old = worker.in_flight.older_than(before);
        for rows in whole_claims(&old) {
            let asked = worker.now();
            let lost = worker.store.renew(worker.id, rows, self.lease()).await?;
            failpoint::hit("after_renew");
            let lost = worker.in_flight.renewed(rows, &lost, asked, self.lease());
            if lost > 0 {
                tracing::warn!(rows = lost, "lease lost before renewal, events may be sent again");
            }
        }
        Ok(Next::Wait(interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_never_divided() {
        let rows: Vec<(Uuid, Uuid)> = [1500, 1500, 1, 2500]
            .into_iter()
            .zip(1u128..)
            .flat_map(|(count, claim)| vec![(Uuid::nil(), Uuid::from_u128(claim)); count])
            .collect();
        let lengths: Vec<usize> = whole_claims(&rows).iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [3000, 2501]);
        assert!(whole_claims(&[]).is_empty());
    }
}
