//! The archive: rows that retention deletes, as JSON lines in files that zstd compresses.
//!
//! A folder has one file for each day and worker. Each batch is a frame of its own, so a file that ends in the middle of one is
//! read up to there. A line is `{"pillarbox": 1, "database": …, "row": {…}}` with all columns of the row, the payload too.

mod folder;
mod reader;

pub(crate) use self::folder::Folder;
pub(crate) use self::reader::Reader;

/// How the names of its files end.
pub(crate) const SUFFIX: &str = ".jsonl.zst";
