//! Tables of others, worked on as they are.

mod agreeing;
mod changing;
mod harness;
mod importing;
mod seeds;
mod suite;
mod telling;
