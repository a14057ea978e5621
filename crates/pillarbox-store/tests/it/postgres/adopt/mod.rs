//! Tables of others, worked on as they are.

mod agreeing;
mod changing;
mod ending;
mod families;
mod harness;
mod histories;
mod importing;
mod large;
mod odd;
mod permissions;
mod rejecting;
mod seeds;
mod suite;
mod writing_back;
