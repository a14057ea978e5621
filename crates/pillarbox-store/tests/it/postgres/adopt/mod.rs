//! Adopted tables.

mod agreement;
mod backlog;
mod beside;
mod changes;
mod ends;
mod failures;
mod families;
mod foreign_code;
mod harness;
mod histories;
mod importing;
mod large;
mod moved;
mod odd;
mod partitions;
mod permissions;
mod rejections;
mod retries;
mod seeds;
mod speaks_for;
mod suite;
mod writing_back;
