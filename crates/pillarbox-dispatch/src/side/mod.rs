//! Side jobs: they keep leases alive, repair what crashed workers left, and import adopted tables.

pub(crate) mod family_log;
pub(crate) mod heartbeat;
pub(crate) mod importer;
pub(crate) mod lane_leases;
mod parked;
pub(crate) mod pruner;
pub(crate) mod quota_counter;
pub(crate) mod reachability;
pub(crate) mod renewer;
pub(crate) mod reporter;
pub(crate) mod rerouter;
pub(crate) mod sampler;
pub(crate) mod sweeper;
pub(crate) mod unblocker;
