//! The engine on the memory store, in virtual time: what the promises say, and what goes wrong.

mod cuts;
mod delivery;
mod faults;
mod gate;
mod idle;
mod isolation;
mod leases;
mod ordering;
mod property;
mod recovery;
mod routing;
mod shutdown;
mod world;
