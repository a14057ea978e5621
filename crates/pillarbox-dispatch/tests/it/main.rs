//! The engine on the memory store, in virtual time: what the promises say, and what goes wrong.

mod cuts;
mod delivery;
mod faults;
mod gate;
mod idle;
mod leases;
mod property;
mod recovery;
mod shutdown;
mod world;
