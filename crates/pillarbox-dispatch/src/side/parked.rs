//! One round over parked rows, for the rerouter and the unblocker.
//!
//! A round is bounded, and the next goes on where it ended.

use pillarbox::StoreError;
use pillarbox_store::store::{Parked, Stub};
use uuid::Uuid;

use crate::worker::Worker;

/// How many rows at a time.
const CHUNK: usize = 500;
/// How many chunks in a round.
const CHUNKS: usize = 40;

/// Unparks the rows that may go, starting after `after`. Returns how many.
pub(super) async fn unpark(
    worker: &Worker,
    what: Parked,
    after: &mut Option<i64>,
    may_go: impl Fn(&Stub) -> bool,
) -> Result<usize, StoreError> {
    let mut unparked = 0;
    for _ in 0..CHUNKS {
        let scope = &worker.settings.scope;
        let stubs = worker.store.parked(what, scope, *after, CHUNK).await?;
        let ids: Vec<Uuid> = stubs
            .iter()
            .filter(|stub| may_go(stub))
            .map(|stub| stub.id)
            .collect();
        if !ids.is_empty() {
            unparked += worker.store.unpark(what, &ids).await?.len();
        }
        *after = stubs.last().map(|stub| stub.seq).filter(|_| stubs.len() == CHUNK);
        if after.is_none() {
            break;
        }
    }
    Ok(unparked)
}
