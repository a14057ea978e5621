//! The engine on the memory store, in virtual time: what the promises say, and what goes wrong.

mod delivery;
mod shutdown;
mod world;
