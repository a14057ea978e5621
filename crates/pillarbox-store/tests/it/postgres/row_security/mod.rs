//! Row-level security: every table with rows of tenants, by roles that have their duty only.

mod covered;
mod dropped;
mod plans;
mod roles;
mod secured;
mod tenants;
mod without_conditions;
