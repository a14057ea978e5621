//! Whose turn it is in a fair claim: the tenant that got a fresh row last, of each backlog.
//!
//! A place to continue at and no random one: ids that begin with a time or a small number lie close together, and a random
//! id would nearly always come before the first or after the last of them.
//!
//! A hint of this process only. Without it, a claim begins at any tenant. **If we die here** the rotation begins again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::store::Backlog;
use pillarbox::Delivery;

#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<Backlog, Uuid>>);

impl Turns {
    /// The tenant after which a claim begins.
    pub(super) fn last(&self, backlog: &Backlog, otherwise: Uuid) -> Uuid {
        self.lock().get(backlog).copied().unwrap_or(otherwise)
    }

    /// A claim of this backlog began after `after` and took these fresh rows.
    pub(super) fn claimed<'a>(
        &self,
        backlog: &Backlog,
        after: Uuid,
        fresh: impl Iterator<Item = &'a Delivery>,
    ) {
        let of_backlog = fresh.filter(|row| {
            row.event.namespace == backlog.namespace && row.event.destination == backlog.destination
        });
        let tenants = of_backlog.map(|row| row.event.tenant_id.unwrap_or_default());
        match tenants.max_by_key(|tenant| steps(after, *tenant)) {
            Some(last) => self.lock().insert(backlog.clone(), last),
            None => self.lock().remove(backlog),
        };
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Backlog, Uuid>> {
        // A panic elsewhere does not make the hint wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the rotation goes from `after` to the tenant. `after` itself comes last.
fn steps(after: Uuid, tenant: Uuid) -> u128 {
    tenant.as_u128().wrapping_sub(after.as_u128()).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rotation_ends_with_the_tenant_it_began_after() {
        let [first, second, third] = [1, 2, 3].map(Uuid::from_u128);
        let mut tenants = [first, second, third, Uuid::nil()];
        tenants.sort_by_key(|tenant| steps(second, *tenant));
        assert_eq!(tenants, [third, Uuid::nil(), first, second]);
    }
}
