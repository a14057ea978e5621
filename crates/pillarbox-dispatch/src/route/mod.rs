//! Step 3 of 5: route each claimed row to its destinations.

mod route_index;
pub(crate) mod route_table;
pub(crate) mod router;
