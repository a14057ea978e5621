//! Tables of others, worked on as they are.

mod changing;
mod harness;
mod seeds;
mod telling;
