//! Step 2 of 5: claim rows of those backlogs, with a lease.

pub(crate) mod claimer;
pub(crate) mod suspects;
