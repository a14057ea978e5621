//! Step 1 of 5: find which backlogs have due rows.

pub(crate) mod backlogs;
pub(crate) mod finder;
mod rhythm;
mod watcher;
